// CPU kernel of causal_mask.
#include <algorithm>
#include <limits>

#include "backend/cpu/parallel.h"
#include "op/causal_mask.h"
#include "op/kernel.h"

namespace pl::cpu {

std::unique_ptr<Kernel> causal_mask_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Shape& shape = call.in[0].shape;
    const Dim columns = shape.back(), positions = shape[shape.rank() - 2];
    const Dim rows = columns > 0 ? shape.elements() / columns : 0;
    const T value = call.attrs.integer("zero", 0) ? T(0) : -std::numeric_limits<T>::infinity();
    const int threads = call.backend.threads();
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_ranges(threads, rows, rows * columns, [&](Dim begin, Dim end) {
        for (Dim r = begin; r < end; ++r) {
          const Dim seen = std::min(columns, r % positions + 1);
          if (x != y) std::copy(x + r * columns, x + r * columns + seen, y + r * columns);
          std::fill(y + r * columns + seen, y + (r + 1) * columns, value);
        }
      });
    });
  });
}

}  // namespace pl::cpu
