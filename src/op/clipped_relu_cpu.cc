// Reference kernels of clipped_relu. The fast ones are in clipped_relu_simd.cc.
#include "backend/cpu/parallel.h"
#include "op/clipped_relu.h"
#include "op/kernel.h"

namespace pl::cpu {

std::unique_ptr<Kernel> clipped_relu_reference(const PrepareCall& call) {
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  return dispatch_float(call.out[0].dtype, [&]<class T>() {
    const T most = static_cast<T>(call.attrs.real("most"));
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_ranges(threads, count, count, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i)
          y[i] = x[i] <= T(0) ? T(0) : x[i] >= most ? most : x[i];
      });
    });
  });
}

std::unique_ptr<Kernel> clipped_relu_gradient_reference(const PrepareCall& call) {
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  return dispatch_float(call.out[0].dtype, [&]<class T>() {
    const T most = static_cast<T>(call.attrs.real("most"));
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* y = static_cast<const T*>(in[0]);
      const T* dy = static_cast<const T*>(in[1]);
      T* dx = static_cast<T*>(out[0]);
      parallel_ranges(threads, count, count, [&](int64_t begin, int64_t end) {
        for (int64_t i = begin; i < end; ++i) dx[i] = y[i] > T(0) && y[i] < most ? dy[i] : T(0);
      });
    });
  });
}

}  // namespace pl::cpu
