// simple_rnn and its gradient as plain loops: sample by sample, step by step.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/simple_rnn.h"
#include "op/squash.h"

namespace pl::cpu {
namespace {

// Operand `at`, `offset` elements in; null where it is absent.
template <class T>
T* operand(void* const* in, int at, Dim offset) {
  return at < 0 ? nullptr : static_cast<T*>(in[at]) + offset;
}

template <class T>
std::unique_ptr<Kernel> forward(const SimpleRnnForm& form, int threads) {
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const RecurrentForm& f = form.sequence;
    const Dim units = f.units;
    const T* u = operand<T>(in, 1, 0);
    parallel_ranges(threads, f.batch, f.batch * f.steps * units * units, [&](Dim begin, Dim end) {
      for (Dim b = begin; b < end; ++b) {
        const T* h_old = operand<T>(in, form.h0, b * units);  // null: zeros
        const T* drop = operand<T>(in, form.dropped, b * units);
        const uint8_t* mask = operand<uint8_t>(in, form.mask, b * f.steps);
        for (Dim s = 0; s < f.steps; ++s) {
          const Dim t = f.input_at(s);
          const T* z = operand<T>(in, 0, (b * f.steps + t) * units);
          T* h = operand<T>(out, 0, (b * f.steps + f.output_at(s)) * units);
          if (mask && !mask[t]) {
            for (Dim j = 0; j < units; ++j) h[j] = h_old ? h_old[j] : T(0);
          } else {
            std::copy(z, z + units, h);
            for (Dim k = 0; h_old && k < units; ++k) {
              const T left = drop ? h_old[k] * drop[k] : h_old[k];
              for (Dim j = 0; j < units; ++j) h[j] += left * u[k * units + j];
            }
            for (Dim j = 0; j < units; ++j) h[j] = squash(f.activation, h[j]);
          }
          h_old = h;
        }
        T* last = operand<T>(out, 1, b * units);
        for (Dim j = 0; j < units; ++j) last[j] = h_old ? h_old[j] : T(0);
      }
    });
  });
}

template <class T>
std::unique_ptr<Kernel> backward(const SimpleRnnForm& form, int threads) {
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const RecurrentForm& f = form.sequence;
    const Dim units = f.units;
    const T* u = operand<T>(in, 1, 0);
    const Dim work = f.batch * f.steps * units * units;
    parallel_ranges(threads, f.batch, work, [&](Dim begin, Dim end) {
      for (Dim b = begin; b < end; ++b) {
        const T *dlast = operand<T>(in, form.dlast_h, b * units),
                *drop = operand<T>(in, form.dropped, b * units);
        const uint8_t* mask = operand<uint8_t>(in, form.mask, b * f.steps);
        T* carry = operand<T>(out, 1, b * units);
        for (Dim j = 0; j < units; ++j) carry[j] = dlast ? dlast[j] : T(0);
        for (Dim s = f.steps - 1; s >= 0; --s) {
          const Dim t = f.input_at(s), at = (b * f.steps + f.output_at(s)) * units;
          const T *h = operand<T>(in, 0, at), *dh = operand<T>(in, form.dh, at);
          T* dz = operand<T>(out, 0, (b * f.steps + t) * units);
          for (Dim j = 0; dh && j < units; ++j) carry[j] += dh[j];
          if (mask && !mask[t]) {
            std::fill(dz, dz + units, T(0));
            continue;
          }
          for (Dim j = 0; j < units; ++j) dz[j] = carry[j] * squash_slope(f.activation, h[j]);
          for (Dim k = 0; k < units; ++k) {
            T sum = 0;
            for (Dim j = 0; j < units; ++j) sum += dz[j] * u[k * units + j];
            carry[k] = drop ? drop[k] * sum : sum;
          }
        }
      }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> simple_rnn_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return forward<T>(simple_rnn_form(call), call.backend.threads());
  });
}

std::unique_ptr<Kernel> simple_rnn_gradient_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return backward<T>(simple_rnn_gradient_form(call), call.backend.threads());
  });
}

}  // namespace pl::cpu
