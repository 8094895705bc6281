// CPU kernel of sparsemax. The threshold t is found without sorting: it rises from that of all
// elements, leaving out what lies below it, until nothing does (Michelot's algorithm).
#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/sparsemax.h"

namespace pl::cpu {
namespace {

template <class T>
void run_row(const T* x, T* y, Dim classes) {
  // Relative to the largest: nothing below it by 1 or more counts.
  T largest = x[0];
  for (Dim c = 1; c < classes; ++c) largest = x[c] > largest || x[c] != x[c] ? x[c] : largest;
  double threshold = -1;
  for (Dim left = classes + 1;;) {
    double sum = 0;
    Dim count = 0;
    for (Dim c = 0; c < classes; ++c) {
      const double z = static_cast<double>(x[c]) - static_cast<double>(largest);
      if (!(z > threshold)) continue;
      sum += z;
      ++count;
    }
    if (count == 0 || count == left) break;  // 0: of NaN, which stays
    left = count;
    threshold = (sum - 1) / static_cast<double>(count);
  }
  for (Dim c = 0; c < classes; ++c) {
    const double z = static_cast<double>(x[c]) - static_cast<double>(largest) - threshold;
    y[c] = static_cast<T>(z <= 0 ? 0 : z);
  }
}

}  // namespace

std::unique_ptr<Kernel> sparsemax_reference(const PrepareCall& call) {
  const Dim classes = call.out[0].shape.back(), rows = call.out[0].elements() / classes;
  const int threads = call.backend.threads();
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_ranges(threads, rows, rows * classes * 4, [&](Dim begin, Dim end) {
        for (Dim r = begin; r < end; ++r) run_row(x + r * classes, y + r * classes, classes);
      });
    });
  });
}

}  // namespace pl::cpu
