// Reference kernels of sgd. The fast ones, with the same roundings, are in sgd_simd.cc. Outputs are
// usually the inputs' own memory.
#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/sgd.h"
#include "op/step_params.h"

namespace pl::cpu {

std::unique_ptr<Kernel> sgd_reference(const PrepareCall& call) {
  const int64_t count = call.in[0].elements();
  const int threads = call.backend.threads();
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* w = static_cast<const T*>(in[0]);
      const T* g = static_cast<const T*>(in[1]);
      T* next = static_cast<T*>(out[0]);
      const T rate = static_cast<T>(static_cast<const StepParams*>(in[2])->learning_rate);
      parallel_ranges(threads, count, count, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) next[i] = w[i] - rate * g[i];
      });
    });
  });
}

std::unique_ptr<Kernel> sgd_momentum_reference(const PrepareCall& call) {
  const int64_t count = call.in[0].elements();
  const int threads = call.backend.threads();
  const bool nesterov = call.attrs.integer("nesterov", 0) != 0;
  const double momentum = call.attrs.real("momentum", 0.9);
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* w = static_cast<const T*>(in[0]);
      const T* velocity = static_cast<const T*>(in[1]);
      const T* g = static_cast<const T*>(in[2]);
      T* next = static_cast<T*>(out[0]);
      T* next_velocity = static_cast<T*>(out[1]);
      const T rate = static_cast<T>(static_cast<const StepParams*>(in[3])->learning_rate);
      const T keep = static_cast<T>(momentum);
      parallel_ranges(threads, count, count, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) {
          const T step = rate * g[i];
          const T v = keep * velocity[i] - step;
          next_velocity[i] = v;
          next[i] = nesterov ? w[i] + (keep * v - step) : w[i] + v;
        }
      });
    });
  });
}

}  // namespace pl::cpu
