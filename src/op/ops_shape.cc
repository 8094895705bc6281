// Functions of ops.h about shapes, and values from numbers.
#include <algorithm>

#include "base/error.h"
#include "op/broadcast_to.h"
#include "op/cast.h"
#include "op/concatenate.h"
#include "op/fill.h"
#include "op/one_hot.h"
#include "op/ops_parts.h"
#include "op/pointwise.h"
#include "op/reduce.h"
#include "op/relu.h"
#include "op/reshape.h"
#include "op/scale.h"
#include "op/transpose.h"

namespace pl {
namespace {

// The value of `dtype` with these elements.
Tensor value_of(const std::vector<double>& values, const Shape& shape, Dtype dtype) {
  if (static_cast<int64_t>(values.size()) != shape.elements())
    throw UserError("[constant] expected " + std::to_string(shape.elements()) +
                    " numbers for shape " + shape.text() + ", received " +
                    std::to_string(values.size()));
  Tensor result({dtype, shape});
  for (size_t i = 0; i < values.size(); ++i) switch (dtype) {
      case Dtype::float32:
        result.data_as<float>()[i] = static_cast<float>(values[i]);
        break;
      case Dtype::float64:
        result.data_as<double>()[i] = values[i];
        break;
      case Dtype::int32:
        result.data_as<int32_t>()[i] = static_cast<int32_t>(values[i]);
        break;
      case Dtype::int64:
        result.data_as<int64_t>()[i] = static_cast<int64_t>(values[i]);
        break;
      case Dtype::uint8:
        result.data_as<uint8_t>()[i] = static_cast<uint8_t>(values[i]);
        break;
      case Dtype::boolean:
        result.data_as<uint8_t>()[i] = values[i] != 0;
        break;
      case Dtype::bfloat16:
      case Dtype::float16:
        throw UserError("[constant] expected float32, float64, integers or bool, received " +
                        std::string(name_of(dtype)) + "; cast it");
    }
  return result;
}

}  // namespace

Tensor constant(Number value, Dtype dtype) { return value_of({value.value}, {}, dtype); }
Tensor constant(std::initializer_list<double> values, Dtype dtype) {
  return value_of(values, {static_cast<Dim>(values.size())}, dtype);
}
Tensor constant(std::initializer_list<std::initializer_list<double>> rows, Dtype dtype) {
  std::vector<double> values;
  const size_t columns = rows.size() == 0 ? 0 : rows.begin()->size();
  for (const auto& row : rows) {
    if (row.size() != columns)
      throw UserError("[constant] expected rows of one length, received " +
                      std::to_string(columns) + " and " + std::to_string(row.size()));
    values.insert(values.end(), row);
  }
  return value_of(values, {static_cast<Dim>(rows.size()), static_cast<Dim>(columns)}, dtype);
}
Tensor constant(const std::vector<double>& values, const Shape& shape, Dtype dtype) {
  return value_of(values, shape, dtype);
}

std::vector<double> to_vector(const Tensor& value) {
  value.data();  // a symbol is refused
  const Tensor wide = cast(value, Dtype::float64);
  return {wide.data_as<double>(), wide.data_as<double>() + wide.meta().elements()};
}
double item(const Tensor& value) {
  if (value.defined() && value.meta().elements() != 1)
    throw UserError("[item] expected one element, received " + value.meta().text());
  return to_vector(value)[0];
}

namespace ops {
namespace {

std::vector<int64_t> in_order(int rank) {
  std::vector<int64_t> axes;
  for (int64_t d = 0; d < rank; ++d) axes.push_back(d);
  return axes;
}

// `value` along an axis of what x is like elsewhere.
Tensor filled_like(const Tensor& x, int64_t axis, Dim size, double value) {
  Shape shape = x.shape();
  shape[static_cast<int>(axis)] = size;
  return fill(shape, value, x.dtype(), axis != 0 && carries_rows(x));
}

}  // namespace

Tensor reshape(const Tensor& x, const std::vector<Dim>& shape) { return pl::reshape(x, shape); }
Tensor ravel(const Tensor& x) { return pl::reshape(x, {-1}); }
Tensor transpose(const Tensor& x, const std::vector<int64_t>& axes) {
  return pl::transpose(x, axes);
}
Tensor swapaxes(const Tensor& x, int64_t a, int64_t b) {
  const int rank = x.shape().rank();
  std::vector<int64_t> axes = in_order(rank);
  std::swap(axes[static_cast<size_t>(axis_of("swapaxes", a, rank))],
            axes[static_cast<size_t>(axis_of("swapaxes", b, rank))]);
  return pl::transpose(x, axes);
}
Tensor moveaxis(const Tensor& x, int64_t source, int64_t destination) {
  const int rank = x.shape().rank();
  std::vector<int64_t> axes = in_order(rank);
  const int64_t from = axis_of("moveaxis", source, rank);
  axes.erase(axes.begin() + from);
  axes.insert(axes.begin() + axis_of("moveaxis", destination, rank), from);
  return pl::transpose(x, axes);
}
Tensor expand_dims(const Tensor& x, int64_t axis) {
  std::vector<Dim> dims = x.shape().dims();
  dims.insert(dims.begin() + axis_of("expand_dims", axis, x.shape().rank() + 1), 1);
  return pl::reshape(x, std::move(dims));
}
Tensor squeeze(const Tensor& x, const Axis& axis) {
  const int rank = x.shape().rank();
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
Tensor concatenate(const Tensors& parts, int64_t axis) { return pl::concatenate(parts, axis); }
Tensor stack(const Tensors& parts, int64_t axis) {
  Tensors grown;
  for (const Tensor& part : parts) grown.push_back(expand_dims(part, axis));
  return pl::concatenate(grown, axis);
}
Tensors unstack(const Tensor& x, int64_t axis) {
  Tensors parts;
  const int64_t at = axis_of("unstack", axis, x.shape().rank());
  for (Dim i = 0; i < x.shape()[static_cast<int>(at)]; ++i) parts.push_back(take(x, i, at));
  return parts;
}
Tensors split(const Tensor& x, int64_t sections, int64_t axis) {
  const int64_t at = axis_of("split", axis, x.shape().rank());
  const Dim size = x.shape()[static_cast<int>(at)];
  if (sections < 1 || size % sections != 0)
    throw UserError("[split] expected a number of sections that divides " + std::to_string(size) +
                    ", received " + std::to_string(sections));
  Tensors parts;
  for (int64_t s = 0; s < sections; ++s)
    parts.push_back(pl::slice(x, at, s * (size / sections), size / sections));
  return parts;
}
Tensor slice(const Tensor& x, const std::vector<Dim>& start, const std::vector<Dim>& size) {
  if (start.size() != size.size() || static_cast<int>(start.size()) != x.shape().rank())
    throw UserError("[slice] expected a start and a size for each axis of " + x.meta().text());
  Tensor part = x;
  for (size_t d = 0; d < start.size(); ++d) {
    const Dim all = x.shape()[static_cast<int>(d)], rest = all - start[d];
    const Dim count = size[d] == -1 ? rest : size[d];
    if (count != all || start[d] != 0)
      part = pl::slice(part, static_cast<int64_t>(d), start[d], count);
  }
  return part;
}
Tensor repeat(const Tensor& x, int64_t times, int64_t axis) {
  const int64_t at = axis_of("repeat", axis, x.shape().rank());
  Shape shape = x.shape();
  shape[static_cast<int>(at)] *= times;
  const Tensor grown = expand_dims(x, at + 1);
  Shape wide = grown.shape();
  wide[static_cast<int>(at) + 1] = times;
  return pl::reshape(pl::broadcast_to(grown, wide), shape.dims());
}
Tensor tile(const Tensor& x, const std::vector<int64_t>& repeats) {
  Tensor tiled = x;
  while (tiled.shape().rank() < static_cast<int>(repeats.size())) tiled = expand_dims(tiled, 0);
  const int first = tiled.shape().rank() - static_cast<int>(repeats.size());
  for (size_t r = 0; r < repeats.size(); ++r)
    if (repeats[r] != 1)
      tiled = pl::concatenate(Tensors(static_cast<size_t>(repeats[r]), tiled),
                              first + static_cast<int64_t>(r));
  return tiled;
}
Tensor roll(const Tensor& x, int64_t shift, int64_t axis) {
  const int64_t at = axis_of("roll", axis, x.shape().rank());
  const Dim n = x.shape()[static_cast<int>(at)];
  const Dim by = n == 0 ? 0 : ((shift % n) + n) % n;
  if (by == 0) return x;
  return pl::concatenate({pl::slice(x, at, n - by, by), pl::slice(x, at, 0, n - by)}, at);
}
Tensor pad(const Tensor& x, const std::vector<std::pair<Dim, Dim>>& width, double value) {
  if (static_cast<int>(width.size()) != x.shape().rank())
    throw UserError("[pad] expected {before, behind} for each axis of " + x.meta().text());
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
  return pl::one_hot(pl::cast(labels, Dtype::int32), num_classes, dtype);
}
Tensor cast(const Tensor& x, Dtype dtype) { return pl::cast(x, dtype); }
Tensor cast(const Tensor& x, const std::string& dtype) {
  const std::optional<Dtype> known = dtype_from_name(dtype);
  if (!known)
    throw UserError("[cast] expected a dtype such as float32, int32 or bool, received '" + dtype +
                    "'");
  return pl::cast(x, *known);
}
Tensor stop_gradient(const Tensor& x) { return pl::stop_gradient(x); }

Tensor zeros(const Shape& shape, Dtype dtype) { return fill(shape, 0, dtype); }
Tensor ones(const Shape& shape, Dtype dtype) { return fill(shape, 1, dtype); }
Tensor full(const Shape& shape, double value, Dtype dtype) { return fill(shape, value, dtype); }
Tensor zeros_like(const Tensor& x) { return full_like(x, 0); }
Tensor ones_like(const Tensor& x) { return full_like(x, 1); }
Tensor full_like(const Tensor& x, double value) {
  return fill(x.shape(), value, x.dtype(), carries_rows(x));
}

// By doubling: 0; 0, 1; 0, 1, 2, 3; ...
Tensor arange(Dim stop, Dtype dtype) {
  if (stop < 0) throw UserError("[arange] expected a count, received " + std::to_string(stop));
  if (stop == 0) return fill({0}, 0, dtype);
  Tensor counted = fill({1}, 0, dtype);
  for (Dim n = 1; n < stop; n *= 2) counted = pl::concatenate({counted, counted + n}, 0);
  return counted.shape()[0] == stop ? counted : pl::slice(counted, 0, 0, stop);
}
Tensor linspace(double start, double stop, Dim num, Dtype dtype) {
  const double step = num > 1 ? (stop - start) / static_cast<double>(num - 1) : 0;
  return scale(arange(num, dtype), step, start);
}
Tensor eye(Dim n, Dtype dtype) { return pl::one_hot(arange(n), n, dtype); }

}  // namespace ops
}  // namespace pl
