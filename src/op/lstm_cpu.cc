// lstm and its gradient as plain loops: sample by sample, step by step.
#include <algorithm>

#include "op/kernel.h"
#include "op/lstm.h"
#include "op/recurrent_data.h"
#include "op/squash.h"

namespace pl::cpu {
namespace {

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
std::unique_ptr<Kernel> forward(const RecurrentForm& form, int threads) {
  return sample_by_sample<T>(form, threads, 4 * form.units,
                             [](const SampleOperands<T>& in, const SampleOperands<T>& out, T* sum) {
                               Forward<T>{.f = in.f,
                                          .z = in.steps(0, 4),
                                          .u = in.weights(1),
                                          .h0 = in.state(in.f.h0),
                                          .c0 = in.state(in.f.c0),
                                          .dropped = in.state(in.f.dropped, 4),
                                          .mask = in.mask(),
                                          .h = out.steps(0),
                                          .gates = out.steps(1, 4),
                                          .c = out.steps(2),
                                          .sum = sum}
                                   .run(out.state(3), out.state(4));
                             });
}

template <class T>
std::unique_ptr<Kernel> backward(const RecurrentForm& form, int threads) {
  return sample_by_sample<T>(
      form, threads, 4 * form.units,
      [](const SampleOperands<T>& in, const SampleOperands<T>& out, T* step) {
        const RecurrentForm& f = in.f;
        in.copy_state(f.dlast_h, out.state(1));
        in.copy_state(f.dlast_c, out.state(2));
        Backward<T>{.f = f,
                    .gates = in.steps(0, 4),
                    .c = in.steps(1),
                    .u = in.weights(2),
                    .c0 = in.state(f.c0),
                    .dropped = in.state(f.dropped, 4),
                    .dh = in.steps(f.dh),
                    .dgates = in.steps(f.dgates, 4),
                    .dc_steps = in.steps(f.dcells),
                    .mask = in.mask(),
                    .dz = out.steps(0, 4),
                    .dh_carry = out.state(1),
                    .dc_carry = out.state(2),
                    .step = step}
            .run();
      });
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
