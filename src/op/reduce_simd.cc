// CPU kernels of the reductions, compiled once for each SIMD target. Work is cut into pieces of
// fixed size, shared out to threads and joined in a fixed order; along rows it runs in as many
// lanes whatever the vector width. So the bits depend on the shape alone. Sums of float32 run in
// float32 over a few rows and in float64 beyond.
#include "op/reduce.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/reduce_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <cmath>
#include <limits>
#include <type_traits>

#include "backend/cpu/parallel.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "op/kernel.h"
#include "op/reduce_form.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// The larger or the smaller of two; b where b is NaN.
#if HWY_TARGET == HWY_SCALAR
template <bool larger, class V>
HWY_INLINE V extreme_of(V a, V b) {
  return hn::IfThenElse(larger ? hn::Gt(a, b) : hn::Lt(a, b), a, b);
}
#else
template <bool larger, class V>
HWY_INLINE V extreme_of(V a, V b) {
  return larger ? hn::Max(a, b) : hn::Min(a, b);
}
#endif
#include "op/reduce_rules-inl.h"

// ---- along rows

template <class T>
using Lanes = hn::CappedTag<T, 64 / sizeof(T)>;

// Lane l with lane l + half of them, until one is left.
template <class Join, class D>
HWY_INLINE hn::TFromD<D> join_lanes(D, hn::Vec<D> v) {
#if HWY_TARGET != HWY_SCALAR
  if constexpr (hn::MaxLanes(D()) > 1) {
    const hn::Half<D> half;
    return join_lanes<Join>(half, Join::join(half, hn::LowerHalf(half, v), hn::UpperHalf(half, v)));
  }
#endif
  return hn::GetLane(v);
}

// One piece each of `count` outputs: pieces[i] lies at from[i], all have as many elements. Several
// at a time keep the processor busy while it waits for a sum.
template <class R, int count>
HWY_INLINE void join_pieces(const ReduceForm& f, const typename R::In* const* from,
                            const ReducePiece* pieces, typename R::Total* result) {
  using T = typename R::Total;
  using Join = typename R::Join;
  using In = typename R::In;
  const Lanes<T> d;
  constexpr auto kWidth = static_cast<Dim>(hn::MaxLanes(Lanes<T>()));
  constexpr Dim kLanes = Join::kBytes / sizeof(T);
  constexpr int kParts = static_cast<int>(kLanes / kWidth);
  hn::Vec<Lanes<T>> total[count][kParts];
  for (auto& parts : total)
    for (auto& part : parts) part = hn::Set(d, Join::template start<T>);
  const Dim n = pieces[0].count;
  for (Dim row = 0; row < pieces[0].rows; ++row) {
    const In* x[count];
    for (int i = 0; i < count; ++i)
      x[i] = from[i] + f.rows.offset(pieces[i].row + row) + pieces[i].begin;
    Dim j = 0;
    for (; j + kLanes <= n; j += kLanes)
      for (int p = 0; p < kParts; ++p)
        for (int i = 0; i < count; ++i)
          total[i][p] = Join::join(d, total[i][p], R::term(load(d, x[i] + j + p * kWidth)));
    for (int p = 0; p < kParts && j < n; ++p, j += kWidth) {
      const Dim left = std::min(kWidth, n - j);
      for (int i = 0; i < count; ++i) {
        In some[kWidth] = {};
        if (left < kWidth) std::copy_n(x[i] + j, left, some);
        const auto last = load(d, left < kWidth ? some : x[i] + j);
        const auto joined = Join::join(d, total[i][p], R::term(last));
        const auto there = hn::FirstN(d, static_cast<size_t>(left));
        total[i][p] = hn::IfThenElse(there, joined, total[i][p]);
      }
    }
  }
  for (int i = 0; i < count; ++i) {
    for (int half = kParts / 2; half > 0; half /= 2)
      for (int p = 0; p < half; ++p) total[i][p] = Join::join(d, total[i][p], total[i][p + half]);
    result[i] = join_lanes<Join>(d, total[i][0]);
  }
}

template <class R, class Out>
HWY_INLINE void along_rows(const ReduceForm& f, const typename R::In* x, Out* y,
                           typename R::Total* parts, Dim begin, Dim end) {
  constexpr int kTogether = 256 / R::Join::kBytes;
  Dim output = begin / f.pieces, p = begin % f.pieces;  // of the task
  for (Dim task = begin; task < end;) {
    const typename R::In* from[kTogether];
    ReducePiece pieces[kTogether];
    typename R::Total result[kTogether];
    int alike = 0;
    Dim next_output = output, next = p;
    for (; alike < kTogether && task + alike < end; ++alike) {
      pieces[alike] = f.piece(next);
      if (pieces[alike].rows != pieces[0].rows || pieces[alike].count != pieces[0].count) break;
      from[alike] = x + f.kept.offset(next_output);
      if (++next == f.pieces) next = 0, ++next_output;
    }
    const int taken = alike == kTogether ? kTogether : 1;
    if (taken == kTogether)
      join_pieces<R, kTogether>(f, from, pieces, result);
    else
      join_pieces<R, 1>(f, from, pieces, result);
    for (int i = 0; i < taken; ++i, ++task) {
      if (f.pieces == 1)
        y[task] = element<Out>(R::end(result[i]));
      else
        parts[task] = result[i];
      if (++p == f.pieces) p = 0, ++output;
    }
  }
}

// Elements first, first + step, ... of a row of n, joined as the lanes of a longer row are.
template <class R, Dim n, Dim first = 0, Dim step = 1>
HWY_INLINE hn::Vec<hn::CappedTag<typename R::Total, 1>> join_few(const typename R::In* x) {
  const hn::CappedTag<typename R::Total, 1> d;
  if constexpr (first + step >= n)
    return R::term(load(d, x + first));
  else
    return R::Join::join(d, join_few<R, n, first, 2 * step>(x),
                         join_few<R, n, first + step, 2 * step>(x));
}

constexpr Dim kFew = 16;  // elements of a row that is joined without lanes, at most

// Outputs [begin, end) of rows of 1 to kFew elements, one behind another.
template <class R, class Out, Dim n = kFew>
void along_short_rows(const ReduceForm& f, const typename R::In* x, Out* y, Dim begin, Dim end) {
  static_assert(kFew <= 2 * R::Join::kBytes / sizeof(typename R::Total));  // two meet in a lane
  if constexpr (n > 1)
    if (f.inner < n) return along_short_rows<R, Out, n - 1>(f, x, y, begin, end);
  const hn::CappedTag<typename R::Total, 1> d;
  const auto start = hn::Set(d, R::Join::template start<typename R::Total>);
  for (Dim i = begin; i < end; ++i) {
    const auto total = R::Join::join(d, start, join_few<R, n>(x + i * n));
    y[i] = element<Out>(R::end(hn::GetLane(total)));
  }
}

// ---- along columns

constexpr Dim kShort = 32;   // rows joined as Part before they join the totals
constexpr Dim kVector = 16;  // numbers of a vector at most

// One row or eight, pairs first, by vectors of D from column j on. Returns the first column left.
// Rows `ahead` elements further on are asked for where vectors are whole: sums wait less for
// memory.
template <class R, class D>
HWY_INLINE Dim join_rows(D d, const typename R::In* const* x, Dim ahead, Dim rows, Dim j, Dim width,
                         typename R::Part* part) {
  using Join = typename R::Join;
  const auto step = static_cast<Dim>(hn::Lanes(d));
  if (rows == 1) {
    for (; j + step <= width; j += step)
      hn::StoreU(Join::join(d, hn::LoadU(d, part + j), R::term(load(d, x[0] + j))), d, part + j);
    return j;
  }
  for (; j + step <= width; j += step) {
    hn::Vec<D> terms[8];
    for (int i = 0; i < 8; ++i) {
      terms[i] = R::term(load(d, x[i] + j));
      if constexpr (hn::MaxLanes(D()) == hn::MaxLanes(Lanes<typename R::Part>()))
        hwy::Prefetch(x[i] + j + ahead);
    }
    for (int i = 0; i < 8; i += 2) terms[i] = Join::join(d, terms[i], terms[i + 1]);
    for (int i = 0; i < 8; i += 4) terms[i] = Join::join(d, terms[i], terms[i + 2]);
    const auto all = Join::join(d, terms[0], terms[4]);
    hn::StoreU(Join::join(d, hn::LoadU(d, part + j), all), d, part + j);
  }
  return j;
}

// All columns from j on: the last by vectors of half as many lanes, and so on.
template <class R, size_t lanes>
HWY_INLINE void join_width(const typename R::In* const* x, Dim ahead, Dim rows, Dim j, Dim width,
                           typename R::Part* part) {
  const hn::CappedTag<typename R::Part, lanes> d;
  j = join_rows<R>(d, x, ahead, rows, j, width, part);
  if constexpr (lanes > 1)
    if (j < width) join_width<R, lanes / 2>(x, ahead, rows, j, width, part);
}

// part[j] joins element j of `count` rows; eight at a time, since a pass over `part` costs as much
// as a pass over a row.
template <class R>
HWY_INLINE void join_short(const typename R::In* const* x, Dim ahead, Dim count, Dim width,
                           typename R::Part* part) {
  using T = typename R::Part;
  using Join = typename R::Join;
  std::fill_n(part, align_up(width, kVector), Join::template start<T>);
  for (Dim r = 0; r < count;) {
    const Dim rows = r + 8 <= count ? 8 : 1;
    join_width<R, hn::MaxLanes(Lanes<T>())>(x + r, ahead, rows, 0, width, part);
    r += rows;
  }
}

template <class R, class Out>
HWY_INLINE void along_columns(const ReduceForm& f, const typename R::In* x, Out* y,
                              typename R::Total* parts, Dim begin, Dim end) {
  using T = typename R::Total;
  for (Dim task = begin; task < end; ++task) {
    const Dim column = task % f.blocks * f.columns, p = task / f.blocks % f.pieces;
    const Dim output = task / f.blocks / f.pieces;
    const Dim width = std::min(f.columns, f.inner - column);
    const ReducePiece piece = f.piece(p);
    const typename R::In* from = x + f.kept.offset(output) + column;
    // Rows lie `step` apart until their innermost axis ends.
    const Dim step = f.rows.strides.empty() ? 0 : f.rows.strides.back();
    const Dim run = f.rows.sizes.empty() ? 1 : f.rows.sizes.back();
    const typename R::In* next = from;
    Dim left = 0;
    const Lanes<T> d;
    T totals[ReduceForm::kColumns];  // whole vectors of them, whatever the width
    typename R::Part part[ReduceForm::kColumns];
    std::fill_n(totals, align_up(width, kVector), R::Join::template start<T>);
    for (Dim r = 0; r < piece.rows; r += kShort) {
      const typename R::In* rows[kShort];
      const Dim count = std::min(kShort, piece.rows - r);
      for (Dim i = 0; i < count;) {
        if (left == 0) {
          const Dim row = piece.row + r + i;
          next = from + f.rows.offset(row);
          left = run - row % run;
        }
        const Dim together = std::min(left, count - i);
        for (Dim k = 0; k < together; ++k) rows[i + k] = next + k * step;
        i += together;
        next += together * step;
        left -= together;
      }
      join_short<R>(rows, 16 * step, count, width, part);
      for (Dim j = 0; j < width; j += static_cast<Dim>(hn::Lanes(d)))
        hn::StoreU(R::Join::join(d, hn::LoadU(d, totals + j), load(d, part + j)), d, totals + j);
    }
    if (f.pieces == 1) {
      Out* to = y + output * f.inner + column;
      for (Dim j = 0; j < width; ++j) to[j] = element<Out>(R::end(totals[j]));
    } else {
      std::copy_n(totals, width, parts + (output * f.pieces + p) * f.inner + column);
    }
  }
}

// ---- both

template <class R, class Out>
HWY_INLINE void join_parts(const ReduceForm& f, typename R::Total* parts, Out* y) {
  using Join = typename R::Join;
  const Dim width = f.runs ? 1 : f.inner;
  for (Dim o = 0; o < f.kept.count; ++o) {
    auto* own = parts + o * f.pieces * width;
    // Rows: neighbours first, then pairs of pairs; errors grow with the logarithm of the count.
    if (f.runs) {
      for (Dim step = 1; step < f.pieces; step *= 2)
        for (Dim i = 0; i + step < f.pieces; i += 2 * step)
          own[i] = Join::join(own[i], own[i + step]);
    } else {
      for (Dim p = 1; p < f.pieces; ++p)
        for (Dim j = 0; j < width; ++j) own[j] = Join::join(own[j], own[p * width + j]);
    }
    for (Dim j = 0; j < width; ++j) y[o * width + j] = element<Out>(R::end(own[j]));
  }
}

// Tasks [begin, end); with end < 0 what is left to do behind all of them.
template <class R, class Out = typename R::In>
void reduce_as(const ReduceForm& f, const void* in, void* out, void* parts, Dim begin, Dim end) {
  const auto* x = static_cast<const typename R::In*>(in);
  auto* y = static_cast<Out*>(out);
  auto* totals = static_cast<typename R::Total*>(parts);
  if (end < 0)
    join_parts<R>(f, totals, y);
  else if (f.runs && f.rows.count == 1 && f.inner > 0 && f.inner <= kFew)
    along_short_rows<R>(f, x, y, begin, end);
  else if (f.runs)
    along_rows<R>(f, x, y, totals, begin, end);
  else
    along_columns<R>(f, x, y, totals, begin, end);
}

using Reduce = void (*)(const ReduceForm&, const void*, void*, void*, Dim, Dim);
template <template <class> class R>
Reduce of_number(Dtype dtype) {
  switch (dtype) {
    case Dtype::float32:
      return reduce_as<R<float>>;
    case Dtype::float64:
      return reduce_as<R<double>>;
    case Dtype::int32:
      return reduce_as<R<int32_t>>;
    case Dtype::int64:
      return reduce_as<R<int64_t>>;
    default:
      return nullptr;
  }
}
// Null: not of these dtypes.
Reduce reduction_of(Reduction kind, Dtype in, Dtype out) {
  if (in == Dtype::bfloat16 && kind == Reduction::sum)
    return out == Dtype::float32 ? reduce_as<Sum<Bfloat16>, float> : reduce_as<Sum<Bfloat16>>;
  if (in != out) return nullptr;
  switch (kind) {
    case Reduction::sum:
      return of_number<Sum>(in);
    case Reduction::max:
      return of_number<Largest>(in);
    case Reduction::min:
      return of_number<Smallest>(in);
    case Reduction::prod:
      return of_number<Product>(in);
    case Reduction::norm:
      return in == Dtype::float32   ? reduce_as<Norm<float>>
             : in == Dtype::float64 ? reduce_as<Norm<double>>
                                    : nullptr;
  }
  return nullptr;
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(reduction_of);

namespace {

std::unique_ptr<Kernel> reduction(const PrepareCall& call, Reduction kind) {
  const Dtype in = call.in[0].dtype;
  const auto run = HWY_DYNAMIC_DISPATCH(reduction_of)(kind, in, call.out[0].dtype);
  if (!run) return nullptr;
  const int threads = call.backend.threads();
  ReduceForm form = reduce_form(call);
  const Dim work = call.in[0].elements();
  // Totals of a number are as wide as it, but for float64 ones of float32 and less.
  const bool extreme = kind == Reduction::max || kind == Reduction::min;
  const Bytes total = in == Dtype::int32 || extreme ? size_of(in) : 8;
  const Dim totals = form.kept.count * form.pieces * (form.runs ? 1 : form.inner);
  const size_t axes = form.kept.sizes.size() + form.rows.sizes.size();
  const Bytes workspace_bytes = form.pieces > 1 ? totals * total : 0;
  auto kernel = make_kernel(
      [=, f = std::move(form)](void* const* in, void* const* out, void* workspace) {
        parallel_ranges(threads, f.tasks(), work,
                        [&](Dim begin, Dim end) { run(f, in[0], out[0], workspace, begin, end); });
        if (f.pieces > 1) run(f, nullptr, out[0], workspace, 0, -1);
      },
      workspace_bytes);
  kernel->footprint += static_cast<Bytes>(axes * 2 * sizeof(Dim));
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> reduce_sum_tiled(const PrepareCall& call) {
  return reduction(call, Reduction::sum);
}
std::unique_ptr<Kernel> reduce_max_tiled(const PrepareCall& call) {
  return reduction(call, Reduction::max);
}
std::unique_ptr<Kernel> reduce_min_tiled(const PrepareCall& call) {
  return reduction(call, Reduction::min);
}
std::unique_ptr<Kernel> reduce_prod_tiled(const PrepareCall& call) {
  return reduction(call, Reduction::prod);
}
std::unique_ptr<Kernel> reduce_norm_tiled(const PrepareCall& call) {
  return reduction(call, Reduction::norm);
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
