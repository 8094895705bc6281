// lstm and its gradient as plain loops: sample by sample, step by step.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/lstm.h"
#include "op/squash.h"

namespace pl::cpu {
namespace {

// Operand `at`, `offset` elements in; null where it is absent.
template <class T>
T* operand(void* const* in, int at, Dim offset) {
  return at < 0 ? nullptr : static_cast<T*>(in[at]) + offset;
}

// One sample. Pointers to its part of each operand; those that are absent are null.
template <class T>
struct Forward {
  const RecurrentForm& f;
  const T *z, *u, *h0, *c0, *dropped;
  const uint8_t* mask;
  T *h, *gates, *c;
  T* sum;  // (4 H)

  void run(T* last_h, T* last_c) const {
    const Dim units = f.units;
    const T *h_old = h0, *c_old = c0;  // null: zeros
    for (Dim s = 0; s < f.steps; ++s) {
      const Dim t = f.input_at(s), to = f.output_at(s) * units;
      if (mask && !mask[t]) {
        for (Dim j = 0; j < units; ++j) {
          h[to + j] = h_old ? h_old[j] : T(0);
          c[to + j] = c_old ? c_old[j] : T(0);
        }
        std::fill(gates + t * 4 * units, gates + (t + 1) * 4 * units, T(0));
      } else {
        project(z + t * 4 * units, h_old);
        cell(gates + t * 4 * units, c_old, h + to, c + to);
      }
      h_old = h + to, c_old = c + to;
    }
    for (Dim j = 0; j < units; ++j) {
      last_h[j] = h_old ? h_old[j] : T(0);
      last_c[j] = c_old ? c_old[j] : T(0);
    }
  }

  // sum = z + h_old x u.
  void project(const T* from, const T* h_old) const {
    const Dim units = f.units;
    std::copy(from, from + 4 * units, sum);
    if (!h_old) return;
    for (Dim k = 0; k < units; ++k)
      for (Dim g = 0; g < 4; ++g) {
        const T left = dropped ? h_old[k] * dropped[g * units + k] : h_old[k];
        const T* row = u + (k * 4 + g) * units;
        for (Dim j = 0; j < units; ++j) sum[g * units + j] += left * row[j];
      }
  }

  void cell(T* gate, const T* c_old, T* h_new, T* c_new) const {
    const Dim units = f.units;
    for (Dim j = 0; j < units; ++j) {
      const T i = squash(f.recurrent_activation, sum[j]);
      const T forget = squash(f.recurrent_activation, sum[units + j]);
      const T g = squash(f.activation, sum[2 * units + j]);
      const T o = squash(f.recurrent_activation, sum[3 * units + j]);
      c_new[j] = forget * (c_old ? c_old[j] : T(0)) + i * g;
      h_new[j] = o * squash(f.activation, c_new[j]);
      gate[j] = i, gate[units + j] = forget, gate[2 * units + j] = g, gate[3 * units + j] = o;
    }
  }
};

template <class T>
struct Backward {
  const RecurrentForm& f;
  const T *gates, *c, *u, *c0, *dropped, *dh, *dgates, *dc_steps;
  const uint8_t* mask;
  T* dz;                   // may be `gates`
  T *dh_carry, *dc_carry;  // (H): of the state behind the step, then of the one before it
  T* step;                 // (4 H): the step's dz

  void run() const {
    const Dim units = f.units;
    for (Dim s = f.steps - 1; s >= 0; --s) {
      const Dim t = f.input_at(s), at = f.output_at(s) * units;
      for (Dim j = 0; j < units; ++j) {
        if (dh) dh_carry[j] += dh[at + j];
        if (dc_steps) dc_carry[j] += dc_steps[at + j];
      }
      T* to = dz + t * 4 * units;
      if (mask && !mask[t]) {
        std::fill(to, to + 4 * units, T(0));
        continue;
      }
      const T* c_old = s > 0 ? c + f.output_at(s - 1) * units : c0;
      cell(t, c + at, c_old);
      std::copy(step, step + 4 * units, to);
      for (Dim k = 0; k < units; ++k) {
        T sum = 0;
        for (Dim g = 0; g < 4; ++g) {
          const T* row = u + (k * 4 + g) * units;
          T part = 0;
          for (Dim j = 0; j < units; ++j) part += step[g * units + j] * row[j];
          sum += dropped ? dropped[g * units + k] * part : part;
        }
        dh_carry[k] = sum;
      }
    }
  }

  void cell(Dim t, const T* c_new, const T* c_old) const {
    const Dim units = f.units;
    const T* gate = gates + t * 4 * units;
    auto more = [&](Dim at) { return dgates ? dgates[t * 4 * units + at] : T(0); };
    for (Dim j = 0; j < units; ++j) {
      const T i = gate[j], forget = gate[units + j], g = gate[2 * units + j],
              o = gate[3 * units + j];
      const T y = squash(f.activation, c_new[j]);
      const T dc = dc_carry[j] + dh_carry[j] * o * squash_slope(f.activation, y);
      auto slope = [&](T gate_value) { return squash_slope(f.recurrent_activation, gate_value); };
      step[j] = (dc * g + more(j)) * slope(i);
      step[units + j] = (dc * (c_old ? c_old[j] : T(0)) + more(units + j)) * slope(forget);
      step[2 * units + j] = (dc * i + more(2 * units + j)) * squash_slope(f.activation, g);
      step[3 * units + j] = (dh_carry[j] * y + more(3 * units + j)) * slope(o);
      dc_carry[j] = dc * forget;
    }
  }
};

template <class T>
std::unique_ptr<Kernel> forward(const LstmForm& form, int threads) {
  const Dim units = form.sequence.units;
  return make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const RecurrentForm& f = form.sequence;
        parallel_ranges(
            threads, f.batch, f.batch * f.steps * units * units, [&](Dim begin, Dim end) {
              T* sum = static_cast<T*>(workspace) + omp_get_thread_num() * 4 * units;
              for (Dim b = begin; b < end; ++b) {
                const Dim sequence = b * f.steps * units, state = b * units;
                const Forward<T> sample{.f = f,
                                        .z = operand<T>(in, 0, 4 * sequence),
                                        .u = operand<T>(in, 1, 0),
                                        .h0 = operand<T>(in, form.h0, state),
                                        .c0 = operand<T>(in, form.c0, state),
                                        .dropped = operand<T>(in, form.dropped, 4 * state),
                                        .mask = operand<uint8_t>(in, form.mask, b * f.steps),
                                        .h = operand<T>(out, 0, sequence),
                                        .gates = operand<T>(out, 1, 4 * sequence),
                                        .c = operand<T>(out, 2, sequence),
                                        .sum = sum};
                sample.run(operand<T>(out, 3, state), operand<T>(out, 4, state));
              }
            });
      },
      threads * 4 * units * static_cast<Bytes>(sizeof(T)));
}

template <class T>
std::unique_ptr<Kernel> backward(const LstmForm& form, int threads) {
  const Dim units = form.sequence.units;
  return make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const RecurrentForm& f = form.sequence;
        parallel_ranges(threads, f.batch, f.batch * f.steps * units * units,
                        [&](Dim begin, Dim end) {
                          T* step = static_cast<T*>(workspace) + omp_get_thread_num() * 4 * units;
                          for (Dim b = begin; b < end; ++b) {
                            const Dim sequence = b * f.steps * units, state = b * units;
                            T *dh0 = operand<T>(out, 1, state), *dc0 = operand<T>(out, 2, state);
                            const T *dlast_h = operand<T>(in, form.dlast_h, state),
                                    *dlast_c = operand<T>(in, form.dlast_c, state);
                            for (Dim j = 0; j < units; ++j) {
                              dh0[j] = dlast_h ? dlast_h[j] : T(0);
                              dc0[j] = dlast_c ? dlast_c[j] : T(0);
                            }
                            Backward<T>{.f = f,
                                        .gates = operand<T>(in, 0, 4 * sequence),
                                        .c = operand<T>(in, 1, sequence),
                                        .u = operand<T>(in, 2, 0),
                                        .c0 = operand<T>(in, form.c0, state),
                                        .dropped = operand<T>(in, form.dropped, 4 * state),
                                        .dh = operand<T>(in, form.dh, sequence),
                                        .dgates = operand<T>(in, form.dgates, 4 * sequence),
                                        .dc_steps = operand<T>(in, form.dc, sequence),
                                        .mask = operand<uint8_t>(in, form.mask, b * f.steps),
                                        .dz = operand<T>(out, 0, 4 * sequence),
                                        .dh_carry = dh0,
                                        .dc_carry = dc0,
                                        .step = step}
                                .run();
                          }
                        });
      },
      threads * 4 * units * static_cast<Bytes>(sizeof(T)));
}

}  // namespace

std::unique_ptr<Kernel> lstm_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return forward<T>(lstm_form(call), call.backend.threads());
  });
}

std::unique_ptr<Kernel> lstm_gradient_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return backward<T>(lstm_gradient_form(call), call.backend.threads());
  });
}

}  // namespace pl::cpu
