// Functions of ops.h that pick elements by number.
#include <algorithm>

#include "base/error.h"
#include "op/broadcast.h"
#include "op/cast.h"
#include "op/concatenate.h"
#include "op/gather.h"
#include "op/ops_parts.h"
#include "op/runtime.h"

namespace pl::ops {
namespace {

// As gather() takes them, without loss.
Tensor index_of(const Tensor& indices) {
  switch (indices.dtype()) {
    case Dtype::int32:
    case Dtype::int64:
      return indices;
    case Dtype::uint8:
    case Dtype::boolean:
      return pl::cast(indices, Dtype::int32);
    default:
      return pl::cast(indices, Dtype::int64);
  }
}

[[noreturn]] void refuse_index(const char* op, int64_t index, int64_t axis, const Tensor& x) {
  const Dim size = x.shape()[static_cast<int>(axis)];
  throw UserError("[" + std::string(op) + "] expected indices " +
                  (size == 0
                       ? "of no element"
                       : "from " + std::to_string(-size) + " to " + std::to_string(size - 1)) +
                  " along axis " + std::to_string(axis) + " of " + x.meta().text() + ", received " +
                  std::to_string(index));
}

template <class I>
void expect_inside(const char* op, const Tensor& x, const Tensor& indices, int64_t axis) {
  const I* first = indices.data_as<I>();
  const int64_t size = x.shape()[static_cast<int>(axis)];
  I least = 0, most = -1;
  for (int64_t i = 0, count = indices.meta().elements(); i < count; ++i) {
    least = std::min(least, first[i]);
    most = std::max(most, first[i]);
  }
  if (int64_t{least} < -size) refuse_index(op, least, axis, x);
  if (int64_t{most} >= size) refuse_index(op, most, axis, x);
}

// Where the op is about to run on the processor.
void check_indices(const char* op, const Tensor& x, const Tensor& indices, int64_t axis) {
  const Recorder* recorder = RecorderScope::current();
  if (x.is_symbol() || indices.is_symbol() || (recorder && recorder->captures()) ||
      device_of({x, indices}))
    return;
  if (indices.dtype() == Dtype::int32)
    expect_inside<int32_t>(op, x, indices, axis);
  else
    expect_inside<int64_t>(op, x, indices, axis);
}

}  // namespace

Tensor take(const Tensor& x, int64_t index, int64_t axis) {
  const WordScope word("take");
  const int64_t at = axis_of("take", axis, rank_of(x));
  const Dim size = x.shape()[static_cast<int>(at)];
  if (index < -size || index >= size) refuse_index("take", index, at, x);
  return squeeze(pl::slice(x, at, index < 0 ? index + size : index, 1), at);
}

Tensor take(const Tensor& x, const Tensor& indices, int64_t axis) {
  const WordScope word("take");
  const int64_t at = axis_of("take", axis, rank_of(x));
  const Tensor places = index_of(indices);
  check_indices("take", x, places, at);
  return gather(x, places, at);
}

Tensor take_along_axis(const Tensor& x, const Tensor& indices, int64_t axis) {
  const WordScope word("take_along_axis");
  const int rank = rank_of(x);
  const int64_t at = axis_of("take_along_axis", axis, rank);
  // The shapes without the axis, which broadcast.
  Shape of_x = x.shape(), of_indices = indices.shape(), common;
  const bool fits = of_indices.rank() == rank;
  if (fits) of_x[static_cast<int>(at)] = of_indices[static_cast<int>(at)] = 1;
  if (!fits || !broadcast_shapes(of_x, of_indices, &common))
    throw UserError("[take_along_axis] expected indices of rank " + std::to_string(rank) +
                    " that broadcast with x but for axis " + std::to_string(at) + ", received " +
                    x.meta().text() + " and " + indices.meta().text());
  const Tensor places = index_of(indices);
  check_indices("take_along_axis", x, places, at);
  const bool rows = carries_rows(x) || carries_rows(indices);
  auto stretched = [&](const Tensor& given) {
    Shape shape = common;
    shape[static_cast<int>(at)] = given.shape()[static_cast<int>(at)];
    return given.shape() == shape ? given : stretch(given, shape, rows);
  };
  return gather_each(stretched(x), stretched(places), at);
}

}  // namespace pl::ops
