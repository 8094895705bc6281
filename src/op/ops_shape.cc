// Functions of ops.h about shapes.
#include <algorithm>
#include <limits>

#include "base/error.h"
#include "op/broadcast.h"
#include "op/broadcast_to.h"
#include "op/cast.h"
#include "op/concatenate.h"
#include "op/fill.h"
#include "op/infer.h"
#include "op/one_hot.h"
#include "op/ops_parts.h"
#include "op/reshape.h"
#include "op/transpose.h"

namespace pl::ops {
namespace {

std::vector<int64_t> in_order(int rank) {
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < rank; ++d) axes.push_back(d);
  return axes;
}

// `value` along an axis of what x is like elsewhere.
Tensor filled_like(const Tensor& x, int64_t axis, Dim size, Number value) {
  Shape shape = x.shape();
  shape[static_cast<int>(axis)] = size;
  return fill(shape, value, x.dtype(), axis != 0 && carries_rows(x));
}

std::string text_of(const std::vector<int64_t>& list) {
  std::string text;
  for (int64_t one : list) text += (text.empty() ? "" : ", ") + std::to_string(one);
  return "{" + text + "}";
}

// One behind the other, in the dtype that all meet in.
Tensor joined(Tensors parts, int64_t axis) {
  Dtype dtype = parts[0].dtype();
  Shape shape = parts[0].shape();
  Dim& size = shape[static_cast<int>(axis)];
  Dim all = 0;
  for (const Tensor& part : parts) {
    if (rank_of(part) == shape.rank()) size = part.shape()[static_cast<int>(axis)];
    const auto sum = checked_add(all, size);
    if (part.shape() != shape || !sum)
      throw UserError("[concatenate] expected parts alike but for the axis, received " +
                      parts[0].meta().text() + " and " + part.meta().text());
    all = *sum;
    if (part.dtype() != dtype) dtype = pl::common_dtype(dtype, part.dtype());
  }
  size = all;
  expect_result({dtype, shape}, parts);
  for (Tensor& part : parts) part = pl::cast(part, dtype);
  constexpr size_t kAtOnce = 64;
  while (parts.size() > kAtOnce) {
    Tensors fewer;
    for (size_t i = 0; i < parts.size(); i += kAtOnce) {
      const auto first = parts.begin() + static_cast<std::ptrdiff_t>(i);
      const auto count = static_cast<std::ptrdiff_t>(std::min(kAtOnce, parts.size() - i));
      fewer.push_back(pl::concatenate(Tensors(first, first + count), axis));
    }
    parts = std::move(fewer);
  }
  return pl::concatenate(parts, axis);
}

// As many tensors as an axis is long or more: not without bound where they hold nothing.
void expect_parts(int64_t count, const Tensor& x) {
  constexpr int64_t kMost = 1 << 16;
  if (count > std::max(kMost, x.meta().elements()))
    throw UserError("[split] expected at most " + std::to_string(kMost) + " empty parts of " +
                    x.meta().text() + ", received " + std::to_string(count));
}

}  // namespace

int rank_of(const Tensor& x) {
  if (!x.defined())
    throw UserError("[ops] expected a tensor for every operand, received an empty one");
  return x.shape().rank();
}

void expect_result(const Meta& result, const Tensors& operands) {
  expect_room(checked("ops", {result}), operands);
}

void expect_met(const Tensor& a, const Tensor& b, Dtype dtype) {
  Shape shape;
  if (!a.defined() || !b.defined() || (a.dtype() == dtype && b.dtype() == dtype)) return;
  if (broadcast_shapes(a.shape(), b.shape(), &shape)) expect_result({dtype, shape}, {a, b});
}

Tensor reshape(const Tensor& x, const std::vector<Dim>& shape) { return pl::reshape(x, shape); }
Tensor ravel(const Tensor& x) {
  const WordScope word("ravel");
  return pl::reshape(x, {-1});
}
Tensor transpose(const Tensor& x, const std::vector<int64_t>& axes) {
  const WordScope word("transpose");
  const int rank = rank_of(x);
  std::vector<int64_t> from_front;
  for (int64_t axis : axes) from_front.push_back(axis_of("transpose", axis, rank));
  return pl::transpose(x, std::move(from_front));
}
Tensor swapaxes(const Tensor& x, int64_t a, int64_t b) {
  const WordScope word("swapaxes");
  const int rank = rank_of(x);
  std::vector<int64_t> axes = in_order(rank);
  std::swap(axes[static_cast<size_t>(axis_of("swapaxes", a, rank))],
            axes[static_cast<size_t>(axis_of("swapaxes", b, rank))]);
  return pl::transpose(x, axes);
}
Tensor moveaxis(const Tensor& x, int64_t source, int64_t destination) {
  const WordScope word("moveaxis");
  const int rank = rank_of(x);
  std::vector<int64_t> axes = in_order(rank);
  const int64_t from = axis_of("moveaxis", source, rank);
  axes.erase(axes.begin() + from);
  axes.insert(axes.begin() + axis_of("moveaxis", destination, rank), from);
  return pl::transpose(x, axes);
}
Tensor expand_dims(const Tensor& x, int64_t axis) {
  const WordScope word("expand_dims");
  const int rank = rank_of(x);
  std::vector<Dim> dims = x.shape().dims();
  dims.insert(dims.begin() + axis_of("expand_dims", axis, rank + 1), 1);
  return pl::reshape(x, std::move(dims));
}
Tensor squeeze(const Tensor& x, const Axis& axis) {
  const WordScope word("squeeze");
  const int rank = rank_of(x);
  std::vector<bool> gone(static_cast<size_t>(rank), false);
  for (int64_t one : axes_of("squeeze", axis, rank)) {
    const Dim size = x.shape()[static_cast<int>(one)];
    if (size != 1 && !axis.list.empty())
      throw UserError("[squeeze] expected axes of size 1, received " + std::to_string(one) +
                      " of " + x.meta().text());
    gone[static_cast<size_t>(one)] = size == 1;
  }
  std::vector<Dim> dims;
  for (int d = 0; d < rank; ++d)
    if (!gone[static_cast<size_t>(d)]) dims.push_back(x.shape()[d]);
  return pl::reshape(x, std::move(dims));
}
Tensor broadcast_to(const Tensor& x, const Shape& shape) { return pl::broadcast_to(x, shape); }
Tensor concatenate(const Tensors& parts, int64_t axis) {
  const WordScope word("concatenate");
  if (parts.empty()) throw UserError("[concatenate] expected at least one tensor, received none");
  return joined(parts, axis_of("concatenate", axis, rank_of(parts[0])));
}
Tensor stack(const Tensors& parts, int64_t axis) {
  const WordScope word("stack");
  if (parts.empty()) throw UserError("[stack] expected at least one tensor, received none");
  const int64_t at = axis_of("stack", axis, rank_of(parts[0]) + 1);
  Tensors grown;
  for (const Tensor& part : parts) {
    rank_of(part);
    if (part.shape() != parts[0].shape())
      throw UserError("[stack] expected parts of one shape, received " + parts[0].meta().text() +
                      " and " + part.meta().text());
    grown.push_back(expand_dims(part, at));
  }
  return joined(std::move(grown), at);
}
Tensors unstack(const Tensor& x, int64_t axis) {
  const WordScope word("unstack");
  Tensors parts;
  const int64_t at = axis_of("unstack", axis, rank_of(x));
  const Dim count = x.shape()[static_cast<int>(at)];
  expect_parts(count, x);
  for (Dim i = 0; i < count; ++i) parts.push_back(take(x, i, at));
  return parts;
}
Tensors split(const Tensor& x, int64_t sections, int64_t axis) {
  const WordScope word("split");
  const int64_t at = axis_of("split", axis, rank_of(x));
  const Dim size = x.shape()[static_cast<int>(at)];
  if (sections < 1 || size % sections != 0)
    throw UserError("[split] expected a number of sections that divides " + std::to_string(size) +
                    ", received " + std::to_string(sections));
  expect_parts(sections, x);
  Tensors parts;
  for (int64_t s = 0; s < sections; ++s)
    parts.push_back(pl::slice(x, at, s * (size / sections), size / sections));
  return parts;
}
Tensor slice(const Tensor& x, const std::vector<Dim>& start, const std::vector<Dim>& size) {
  const WordScope word("slice");
  const int rank = rank_of(x);
  if (start.size() != size.size() || static_cast<int>(start.size()) != rank)
    throw UserError("[slice] expected a start and a size for each axis of " + x.meta().text() +
                    ", received " + text_of(start) + " and " + text_of(size));
  std::vector<Dim> counts;
  for (size_t d = 0; d < start.size(); ++d) {
    const Dim all = x.shape()[static_cast<int>(d)];
    const bool within =
        start[d] >= 0 && start[d] <= all && size[d] >= -1 && size[d] <= all - start[d];
    if (!within)
      throw UserError("[slice] expected a part that lies within " + x.meta().text() +
                      ", received " + text_of(start) + " and " + text_of(size));
    counts.push_back(size[d] == -1 ? all - start[d] : size[d]);
  }
  Tensor part = x;
  for (size_t d = 0; d < counts.size(); ++d)
    if (counts[d] != x.shape()[static_cast<int>(d)])
      part = pl::slice(part, static_cast<int64_t>(d), start[d], counts[d]);
  return part;
}
Tensor repeat(const Tensor& x, int64_t times, int64_t axis) {
  const WordScope word("repeat");
  const int64_t at = axis_of("repeat", axis, rank_of(x));
  Shape shape = x.shape();
  const auto size = times < 0 ? std::nullopt : checked_mul(shape[static_cast<int>(at)], times);
  if (!size)
    throw UserError("[repeat] expected times that are not negative and have a product, received " +
                    std::to_string(times) + " for " + x.meta().text());
  shape[static_cast<int>(at)] = *size;
  expect_result({x.dtype(), shape}, {x});
  const Tensor grown = expand_dims(x, at + 1);
  Shape wide = grown.shape();
  wide[static_cast<int>(at) + 1] = times;
  return pl::reshape(pl::broadcast_to(grown, wide), shape.dims());
}
// In front of each axis that repeats a new one, along which x stretches.
Tensor tile(const Tensor& x, const std::vector<int64_t>& repeats) {
  const WordScope word("tile");
  const int rank = rank_of(x), given = static_cast<int>(repeats.size());
  const int most = std::max(rank, given);
  std::vector<Dim> apart, wide, shape;
  for (int d = 0; d < most; ++d) {
    const int own = d - (most - rank), repeat = d - (most - given);
    const Dim size = own < 0 ? 1 : x.shape()[own];
    const int64_t times = repeat < 0 ? 1 : repeats[static_cast<size_t>(repeat)];
    const auto product = times < 0 ? std::nullopt : checked_mul(size, times);
    if (!product)
      throw UserError(
          "[tile] expected repeats that are not negative and have a product, received " +
          text_of(repeats) + " for " + x.meta().text());
    if (times != 1) apart.push_back(1), wide.push_back(times);
    apart.push_back(size);
    wide.push_back(size);
    shape.push_back(*product);
  }
  expect_result({x.dtype(), Shape(shape)}, {x});
  return pl::reshape(pl::broadcast_to(pl::reshape(x, apart), Shape(wide)), shape);
}
Tensor roll(const Tensor& x, int64_t shift, int64_t axis) {
  const WordScope word("roll");
  const int64_t at = axis_of("roll", axis, rank_of(x));
  const Dim n = x.shape()[static_cast<int>(at)];
  const Dim by = n == 0 ? 0 : ((shift % n) + n) % n;
  if (by == 0) return x;
  return pl::concatenate({pl::slice(x, at, n - by, by), pl::slice(x, at, 0, n - by)}, at);
}
Tensor pad(const Tensor& x, const std::vector<std::pair<Dim, Dim>>& width, Number value) {
  const WordScope word("pad");
  if (static_cast<int>(width.size()) != rank_of(x))
    throw UserError("[pad] expected {before, behind} for each axis of " + x.meta().text() +
                    ", received " + std::to_string(width.size()));
  Shape shape = x.shape();
  for (size_t d = 0; d < width.size(); ++d) {
    const auto [before, behind] = width[d];
    Dim& size = shape[static_cast<int>(d)];
    auto sum = before < 0 || behind < 0 ? std::nullopt : checked_add(before, behind);
    if (sum) sum = checked_add(size, *sum);
    if (!sum)
      throw UserError("[pad] expected widths that are not negative and have a sum, received " +
                      text_of({before, behind}) + " for " + x.meta().text());
    size = *sum;
  }
  expect_result({x.dtype(), shape}, {x});
  Tensor padded = x;
  for (size_t d = 0; d < width.size(); ++d) {
    const auto axis = static_cast<int64_t>(d);
    Tensors parts{padded};
    if (width[d].first > 0)
      parts.insert(parts.begin(), filled_like(padded, axis, width[d].first, value));
    if (width[d].second > 0) parts.push_back(filled_like(padded, axis, width[d].second, value));
    if (parts.size() > 1) padded = pl::concatenate(parts, axis);
  }
  return padded;
}

Tensor one_hot(const Tensor& labels, Dim num_classes, Dtype dtype) {
  const WordScope word("one_hot");
  rank_of(labels);
  if (num_classes < 0)
    throw UserError("[one_hot] expected a number of classes, received " +
                    std::to_string(num_classes));
  std::vector<Dim> dims = labels.shape().dims();
  dims.push_back(num_classes);
  const Dtype made = is_floating(dtype) ? dtype : Dtype::float32;
  expect_result({dtype, Shape(dims)}, {labels});
  // What no int32 can say is no class either.
  constexpr Dim kMost = std::numeric_limits<int32_t>::max();
  const Tensor known =
      labels.dtype() == Dtype::int64 ? clip(labels, -1, std::min(num_classes, kMost)) : labels;
  return pl::cast(pl::one_hot(pl::cast(known, Dtype::int32), num_classes, made), dtype);
}
Tensor cast(const Tensor& x, Dtype dtype) { return pl::cast(x, dtype); }
Tensor cast(const Tensor& x, const std::string& dtype) {
  const std::optional<Dtype> known = dtype_from_name(dtype);
  if (!known)
    throw UserError("[cast] expected a dtype such as float32, int32 or bool, received '" + dtype +
                    "'");
  return pl::cast(x, *known);
}
Tensor stop_gradient(const Tensor& x) {
  const WordScope word("stop_gradient");
  return pl::stop_gradient(x);
}

}  // namespace pl::ops
