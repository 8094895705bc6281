// gru and its gradient as plain loops: sample by sample, step by step.
#include <algorithm>

#include "op/gru.h"
#include "op/kernel.h"
#include "op/recurrent_data.h"
#include "op/squash.h"

namespace pl::cpu {
namespace {

// One sample. Pointers to its part of each operand; those that are absent are null.
template <class T>
struct Forward {
  const RecurrentForm& f;
  const T *z, *u, *bias, *h0, *dropped;
  const uint8_t* mask;
  T *h, *gates, *inner;
  T* sum;  // (3 H): products with the state

  void run(T* last_h) const {
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
    const Dim units = f.units;
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
    const Dim units = f.units;
    for (Dim g = 0; g < 2; ++g) {
      project(g, h_old, true);
      for (Dim j = g * units; j < (g + 1) * units; ++j)
        gate[j] = squash(f.recurrent_activation, x[j] + sum[j]);
    }
    auto old = [&](Dim j) { return h_old ? h_old[j] : T(0); };
    const T *update = gate, *reset = gate + units;
    T* candidate = sum + 2 * units;
    if (f.reset_after) {
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
  const RecurrentForm& f;
  const T *gates, *inner, *h, *u, *h0, *dropped, *dh, *dgates, *dinner;
  const uint8_t* mask;
  T *dz, *dn;   // may be `gates` and `inner`
  T* dh_carry;  // (H): of the state behind the step, then of the one before it
  T* step;      // (3 H) of dz, (H) of dn, (H) of the sum

  void run() const {
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

  T factor(Dim g, Dim k) const { return dropped ? dropped[g * f.units + k] : T(1); }
  // Row k of gate g's weights times `values`.
  T back(Dim g, Dim k, const T* values) const {
    const Dim units = f.units;
    const T* row = u + (k * 3 + g) * units;
    T sum = 0;
    for (Dim j = 0; j < units; ++j) sum += values[j] * row[j];
    return sum;
  }

  void cell(Dim t, const T* h_old) const {
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
      if (f.reset_after) {
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
      if (f.reset_after) sum[k] += factor(2, k) * back(2, k, dn_step);
    }
  }
};

template <class T>
std::unique_ptr<Kernel> forward(const RecurrentForm& form, int threads) {
  return sample_by_sample<T>(form, threads, 3 * form.units,
                             [](const SampleOperands<T>& in, const SampleOperands<T>& out, T* sum) {
                               Forward<T>{.f = in.f,
                                          .z = in.steps(0, 3),
                                          .u = in.weights(1),
                                          .bias = in.weights(in.f.bias),
                                          .h0 = in.state(in.f.h0),
                                          .dropped = in.state(in.f.dropped, 3),
                                          .mask = in.mask(),
                                          .h = out.steps(0),
                                          .gates = out.steps(1, 3),
                                          .inner = out.steps(2),
                                          .sum = sum}
                                   .run(out.state(3));
                             });
}

template <class T>
std::unique_ptr<Kernel> backward(const RecurrentForm& form, int threads) {
  return sample_by_sample<T>(
      form, threads, 5 * form.units,
      [](const SampleOperands<T>& in, const SampleOperands<T>& out, T* step) {
        const RecurrentForm& f = in.f;
        in.copy_state(f.dlast_h, out.state(2));
        Backward<T>{.f = f,
                    .gates = in.steps(0, 3),
                    .inner = in.steps(1),
                    .h = in.steps(2),
                    .u = in.weights(3),
                    .h0 = in.state(f.h0),
                    .dropped = in.state(f.dropped, 3),
                    .dh = in.steps(f.dh),
                    .dgates = in.steps(f.dgates, 3),
                    .dinner = in.steps(f.dcells),
                    .mask = in.mask(),
                    .dz = out.steps(0, 3),
                    .dn = out.steps(1),
                    .dh_carry = out.state(2),
                    .step = step}
            .run();
      });
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
