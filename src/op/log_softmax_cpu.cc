// CPU kernel of log_softmax. A row is read twice before it is written, so that an output may lie on
// its input; exponentials go through a small tile.
#include <algorithm>
#include <cmath>
#include <type_traits>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/log_softmax.h"
#include "op/pointwise.h"

namespace pl::cpu {
namespace {

constexpr Dim kTile = 256;

template <class T>
void exponentials(T* x, Dim count) {
  if constexpr (std::is_same_v<T, float>)
    unary_tile(Unary::exp, x, x, count);
  else
    for (Dim i = 0; i < count; ++i) x[i] = std::exp(x[i]);
}

template <class T>
void run_row(const T* x, T* y, Dim classes) {
  T largest = x[0];
  for (Dim c = 1; c < classes; ++c) largest = x[c] > largest || x[c] != x[c] ? x[c] : largest;
  double sum = 0;
  T tile[kTile];
  for (Dim from = 0; from < classes; from += kTile) {
    const Dim count = std::min(kTile, classes - from);
    for (Dim i = 0; i < count; ++i) tile[i] = x[from + i] - largest;
    exponentials(tile, count);
    for (Dim i = 0; i < count; ++i) sum += static_cast<double>(tile[i]);
  }
  const T log = static_cast<T>(std::log(sum));
  for (Dim c = 0; c < classes; ++c) y[c] = (x[c] - largest) - log;
}

}  // namespace

std::unique_ptr<Kernel> log_softmax_reference(const PrepareCall& call) {
  const Dim classes = call.out[0].shape.back(), rows = call.out[0].elements() / classes;
  const int threads = call.backend.threads();
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_ranges(threads, rows, rows * classes * 8, [&](Dim begin, Dim end) {
        for (Dim r = begin; r < end; ++r) run_row(x + r * classes, y + r * classes, classes);
      });
    });
  });
}

}  // namespace pl::cpu
