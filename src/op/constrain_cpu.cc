// CPU kernel of constrain. Lengths are summed in float64, a block of neighbouring vectors at a
// time, which lies in cache when it is scaled.
#include <algorithm>
#include <cmath>

#include "backend/cpu/parallel.h"
#include "op/constrain.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

// w as (outer, along, inner): vectors have `along` elements, `inner` apart.
struct Form {
  Dim outer = 1, along = 1, inner = 1;
  double least, most, rate;
};

Form form_of(const Meta& meta, const Attrs& attrs) {
  const std::vector<int64_t>& axes = attrs.list("axes");
  const int64_t rank = meta.shape.rank();
  int64_t first = rank, last = -1;
  for (int64_t axis : axes) {
    first = std::min(first, axis < 0 ? axis + rank : axis);
    last = std::max(last, axis < 0 ? axis + rank : axis);
  }
  Form f{.least = attrs.real("least", 0),
         .most = attrs.real("most", 1),
         .rate = attrs.real("rate", 1)};
  for (int axis = 0; axis < rank; ++axis)
    (axis < first ? f.outer : axis > last ? f.inner : f.along) *= meta.shape[axis];
  return f;
}

constexpr Dim kBlock = 64;  // vectors

template <class T>
void run_block(const Form& f, const T* w, T* out, Dim count) {
  double sums[kBlock] = {};
  T factors[kBlock];
  for (Dim i = 0; i < f.along; ++i)
    for (Dim v = 0; v < count; ++v) {
      const auto x = static_cast<double>(w[i * f.inner + v]);
      sums[v] += x * x;
    }
  for (Dim v = 0; v < count; ++v) {
    const double length = std::sqrt(sums[v]);
    // A NaN goes through every comparison.
    const double clipped = length < f.least ? f.least : length > f.most ? f.most : length;
    const double wanted = f.rate * clipped + (1 - f.rate) * length;
    factors[v] = static_cast<T>(wanted / (1e-7 + length));
  }
  for (Dim i = 0; i < f.along; ++i)
    for (Dim v = 0; v < count; ++v) out[i * f.inner + v] = w[i * f.inner + v] * factors[v];
}

template <class T>
std::unique_ptr<Kernel> norm_kernel(const Form& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const Dim blocks = (f.inner + kBlock - 1) / kBlock, total = f.outer * f.along * f.inner;
    parallel_ranges(threads, total > 0 ? f.outer * blocks : 0, total * 2, [&](Dim begin, Dim end) {
      for (Dim b = begin; b < end; ++b) {
        const Dim first = b % blocks * kBlock, at = b / blocks * f.along * f.inner + first;
        run_block(f, static_cast<const T*>(in[0]) + at, static_cast<T*>(out[0]) + at,
                  std::min(kBlock, f.inner - first));
      }
    });
  });
}

template <class T>
std::unique_ptr<Kernel> sign_kernel(Dim total, int threads) {
  return make_kernel([total, threads](void* const* in, void* const* out, void*) {
    const T* w = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out[0]);
    parallel_ranges(threads, total, total, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) y[i] = w[i] <= T(0) ? T(0) : w[i];
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> constrain_reference(const PrepareCall& call) {
  const int threads = call.backend.threads();
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return call.attrs.text("kind") == "non_neg"
               ? sign_kernel<T>(call.in[0].elements(), threads)
               : norm_kernel<T>(form_of(call.in[0], call.attrs), threads);
  });
}

}  // namespace pl::cpu
