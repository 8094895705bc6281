// Functions of ops.h that make values of numbers, and numbers of values.
#include <cmath>

#include "base/error.h"
#include "op/cast.h"
#include "op/fill.h"
#include "op/infer.h"
#include "op/one_hot.h"
#include "op/ops_parts.h"
#include "op/progression.h"

namespace pl {
namespace {

// Elements of type T, each from a number as an element of type As.
template <class T, class As = T, class V>
Tensor written(const Meta& meta, const std::vector<V>& values) {
  Tensor result(meta);
  T* to = result.data_as<T>();
  for (const V& value : values) *to++ = Number(value).template as<As>();
  return result;
}

template <class V>
Tensor value_of(const std::vector<V>& values, const Shape& shape, Dtype dtype) {
  const Meta meta = checked("constant", {{dtype, shape}})[0];
  if (static_cast<int64_t>(values.size()) != shape.elements())
    throw UserError("[constant] expected " + std::to_string(shape.elements()) +
                    " numbers for shape " + shape.text() + ", received " +
                    std::to_string(values.size()));
  switch (dtype) {
    case Dtype::float32:
      return written<float>(meta, values);
    case Dtype::float64:
      return written<double>(meta, values);
    case Dtype::int32:
      return written<int32_t>(meta, values);
    case Dtype::int64:
      return written<int64_t>(meta, values);
    case Dtype::uint8:
      return written<uint8_t>(meta, values);
    case Dtype::boolean:
      return written<uint8_t, bool>(meta, values);
    case Dtype::bfloat16:
    case Dtype::float16:
      break;
  }
  throw UserError("[constant] expected float32, float64, integers or bool, received " +
                  std::string(name_of(dtype)) + "; cast it");
}

// All elements, as numbers of `dtype`, which is T's.
template <class T>
std::vector<T> elements_of(const Tensor& value, Dtype dtype) {
  value.data();  // a symbol is refused
  const Tensor as = cast(value, dtype);
  return {as.data_as<T>(), as.data_as<T>() + as.meta().elements()};
}

const Tensor& one_of(const Tensor& value) {
  if (value.defined() && value.meta().elements() != 1)
    throw UserError("[item] expected one element, received " + value.meta().text());
  return value;
}

}  // namespace

Tensor constant(Number value, Dtype dtype) {
  return value_of(std::vector<Number>{value}, {}, dtype);
}
Tensor constant(std::initializer_list<Number> values, Dtype dtype) {
  return value_of(std::vector<Number>(values), {static_cast<Dim>(values.size())}, dtype);
}
Tensor constant(std::initializer_list<std::initializer_list<Number>> rows, Dtype dtype) {
  std::vector<Number> values;
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
template <>
Tensor constant(const std::vector<int64_t>& values, const Shape& shape, Dtype dtype) {
  return value_of(values, shape, dtype);
}

std::vector<double> to_vector(const Tensor& value) {
  const WordScope word("to_vector");
  return elements_of<double>(value, Dtype::float64);
}
template <>
std::vector<int64_t> to_vector<int64_t>(const Tensor& value) {
  const WordScope word("to_vector");
  return elements_of<int64_t>(value, Dtype::int64);
}
double item(const Tensor& value) {
  const WordScope word("item");
  return to_vector(one_of(value))[0];
}
template <>
int64_t item<int64_t>(const Tensor& value) {
  const WordScope word("item");
  return to_vector<int64_t>(one_of(value))[0];
}

namespace ops {
namespace {

void expect_count(Dim count) {
  if (count < 0)
    throw UserError("[ops] expected a count that is not negative, received " +
                    std::to_string(count));
}

Tensor filled_like(const Tensor& x, Number value) {
  rank_of(x);
  return fill(x.shape(), value, x.dtype(), carries_rows(x));
}

}  // namespace

Tensor zeros(const Shape& shape, Dtype dtype) {
  const WordScope word("zeros");
  return fill(shape, 0, dtype);
}
Tensor ones(const Shape& shape, Dtype dtype) {
  const WordScope word("ones");
  return fill(shape, 1, dtype);
}
Tensor full(const Shape& shape, Number value, Dtype dtype) {
  const WordScope word("full");
  return fill(shape, value, dtype);
}
Tensor zeros_like(const Tensor& x) {
  const WordScope word("zeros_like");
  return filled_like(x, 0);
}
Tensor ones_like(const Tensor& x) {
  const WordScope word("ones_like");
  return filled_like(x, 1);
}
Tensor full_like(const Tensor& x, Number value) {
  const WordScope word("full_like");
  return filled_like(x, value);
}

Tensor arange(Dim stop, Dtype dtype) {
  const WordScope word("arange");
  expect_count(stop);
  expect_result({dtype, {stop}});
  if (dtype == Dtype::uint8 && stop > 256)
    return pl::cast(ops::mod(progression(stop, {}, Dtype::int32), 256), dtype);
  return progression(stop, {}, dtype);
}
// As NumPy: in float64 from `start` on, the end as it was given, integers rounded down.
Tensor linspace(double start, double stop, Dim num, Dtype dtype) {
  const WordScope word("linspace");
  expect_count(num);
  expect_result({dtype, {num}});
  const double part = std::isfinite(stop - start) ? 1 : 0.5;  // so that the step is finite
  const double step = num > 1 ? (stop * part - start * part) / static_cast<double>(num - 1) : 0;
  return progression(num, {start * part, step, 1 / part, num > 1, stop}, dtype);
}
Tensor eye(Dim n, Dtype dtype) {
  const WordScope word("eye");
  expect_count(n);
  expect_result({dtype, {n, n}});
  return ops::one_hot(arange(n), n, dtype);
}

}  // namespace ops
}  // namespace pl
