// simple_rnn and its gradient as plain loops: sample by sample, step by step.
#include <algorithm>

#include "op/kernel.h"
#include "op/recurrent_data.h"
#include "op/simple_rnn.h"
#include "op/squash.h"

namespace pl::cpu {
namespace {

template <class T>
std::unique_ptr<Kernel> forward(const RecurrentForm& form, int threads) {
  return sample_by_sample<T>(
      form, threads, 0, [](const SampleOperands<T>& in, const SampleOperands<T>& out, T*) {
        const RecurrentForm& f = in.f;
        const Dim units = f.units;
        const T *u = in.weights(1), *drop = in.state(f.dropped), *h_old = in.state(f.h0);
        const uint8_t* mask = in.mask();
        for (Dim s = 0; s < f.steps; ++s) {
          const Dim t = f.input_at(s);
          const T* z = in.steps(0) + t * units;
          T* h = out.steps(0) + f.output_at(s) * units;
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
        for (Dim j = 0; j < units; ++j) out.state(1)[j] = h_old ? h_old[j] : T(0);
      });
}

template <class T>
std::unique_ptr<Kernel> backward(const RecurrentForm& form, int threads) {
  return sample_by_sample<T>(
      form, threads, 0, [](const SampleOperands<T>& in, const SampleOperands<T>& out, T*) {
        const RecurrentForm& f = in.f;
        const Dim units = f.units;
        const T *u = in.weights(1), *drop = in.state(f.dropped), *dh = in.steps(f.dh);
        const uint8_t* mask = in.mask();
        T* carry = out.state(1);
        in.copy_state(f.dlast_h, carry);
        for (Dim s = f.steps - 1; s >= 0; --s) {
          const Dim t = f.input_at(s), at = f.output_at(s) * units;
          const T* h = in.steps(0) + at;
          T* dz = out.steps(0) + t * units;
          for (Dim j = 0; dh && j < units; ++j) carry[j] += dh[at + j];
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
