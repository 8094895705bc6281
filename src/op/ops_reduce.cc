// Functions of ops.h that reduce axes, and products.
#include <algorithm>

#include "base/error.h"
#include "op/batch_matmul.h"
#include "op/broadcast.h"
#include "op/cast.h"
#include "op/concatenate.h"
#include "op/fill.h"
#include "op/log_softmax.h"
#include "op/matmul.h"
#include "op/ops_parts.h"
#include "op/pointwise.h"
#include "op/reduce.h"
#include "op/reshape.h"
#include "op/scale.h"
#include "op/softmax.h"

namespace pl::ops {
namespace {

// Without these dimensions, which are 1.
Tensor drop(const Tensor& x, const std::vector<int64_t>& axes) {
  std::vector<Dim> dims;
  for (int d = 0; d < x.shape().rank(); ++d)
    if (std::find(axes.begin(), axes.end(), d) == axes.end()) dims.push_back(x.shape()[d]);
  return pl::reshape(x, std::move(dims));
}

// Whether nothing lies along one of the axes.
bool none_along(const Tensor& x, const std::vector<int64_t>& axes) {
  return std::any_of(axes.begin(), axes.end(),
                     [&](int64_t axis) { return x.shape()[static_cast<int>(axis)] == 0; });
}

using Reduce = Tensor (*)(const Tensor&, std::vector<int64_t>, bool);

// The largest or smallest along axes, for the word `op`.
Tensor extreme(const char* op, Reduce reduce, const Tensor& x, const std::vector<int64_t>& axes,
               bool keepdims) {
  if (none_along(x, axes))
    throw UserError("[" + std::string(op) +
                    "] expected at least one element along each axis, received " + x.meta().text());
  return reduce(x, axes, keepdims);
}

// The place of the first along an axis that `reduce` chooses, or of the first NaN.
Tensor place_of(const char* op, Reduce reduce, const Tensor& x, std::optional<int64_t> axis,
                bool keepdims) {
  if (!axis) {
    const Tensor flat = place_of(op, reduce, pl::reshape(x, {-1}), 0, false);
    return keepdims ? pl::reshape(flat, std::vector<Dim>(x.shape().dims().size(), 1)) : flat;
  }
  const Tensor in = number(x);
  const int rank = rank_of(in);
  const int64_t at = axis_of(op, *axis, rank);
  const Dim n = in.shape()[static_cast<int>(at)];
  constexpr Dim kCounted = Dim{1} << 24;  // by float32
  const Dtype dtype = n < kCounted ? Dtype::float32 : Dtype::float64;
  Tensor found = equal_mask(in, extreme(op, reduce, in, {at}, true));
  if (is_floating(in.dtype())) found = maximum(found, scale(equal_mask(in, in), -1, 1));
  std::vector<Dim> places(static_cast<size_t>(rank - at), 1);
  places[0] = n;
  // n, n - 1, ..., 1 along the axis: the largest of those found is the first.
  const Tensor rest = scale(pl::reshape(arange(n, dtype), places), -1, static_cast<double>(n));
  const Tensor first = reduce_max(pl::multiply(pl::cast(found, dtype), rest), {at}, keepdims);
  return pl::cast(scale(first, -1, static_cast<double>(n)), Dtype::int32);
}

// f over an axis, which is moved to the end for it; x itself where nothing lies along it.
template <class F>
Tensor along(const char* op, const Tensor& x, int64_t axis, const F& f) {
  const int rank = rank_of(x);
  axis = axis_of(op, axis, rank);
  if (x.shape()[static_cast<int>(axis)] == 0) return x;
  return axis == rank - 1 ? f(x) : swapaxes(f(swapaxes(x, axis, -1)), axis, -1);
}

// The shape in front of the last two dimensions.
std::vector<Dim> leading(const Shape& shape) { return {shape.begin(), shape.end() - 2}; }

}  // namespace

std::vector<int64_t> axes_of(const char* op, const Axis& axis, int rank) {
  std::vector<int64_t> axes;
  for (int64_t one : axis.list) axes.push_back(axis_of(op, one, rank));
  if (axis.list.empty())
    for (int64_t d = 0; d < rank; ++d) axes.push_back(d);
  std::sort(axes.begin(), axes.end());
  if (std::adjacent_find(axes.begin(), axes.end()) != axes.end())
    throw UserError("[" + std::string(op) + "] expected each axis once");
  return axes;
}

Tensor sum(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("sum");
  const Tensor in = number(x);
  return reduce_sum(in, axes_of("sum", axis, rank_of(in)), keepdims);
}
Tensor mean(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("mean");
  const Tensor in = real(x);
  return reduce_mean(in, axes_of("mean", axis, rank_of(in)), keepdims);
}
Tensor max(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("max");
  const Tensor in = number(x);
  return extreme("max", reduce_max, in, axes_of("max", axis, rank_of(in)), keepdims);
}
Tensor min(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("min");
  const Tensor in = number(x);
  return extreme("min", reduce_min, in, axes_of("min", axis, rank_of(in)), keepdims);
}
Tensor prod(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("prod");
  const Tensor in = number(x);
  return reduce_prod(in, axes_of("prod", axis, rank_of(in)), keepdims);
}
Tensor var(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("var");
  const Tensor in = real(x);
  const std::vector<int64_t> axes = axes_of("var", axis, rank_of(in));
  return reduce_mean(pl::square(pl::subtract(in, reduce_mean(in, axes, true))), axes, keepdims);
}
// Where all elements are equal its slope is 0, as the variance's.
Tensor std(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("std");
  const Tensor in = real(x), squares = var(in, axes_of("std", axis, rank_of(in)), keepdims);
  const Tensor none = squares == 0;
  return where(none, 0, pl::sqrt(where(none, 1, squares)));
}
Tensor logsumexp(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("logsumexp");
  const Tensor in = real(x);
  const std::vector<int64_t> axes = axes_of("logsumexp", axis, rank_of(in));
  if (none_along(in, axes)) return pl::log(reduce_sum(pl::exp(in), axes, keepdims));
  const Tensor most = ops::stop_gradient(reduce_max(in, axes, true));
  const Tensor base = where(isfinite(most), most, 0.0);
  const Tensor total =
      pl::add(pl::log(reduce_sum(pl::exp(pl::subtract(in, base)), axes, true)), base);
  return keepdims ? total : drop(total, axes);
}
Tensor norm(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("norm");
  const Tensor in = real(x);
  return reduce_norm(in, axes_of("norm", axis, rank_of(in)), keepdims);
}
Tensor any(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("any");
  const Tensor flags = pl::cast(pl::cast(x, Dtype::boolean), Dtype::int32);
  const std::vector<int64_t> axes = axes_of("any", axis, rank_of(x));
  return pl::cast(
      none_along(x, axes) ? reduce_sum(flags, axes, keepdims) : reduce_max(flags, axes, keepdims),
      Dtype::boolean);
}
Tensor all(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("all");
  return !any(!x, axes_of("all", axis, rank_of(x)), keepdims);
}
Tensor count_nonzero(const Tensor& x, const Axis& axis) {
  const WordScope word("count_nonzero");
  const Tensor flags = pl::cast(pl::cast(x, Dtype::boolean), Dtype::int32);
  return reduce_sum(flags, axes_of("count_nonzero", axis, rank_of(x)));
}

// In log2(n) steps: each adds what lies 1, 2, 4, ... in front.
Tensor cumsum(const Tensor& x, int64_t axis) {
  const WordScope word("cumsum");
  Tensor total = number(x);
  axis = axis_of("cumsum", axis, rank_of(x));
  const Dim n = x.shape()[static_cast<int>(axis)];
  for (Dim back = 1; back < n; back *= 2)
    total = pl::add(total, slice_gradient(pl::slice(total, axis, 0, n - back), axis, back, n));
  return total;
}

Tensor argmax(const Tensor& x, std::optional<int64_t> axis, bool keepdims) {
  const WordScope word("argmax");
  return place_of("argmax", reduce_max, x, axis, keepdims);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> axis, bool keepdims) {
  const WordScope word("argmin");
  return place_of("argmin", reduce_min, x, axis, keepdims);
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  const WordScope word("matmul");
  const Dtype dtype = common_dtype(Operand(a), Operand(b));
  const bool row = rank_of(a) == 1, column = rank_of(b) == 1;
  if (rank_of(a) < 1 || rank_of(b) < 1)
    throw UserError("[matmul] expected vectors or matrices, received " + a.meta().text() + " and " +
                    b.meta().text());
  Tensor x = row ? expand_dims(a, 0) : a, y = column ? expand_dims(b, 1) : b;
  Shape lead;
  if (!broadcast_shapes(Shape(leading(x.shape())), Shape(leading(y.shape())), &lead))
    throw UserError("[matmul] expected leading dimensions that broadcast, received " +
                    a.meta().text() + " and " + b.meta().text());
  std::vector<Dim> whole = lead.dims();
  whole.insert(whole.end(), {x.shape()[x.shape().rank() - 2], y.shape().back()});
  expect_result({dtype, Shape(std::move(whole))}, {x, y});
  x = pl::cast(x, dtype);
  y = pl::cast(y, dtype);
  Tensor result;
  if (y.shape().rank() == 2) {
    result = pl::matmul(x, y);
  } else {
    // One matrix for each: a's leading dimensions are b's, or stretch to them.
    auto spread = [&](const Tensor& tensor) {
      std::vector<Dim> dims = lead.dims();
      dims.insert(dims.end(), tensor.shape().end() - 2, tensor.shape().end());
      return stretch(tensor, Shape(std::move(dims)), carries_rows(x) || carries_rows(y));
    };
    result = batch_matmul(spread(x), spread(y));
  }
  if (column) result = squeeze(result, -1);
  return row ? squeeze(result, column ? -1 : -2) : result;
}
Tensor dot(const Tensor& a, const Tensor& b) {
  const WordScope word("dot");
  const bool numbers = rank_of(a) == 0 || rank_of(b) == 0;
  return numbers ? ops::multiply(a, b) : ops::matmul(a, b);
}
Tensor outer(const Tensor& a, const Tensor& b) {
  const WordScope word("outer");
  return pl::reshape(a, {-1, 1}) * pl::reshape(b, {1, -1});
}

Tensor softmax(const Tensor& x, int64_t axis) {
  const WordScope word("softmax");
  return along("softmax", real(x), axis, pl::softmax);
}
Tensor log_softmax(const Tensor& x, int64_t axis) {
  const WordScope word("log_softmax");
  return along("log_softmax", real(x), axis, pl::log_softmax);
}
Tensor normalize(const Tensor& x, int64_t axis, double epsilon) {
  const WordScope word("normalize");
  const Tensor in = real(x);
  const Tensor squares =
      reduce_sum(pl::square(in), {axis_of("normalize", axis, rank_of(in))}, true);
  return pl::divide(in, pl::sqrt(maximum(squares, epsilon * epsilon)));
}

}  // namespace pl::ops
