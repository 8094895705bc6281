// CPU kernel of one_hot.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/one_hot.h"

namespace pl::cpu {

std::unique_ptr<Kernel> one_hot_reference(const PrepareCall& call) {
  return dispatch_float(call.out[0].dtype, [&]<class T>() {
    const Dim labels = call.in[0].elements(), depth = call.out[0].shape.back();
    const int threads = call.backend.threads();
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const int32_t* x = static_cast<const int32_t*>(in[0]);
      T* y = static_cast<T*>(out[0]);  // (labels, depth)
      parallel_ranges(threads, labels, labels * depth, [&](Dim begin, Dim end) {
        std::fill(y + begin * depth, y + end * depth, T(0));
        for (Dim i = begin; i < end; ++i)
          if (x[i] >= 0 && x[i] < depth) y[i * depth + x[i]] = T(1);
      });
    });
  });
}

}  // namespace pl::cpu
