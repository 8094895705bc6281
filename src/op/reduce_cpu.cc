// CPU kernels of the reductions. Work is cut into pieces of fixed size, shared out to threads and
// joined in a fixed order, so that the bits depend on the shape alone. Sums of float32 run in
// float32 over a few rows and in float64 beyond.
#include <algorithm>
#include <limits>
#include <type_traits>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/reduce.h"
#include "op/widen.h"

namespace pl::cpu {
namespace {

template <class T>
struct Sum {
  using Total = std::conditional_t<std::is_floating_point_v<T>, double, T>;
  static constexpr T start = T(0);
  static constexpr bool several_rows = true;
  template <class U>
  static U join(U a, U b) {
    if constexpr (std::is_integral_v<U>) {
      using W = std::make_unsigned_t<U>;  // integers wrap
      return static_cast<U>(static_cast<W>(a) + static_cast<W>(b));
    } else {
      return a + b;
    }
  }
};

template <class T>
struct Max {
  using Total = T;
  static constexpr bool several_rows = false;  // nested selections would not vectorise
  static constexpr T start = std::is_floating_point_v<T> ? -std::numeric_limits<T>::infinity()
                                                         : std::numeric_limits<T>::lowest();
  // `|` rather than `||`: without branches the loops vectorise.
  static T join(T a, T b) { return (a > b) | (a != a) ? a : b; }
};

constexpr Dim kRun = 4096;     // elements of a contiguous piece, rows of a column piece
constexpr Dim kColumns = 512;  // columns of a piece at most: long runs of a row are read at the
                               // speed of memory, short ones are not
constexpr Dim kShort = 32;     // rows summed in T before they join the totals

// x seen as (outer, reduced, inner). False when the reduced axes are not neighbours.
struct Form {
  Dim outer = 1, reduced = 1, inner = 1;
};

bool form_of(const PrepareCall& call, Form* form) {
  const Shape& x = call.in[0].shape;
  const auto& axes = call.attrs.list("axes");
  int state = 0;  // 0: before, 1: in, 2: after the reduced axes
  for (int axis = 0; axis < x.rank(); ++axis) {
    if (x[axis] == 1) continue;
    const bool reduced = std::binary_search(axes.begin(), axes.end(), axis);
    if (reduced && state == 2) return false;
    if (reduced) state = 1;
    if (!reduced && state == 1) state = 2;
    (state == 0 ? form->outer : state == 1 ? form->reduced : form->inner) *= x[axis];
  }
  return true;
}

// An element as a total, and back.
template <class Total, class In>
Total number(In x) {
  if constexpr (std::is_same_v<In, Bfloat16>)
    return static_cast<Total>(static_cast<float>(x));
  else
    return static_cast<Total>(x);
}
template <class Out, class Total>
Out element(Total x) {
  if constexpr (std::is_same_v<Out, Bfloat16>)
    return Bfloat16(static_cast<float>(x));
  else
    return static_cast<Out>(x);
}

// Joins x[0, n) in eight lanes.
template <class R, class In>
typename R::Total join_run(const In* x, Dim n) {
  using Total = typename R::Total;
  Total lanes[8];
  for (Total& lane : lanes) lane = R::start;
  Dim i = 0;
  for (; i + 8 <= n; i += 8)
    for (Dim l = 0; l < 8; ++l) lanes[l] = R::join(lanes[l], number<Total>(x[i + l]));
  for (; i < n; ++i) lanes[i % 8] = R::join(lanes[i % 8], number<Total>(x[i]));
  for (Dim half = 4; half > 0; half /= 2)
    for (Dim l = 0; l < half; ++l) lanes[l] = R::join(lanes[l], lanes[l + half]);
  return lanes[0];
}

// Neighbours first, then pairs of pairs: errors grow with the logarithm of the count.
template <class R, class Total>
Total join_pairwise(Total* parts, Dim count) {
  for (Dim step = 1; step < count; step *= 2)
    for (Dim i = 0; i + step < count; i += 2 * step) parts[i] = R::join(parts[i], parts[i + step]);
  return parts[0];
}

// (outer, reduced) -> (outer,).
template <class R, class In, class Out>
std::unique_ptr<Kernel> along_runs(const Form& f, int threads) {
  using Total = typename R::Total;
  const Dim pieces = std::max<Dim>(1, (f.reduced + kRun - 1) / kRun);
  const Bytes workspace = pieces > 1 ? f.outer * pieces * static_cast<Bytes>(sizeof(Total)) : 0;
  return make_kernel(
      [f, threads, pieces](void* const* in, void* const* out, void* workspace) {
        const In* x = static_cast<const In*>(in[0]);
        Out* y = static_cast<Out*>(out[0]);
        Total* parts = static_cast<Total*>(workspace);
        parallel_ranges(threads, f.outer * pieces, f.outer * f.reduced, [&](Dim begin, Dim end) {
          for (Dim task = begin; task < end; ++task) {
            const Dim first = task % pieces * kRun;
            const Dim count = std::min(kRun, f.reduced - first);
            const Total part = join_run<R>(x + task / pieces * f.reduced + first, count);
            if (pieces == 1)
              y[task] = element<Out>(part);
            else
              parts[task] = part;
          }
        });
        if (pieces == 1) return;
        for (Dim o = 0; o < f.outer; ++o)
          y[o] = element<Out>(join_pairwise<R>(parts + o * pieces, pieces));
      },
      workspace);
}

// part[j] joins column j of `rows` rows; eight rows at a time, since a pass over `part` costs as
// much as a pass over a row.
template <class R, class T>
void join_short(const T* x, Dim rows, Dim stride, Dim width, T* part) {
  for (Dim j = 0; j < width; ++j) part[j] = R::start;
  Dim r = 0;
  for (; R::several_rows && r + 8 <= rows; r += 8) {
    const T* p = x + r * stride;
#pragma omp simd
    for (Dim j = 0; j < width; ++j) {
      const T a =
          R::join(R::join(p[j], p[stride + j]), R::join(p[2 * stride + j], p[3 * stride + j]));
      const T b = R::join(R::join(p[4 * stride + j], p[5 * stride + j]),
                          R::join(p[6 * stride + j], p[7 * stride + j]));
      part[j] = R::join(part[j], R::join(a, b));
    }
  }
  for (; r < rows; ++r) {
    const T* p = x + r * stride;
#pragma omp simd
    for (Dim j = 0; j < width; ++j) part[j] = R::join(part[j], p[j]);
  }
}

// The same for elements that are widened first.
template <class R>
void join_short(const Bfloat16* x, Dim rows, Dim stride, Dim width, float* part) {
  float block[kShort * kColumns];
  widen_rows(x, rows, stride, width, block);
  join_short<R>(block, rows, width, width, part);
}

// Columns of a piece, so that every thread gets one. Each column is summed by itself: bits do not
// depend on it.
Dim columns_of(const Form& f, Dim pieces, int threads) {
  constexpr Dim kLeast = 64;
  const Dim wanted = f.outer * pieces >= threads ? f.inner : (f.inner + threads - 1) / threads;
  return std::clamp((wanted + kLeast - 1) / kLeast * kLeast, kLeast, kColumns);
}

// (outer, reduced, inner) -> (outer, inner).
template <class R, class In, class Out>
std::unique_ptr<Kernel> along_columns(const Form& f, int threads) {
  using Total = typename R::Total;
  using Element = std::conditional_t<std::is_same_v<In, Bfloat16>, float, In>;
  const Dim pieces = std::max<Dim>(1, (f.reduced + kRun - 1) / kRun);
  const Dim columns = columns_of(f, pieces, threads);
  const Bytes workspace =
      pieces > 1 ? f.outer * pieces * f.inner * static_cast<Bytes>(sizeof(Total)) : 0;
  return make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const In* x = static_cast<const In*>(in[0]);
        Out* y = static_cast<Out*>(out[0]);
        Total* parts = static_cast<Total*>(workspace);  // (outer, pieces, inner)
        const Dim blocks = (f.inner + columns - 1) / columns;
        const Dim tasks = f.outer * pieces * blocks;
        parallel_ranges(threads, tasks, f.outer * f.reduced * f.inner, [&](Dim begin, Dim end) {
          for (Dim task = begin; task < end; ++task) {
            const Dim column = task % blocks * columns, piece = task / blocks % pieces;
            const Dim outer = task / blocks / pieces;
            const Dim width = std::min(columns, f.inner - column);
            const Dim last = std::min((piece + 1) * kRun, f.reduced);
            Total totals[kColumns];
            Element part[kColumns];
            for (Dim j = 0; j < width; ++j) totals[j] = R::start;
            for (Dim r = piece * kRun; r < last; r += kShort) {
              join_short<R>(x + (outer * f.reduced + r) * f.inner + column,
                            std::min(kShort, last - r), f.inner, width, part);
              for (Dim j = 0; j < width; ++j)
                totals[j] = R::join(totals[j], static_cast<Total>(part[j]));
            }
            if (pieces == 1) {
              Out* to = y + outer * f.inner + column;
              for (Dim j = 0; j < width; ++j) to[j] = element<Out>(totals[j]);
            } else {
              std::copy_n(totals, width, parts + (outer * pieces + piece) * f.inner + column);
            }
          }
        });
        if (pieces == 1) return;
        for (Dim o = 0; o < f.outer; ++o) {
          Total* first = parts + o * pieces * f.inner;
          for (Dim p = 1; p < pieces; ++p)
            for (Dim j = 0; j < f.inner; ++j) first[j] = R::join(first[j], first[p * f.inner + j]);
          for (Dim j = 0; j < f.inner; ++j) y[o * f.inner + j] = element<Out>(first[j]);
        }
      },
      workspace);
}

template <class R, class In, class Out = In>
std::unique_ptr<Kernel> tiled(const PrepareCall& call) {
  Form form;
  if (call.in[0].elements() == 0 || !form_of(call, &form)) return nullptr;
  const int threads = call.backend.threads();
  return form.inner == 1 ? along_runs<R, In, Out>(form, threads)
                         : along_columns<R, In, Out>(form, threads);
}

// Some axes of x: where the k-th combination of their indices lies.
struct Axes {
  std::vector<Dim> sizes, strides;
  Dim count = 1;
  void add(Dim size, Dim stride) {
    sizes.push_back(size);
    strides.push_back(stride);
    count *= size;
  }
  Dim offset(Dim k) const {
    Dim offset = 0;
    for (size_t d = sizes.size(); d-- > 0;) {
      offset += k % sizes[d] * strides[d];
      k /= sizes[d];
    }
    return offset;
  }
};

// One output after another, its inputs in row-major order.
template <class R, class T>
std::unique_ptr<Kernel> reference(const PrepareCall& call) {
  const Shape& x_shape = call.in[0].shape;
  const auto& axes = call.attrs.list("axes");
  Axes kept, reduced;
  Dim stride = call.in[0].elements();
  for (int axis = 0; axis < x_shape.rank(); ++axis) {
    if (x_shape[axis] > 0) stride /= x_shape[axis];
    const bool reduce = std::binary_search(axes.begin(), axes.end(), axis);
    (reduce ? reduced : kept).add(x_shape[axis], stride);
  }
  const int threads = call.backend.threads();
  auto kernel = make_kernel([=](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out[0]);
    parallel_ranges(threads, kept.count, kept.count * reduced.count, [&](Dim begin, Dim end) {
      for (Dim o = begin; o < end; ++o) {
        const T* from = x + kept.offset(o);
        typename R::Total total = R::start;
        for (Dim k = 0; k < reduced.count; ++k)
          total = R::join(total, static_cast<typename R::Total>(from[reduced.offset(k)]));
        y[o] = static_cast<T>(total);
      }
    });
  });
  kernel->footprint += static_cast<Bytes>(x_shape.rank() * 2 * sizeof(Dim));
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> reduce_sum_tiled(const PrepareCall& call) {
  if (call.in[0].dtype == Dtype::bfloat16)
    return call.out[0].dtype == Dtype::float32 ? tiled<Sum<float>, Bfloat16, float>(call)
                                               : tiled<Sum<float>, Bfloat16>(call);
  return dispatch_number(call.in[0].dtype, [&]<class T>() { return tiled<Sum<T>, T>(call); });
}
std::unique_ptr<Kernel> reduce_sum_reference(const PrepareCall& call) {
  return dispatch_number(call.in[0].dtype, [&]<class T>() { return reference<Sum<T>, T>(call); });
}
std::unique_ptr<Kernel> reduce_max_tiled(const PrepareCall& call) {
  return dispatch_number(call.in[0].dtype, [&]<class T>() { return tiled<Max<T>, T>(call); });
}
std::unique_ptr<Kernel> reduce_max_reference(const PrepareCall& call) {
  return dispatch_number(call.in[0].dtype, [&]<class T>() { return reference<Max<T>, T>(call); });
}

}  // namespace pl::cpu
