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

// The product of all elements along an axis, which stays as 1: halves with halves.
Tensor product(Tensor x, int64_t axis) {
  Dim n = x.shape()[static_cast<int>(axis)];
  if (n == 0) throw UserError("[prod] expected at least one element along each axis");
  Tensor left_over;
  while (n > 1) {
    if (n % 2) {
      const Tensor last = pl::slice(x, axis, n - 1, 1);
      left_over = left_over.defined() ? pl::multiply(left_over, last) : last;
    }
    n /= 2;
    x = pl::multiply(pl::slice(x, axis, 0, n), pl::slice(x, axis, n, n));
  }
  return left_over.defined() ? pl::multiply(x, left_over) : x;
}

// f over an axis, which is moved to the end for it.
template <class F>
Tensor along(const char* op, const Tensor& x, int64_t axis, const F& f) {
  const int rank = x.shape().rank();
  axis = axis_of(op, axis, rank);
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
  return reduce_sum(number(x), axis.list, keepdims);
}
Tensor mean(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("mean");
  return reduce_mean(real(x), axis.list, keepdims);
}
Tensor max(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("max");
  return reduce_max(number(x), axis.list, keepdims);
}
Tensor min(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("min");
  return -reduce_max(-number(x), axis.list, keepdims);
}
Tensor prod(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("prod");
  const std::vector<int64_t> axes = axes_of("prod", axis, x.shape().rank());
  Tensor result = number(x);
  for (int64_t one : axes) result = product(result, one);
  return keepdims ? result : drop(result, axes);
}
Tensor var(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("var");
  const Tensor in = real(x);
  return reduce_mean(pl::square(pl::subtract(in, reduce_mean(in, axis.list, true))), axis.list,
                     keepdims);
}
Tensor std(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("std");
  return pl::sqrt(var(x, axis, keepdims));
}
Tensor logsumexp(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("logsumexp");
  const Tensor in = real(x);
  const std::vector<int64_t> axes = axes_of("logsumexp", axis, in.shape().rank());
  const Tensor most = ops::stop_gradient(reduce_max(in, axes, true));
  const Tensor base = where(isfinite(most), most, 0.0);
  const Tensor total =
      pl::add(pl::log(reduce_sum(pl::exp(pl::subtract(in, base)), axes, true)), base);
  return keepdims ? total : drop(total, axes);
}
Tensor norm(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("norm");
  return pl::sqrt(reduce_sum(pl::square(real(x)), axis.list, keepdims));
}
Tensor any(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("any");
  const Tensor flags = pl::cast(pl::cast(x, Dtype::boolean), Dtype::float32);
  return pl::cast(reduce_max(flags, axis.list, keepdims), Dtype::boolean);
}
Tensor all(const Tensor& x, const Axis& axis, bool keepdims) {
  const WordScope word("all");
  return !any(!x, axis, keepdims);
}
Tensor count_nonzero(const Tensor& x, const Axis& axis) {
  const WordScope word("count_nonzero");
  return reduce_sum(pl::cast(pl::cast(x, Dtype::boolean), Dtype::int32), axis.list);
}

// In log2(n) steps: each adds what lies 1, 2, 4, ... in front.
Tensor cumsum(const Tensor& x, int64_t axis) {
  const WordScope word("cumsum");
  Tensor total = number(x);
  axis = axis_of("cumsum", axis, x.shape().rank());
  const Dim n = x.shape()[static_cast<int>(axis)];
  for (Dim back = 1; back < n; back *= 2)
    total = pl::add(total, slice_gradient(pl::slice(total, axis, 0, n - back), axis, back, n));
  return total;
}

Tensor argmax(const Tensor& x, std::optional<int64_t> axis, bool keepdims) {
  const WordScope word("argmax");
  if (!axis) {
    const Tensor flat = argmax(pl::reshape(x, {-1}), 0);
    return keepdims ? pl::reshape(flat, std::vector<Dim>(x.shape().dims().size(), 1)) : flat;
  }
  const Tensor in = number(x);
  const int rank = in.shape().rank();
  const int64_t at = axis_of("argmax", *axis, rank);
  const Dim n = in.shape()[static_cast<int>(at)];
  constexpr Dim kCounted = Dim{1} << 24;  // by float32
  const Dtype dtype = n < kCounted ? Dtype::float32 : Dtype::float64;
  const Tensor found = pl::cast(equal_mask(in, reduce_max(in, {at}, true)), dtype);
  std::vector<Dim> places(static_cast<size_t>(rank - at), 1);
  places[0] = n;
  // n, n - 1, ..., 1 along the axis: the largest of those found is the first.
  const Tensor rest = scale(pl::reshape(arange(n, dtype), places), -1, static_cast<double>(n));
  const Tensor first = reduce_max(pl::multiply(found, rest), {at}, keepdims);
  return pl::cast(scale(first, -1, static_cast<double>(n)), Dtype::int32);
}
Tensor argmin(const Tensor& x, std::optional<int64_t> axis, bool keepdims) {
  const WordScope word("argmin");
  return argmax(-number(x), axis, keepdims);
}

Tensor matmul(const Tensor& a, const Tensor& b) {
  const WordScope word("matmul");
  const Dtype dtype = common_dtype(Operand(a), Operand(b));
  Tensor x = pl::cast(a, is_floating(dtype) ? dtype : Dtype::float32);
  Tensor y = pl::cast(b, x.dtype());
  const bool row = x.shape().rank() == 1, column = y.shape().rank() == 1;
  if (x.shape().rank() < 1 || y.shape().rank() < 1)
    throw UserError("[matmul] expected vectors or matrices, received " + a.meta().text() + " and " +
                    b.meta().text());
  if (row) x = expand_dims(x, 0);
  if (column) y = expand_dims(y, 1);
  Tensor result;
  if (y.shape().rank() == 2) {
    result = pl::matmul(x, y);
  } else {
    // One matrix for each: a's leading dimensions are b's, or stretch to them.
    Shape lead;
    if (!broadcast_shapes(Shape(leading(x.shape())), Shape(leading(y.shape())), &lead))
      throw UserError("[matmul] expected leading dimensions that broadcast, received " +
                      a.meta().text() + " and " + b.meta().text());
    std::vector<Dim> whole = lead.dims();
    whole.insert(whole.end(), {x.shape()[x.shape().rank() - 2], y.shape().back()});
    expect_result({x.dtype(), Shape(std::move(whole))}, {x, y});
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
  return ops::matmul(a, b);
}
Tensor outer(const Tensor& a, const Tensor& b) {
  const WordScope word("outer");
  return pl::reshape(a, {-1, 1}) * pl::reshape(b, {1, -1});
}

Tensor softmax(const Tensor& x, int64_t axis) {
  const WordScope word("softmax");
  return along("softmax", real(x), axis, [](const Tensor& in) { return pl::softmax(in); });
}
Tensor log_softmax(const Tensor& x, int64_t axis) {
  const WordScope word("log_softmax");
  return along("log_softmax", real(x), axis, [](const Tensor& in) { return pl::log_softmax(in); });
}
Tensor normalize(const Tensor& x, int64_t axis, double epsilon) {
  const WordScope word("normalize");
  const Tensor in = real(x), squares = reduce_sum(pl::square(in), {axis}, true);
  return pl::divide(in, pl::sqrt(maximum(squares, epsilon * epsilon)));
}

}  // namespace pl::ops
