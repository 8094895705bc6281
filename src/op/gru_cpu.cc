// gru and its gradient as plain loops: sample by sample, step by step.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/gru.h"
#include "op/kernel.h"
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
  const GruForm& form;
  const T *z, *u, *bias, *h0, *dropped;
  const uint8_t* mask;
  T *h, *gates, *inner;
  T* sum;  // (3 H): products with the state

  void run(T* last_h) const {
    const RecurrentForm& f = form.sequence;
    const Dim units = f.units;
    const T* h_old = h0;  // null: zeros
    for (Dim s = 0; s < f.steps; ++s) {
      const Dim t = f.input_at(s), to = f.output_at(s) * units;
      if (mask && !mask[t]) {
        for (Dim j = 0; j < units; ++j) h[to + j] = h_old ? h_old[j] : T(0);
        std::fill(gates + t * 3 * units, gates + (t + 1) * 3 * units, T(0));
        std::fill(inner + t * units, inner + (t + 1) * units, T(0));
      } else {
        step(z + t * 3 * units, h_old, gates + t * 3 * units, inner + t * units, h + to);
      }
      h_old = h + to;
    }
    for (Dim j = 0; j < units; ++j) last_h[j] = h_old ? h_old[j] : T(0);
  }

  // Columns of gate g: sum = bias + state x u.
  void project(Dim g, const T* state, bool drop) const {
    const Dim units = form.sequence.units;
    T* to = sum + g * units;
    for (Dim j = 0; j < units; ++j) to[j] = bias ? bias[g * units + j] : T(0);
    if (!state) return;
    for (Dim k = 0; k < units; ++k) {
      const T left = drop && dropped ? state[k] * dropped[g * units + k] : state[k];
      const T* row = u + (k * 3 + g) * units;
      for (Dim j = 0; j < units; ++j) to[j] += left * row[j];
    }
  }

  void step(const T* x, const T* h_old, T* gate, T* inside, T* h_new) const {
    const RecurrentForm& f = form.sequence;
    const Dim units = f.units;
    for (Dim g = 0; g < 2; ++g) {
      project(g, h_old, true);
      for (Dim j = g * units; j < (g + 1) * units; ++j)
        gate[j] = squash(f.recurrent_activation, x[j] + sum[j]);
    }
    auto old = [&](Dim j) { return h_old ? h_old[j] : T(0); };
    const T *update = gate, *reset = gate + units;
    T* candidate = sum + 2 * units;
    if (form.reset_after) {
      project(2, h_old, true);
      for (Dim j = 0; j < units; ++j) {
        inside[j] = candidate[j];
        candidate[j] = reset[j] * candidate[j];
      }
    } else {
      for (Dim j = 0; j < units; ++j)
        inside[j] = reset[j] * (dropped ? old(j) * dropped[2 * units + j] : old(j));
      project(2, inside, false);
    }
    for (Dim j = 0; j < units; ++j) {
      const T y = squash(f.activation, x[2 * units + j] + candidate[j]);
      gate[2 * units + j] = y;
      h_new[j] = update[j] * old(j) + (T(1) - update[j]) * y;
    }
  }
};

template <class T>
struct Backward {
  const GruForm& form;
  const T *gates, *inner, *h, *u, *h0, *dropped, *dh, *dgates, *dinner;
  const uint8_t* mask;
  T *dz, *dn;   // may be `gates` and `inner`
  T* dh_carry;  // (H): of the state behind the step, then of the one before it
  T* step;      // (3 H) of dz, (H) of dn, (H) of the sum

  void run() const {
    const RecurrentForm& f = form.sequence;
    const Dim units = f.units;
    for (Dim s = f.steps - 1; s >= 0; --s) {
      const Dim t = f.input_at(s), at = f.output_at(s) * units;
      if (dh)
        for (Dim j = 0; j < units; ++j) dh_carry[j] += dh[at + j];
      if (mask && !mask[t]) {
        std::fill(dz + t * 3 * units, dz + (t + 1) * 3 * units, T(0));
        std::fill(dn + t * units, dn + (t + 1) * units, T(0));
        continue;
      }
      cell(t, s > 0 ? h + f.output_at(s - 1) * units : h0);
      std::copy(step, step + 3 * units, dz + t * 3 * units);
      std::copy(step + 3 * units, step + 4 * units, dn + t * units);
      std::copy(step + 4 * units, step + 5 * units, dh_carry);
    }
  }

  T factor(Dim g, Dim k) const { return dropped ? dropped[g * form.sequence.units + k] : T(1); }
  // Row k of gate g's weights times `values`.
  T back(Dim g, Dim k, const T* values) const {
    const Dim units = form.sequence.units;
    const T* row = u + (k * 3 + g) * units;
    T sum = 0;
    for (Dim j = 0; j < units; ++j) sum += values[j] * row[j];
    return sum;
  }

  void cell(Dim t, const T* h_old) const {
    const RecurrentForm& f = form.sequence;
    const Dim units = f.units;
    const T *gate = gates + t * 3 * units, *inside = inner + t * units;
    T *dn_step = step + 3 * units, *sum = step + 4 * units;
    auto more = [&](Dim at) { return dgates ? dgates[t * 3 * units + at] : T(0); };
    auto more_inner = [&](Dim j) { return dinner ? dinner[t * units + j] : T(0); };
    auto old = [&](Dim j) { return h_old ? h_old[j] : T(0); };
    auto slope = [&](T y) { return squash_slope(f.recurrent_activation, y); };
    for (Dim j = 0; j < units; ++j) {
      const T update = gate[j], y = gate[2 * units + j];
      const T dy = dh_carry[j] * (T(1) - update) + more(2 * units + j);
      step[2 * units + j] = dy * squash_slope(f.activation, y);
      step[j] = (dh_carry[j] * (old(j) - y) + more(j)) * slope(update);
      sum[j] = dh_carry[j] * update;
    }
    for (Dim j = 0; j < units; ++j) {
      const T reset = gate[units + j];
      T dreset = more(units + j);
      if (form.reset_after) {
        dn_step[j] = step[2 * units + j] * reset + more_inner(j);
        dreset += step[2 * units + j] * inside[j];
      } else {
        dn_step[j] = step[2 * units + j];
        const T dinside = back(2, j, step + 2 * units) + more_inner(j);
        dreset += dinside * old(j) * factor(2, j);
        sum[j] += dinside * reset * factor(2, j);
      }
      step[units + j] = dreset * slope(reset);
    }
    for (Dim k = 0; k < units; ++k) {
      sum[k] += factor(0, k) * back(0, k, step) + factor(1, k) * back(1, k, step + units);
      if (form.reset_after) sum[k] += factor(2, k) * back(2, k, dn_step);
    }
  }
};

template <class T>
std::unique_ptr<Kernel> forward(const GruForm& form, int threads) {
  const Dim units = form.sequence.units;
  return make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const RecurrentForm& f = form.sequence;
        const Dim work = f.batch * f.steps * units * units;
        parallel_ranges(threads, f.batch, work, [&](Dim begin, Dim end) {
          T* sum = static_cast<T*>(workspace) + omp_get_thread_num() * 3 * units;
          for (Dim b = begin; b < end; ++b) {
            const Dim sequence = b * f.steps * units, state = b * units;
            Forward<T>{.form = form,
                       .z = operand<T>(in, 0, 3 * sequence),
                       .u = operand<T>(in, 1, 0),
                       .bias = operand<T>(in, form.bias, 0),
                       .h0 = operand<T>(in, form.h0, state),
                       .dropped = operand<T>(in, form.dropped, 3 * state),
                       .mask = operand<uint8_t>(in, form.mask, b * f.steps),
                       .h = operand<T>(out, 0, sequence),
                       .gates = operand<T>(out, 1, 3 * sequence),
                       .inner = operand<T>(out, 2, sequence),
                       .sum = sum}
                .run(operand<T>(out, 3, state));
          }
        });
      },
      threads * 3 * units * static_cast<Bytes>(sizeof(T)));
}

template <class T>
std::unique_ptr<Kernel> backward(const GruForm& form, int threads) {
  const Dim units = form.sequence.units;
  return make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const RecurrentForm& f = form.sequence;
        const Dim work = f.batch * f.steps * units * units;
        parallel_ranges(threads, f.batch, work, [&](Dim begin, Dim end) {
          T* step = static_cast<T*>(workspace) + omp_get_thread_num() * 5 * units;
          for (Dim b = begin; b < end; ++b) {
            const Dim sequence = b * f.steps * units, state = b * units;
            T* dh0 = operand<T>(out, 2, state);
            const T* dlast_h = operand<T>(in, form.dlast_h, state);
            for (Dim j = 0; j < units; ++j) dh0[j] = dlast_h ? dlast_h[j] : T(0);
            Backward<T>{.form = form,
                        .gates = operand<T>(in, 0, 3 * sequence),
                        .inner = operand<T>(in, 1, sequence),
                        .h = operand<T>(in, 2, sequence),
                        .u = operand<T>(in, 3, 0),
                        .h0 = operand<T>(in, form.h0, state),
                        .dropped = operand<T>(in, form.dropped, 3 * state),
                        .dh = operand<T>(in, form.dh, sequence),
                        .dgates = operand<T>(in, form.dgates, 3 * sequence),
                        .dinner = operand<T>(in, form.dinner, sequence),
                        .mask = operand<uint8_t>(in, form.mask, b * f.steps),
                        .dz = operand<T>(out, 0, 3 * sequence),
                        .dn = operand<T>(out, 1, sequence),
                        .dh_carry = dh0,
                        .step = step}
                .run();
          }
        });
      },
      threads * 5 * units * static_cast<Bytes>(sizeof(T)));
}

}  // namespace

std::unique_ptr<Kernel> gru_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return forward<T>(gru_form(call), call.backend.threads());
  });
}

std::unique_ptr<Kernel> gru_gradient_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return backward<T>(gru_gradient_form(call), call.backend.threads());
  });
}

}  // namespace pl::cpu
