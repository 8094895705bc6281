#include "backend/cpu/parallel.h"
#include "op/accumulate.h"
#include "op/kernel.h"

namespace pl::cpu {

std::unique_ptr<Kernel> accumulate_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Dim total = call.in[0].elements();
    const int threads = call.backend.threads();
    return make_kernel([total, threads](void* const* in, void* const* out, void*) {
      const T* sum = static_cast<const T*>(in[0]);
      const T* term = static_cast<const T*>(in[1]);
      T* next = static_cast<T*>(out[0]);
      // The sum lies on its own place: without the hint the compiler's overlap check would send
      // every call to a scalar loop.
      parallel_ranges(threads, total, total, [&](Dim begin, Dim end) {
#pragma omp simd
        for (Dim i = begin; i < end; ++i) next[i] = sum[i] + term[i];
      });
    });
  });
}

}  // namespace pl::cpu
