// CPU kernel of scale.
#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/scale.h"

namespace pl::cpu {

// Product and sum are each rounded to T, so that float32 is the same in every tile that fuses it.
std::unique_ptr<Kernel> scale_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Dim total = call.out[0].elements();
    const int threads = call.backend.threads();
    const T factor = static_cast<T>(call.attrs.real("factor"));
    const T offset = static_cast<T>(call.attrs.real("offset", 0));
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_ranges(
          threads, total, total,
          [&](Dim begin, Dim end) {
#pragma omp simd
            for (Dim i = begin; i < end; ++i) y[i] = x[i] * factor + offset;
          },
          64);
    });
  });
}

}  // namespace pl::cpu
