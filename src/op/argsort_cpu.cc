// CPU kernel of argsort. Places are sorted in a workspace, each thread's own; ties are broken by
// place, so that no stable sort, which allocates, is needed.
#include <algorithm>
#include <cmath>

#include "backend/cpu/parallel.h"
#include "op/argsort.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

// Whether a, at place i, comes before b, at place j. NaN is behind all.
template <class T>
bool comes_before(T a, int32_t i, T b, int32_t j, bool descending) {
  const bool a_is = std::isnan(a), b_is = std::isnan(b);
  if (a_is || b_is) return a_is == b_is ? i < j : b_is;
  if (a == b) return i < j;
  return descending ? a > b : a < b;
}

}  // namespace

std::unique_ptr<Kernel> argsort_reference(const PrepareCall& call) {
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    const Dim n = call.in[0].shape.back(), count = call.out[0].shape.back();
    const Dim rows = n == 0 ? 0 : call.in[0].elements() / n;
    const bool descending = call.attrs.integer("descending", 0) != 0;
    const int threads = call.backend.threads();
    const auto share = static_cast<Bytes>(n) * static_cast<Bytes>(sizeof(int32_t));
    return make_kernel(
        [=](void* const* in, void* const* out, void* workspace) {
          const T* x = static_cast<const T*>(in[0]);     // (rows, n)
          int32_t* y = static_cast<int32_t*>(out[0]);    // (rows, count)
          auto* all = static_cast<int32_t*>(workspace);  // (threads, n)
          const Dim piece = (rows + threads - 1) / threads;
          parallel_ranges(threads, threads, rows * n * 8, [&](Dim begin, Dim end) {
            for (Dim t = begin; t < end; ++t)
              for (Dim r = t * piece; r < std::min(rows, (t + 1) * piece); ++r) {
                int32_t *first = all + t * n, *last = first + n;
                for (Dim i = 0; i < n; ++i) first[i] = static_cast<int32_t>(i);
                const T* row = x + r * n;
                std::partial_sort(first, first + count, last, [&](int32_t i, int32_t j) {
                  return comes_before(row[i], i, row[j], j, descending);
                });
                std::copy(first, first + count, y + r * count);
              }
          });
        },
        share * threads);
  });
}

}  // namespace pl::cpu
