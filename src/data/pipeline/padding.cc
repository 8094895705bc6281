#include "data/pipeline/padding.h"

#include <algorithm>
#include <cmath>
#include <cstring>

#include "base/error.h"

namespace pl {
namespace {

template <class T>
void fill_with(void* to, int64_t count, double value) {
  std::fill_n(static_cast<T*>(to), count, static_cast<T>(value));
}

void fill_value(Tensor& tensor, double value) {
  const int64_t count = tensor.shape().elements();
  switch (tensor.dtype()) {
    case Dtype::float32:
      return fill_with<float>(tensor.data(), count, value);
    case Dtype::float64:
      return fill_with<double>(tensor.data(), count, value);
    case Dtype::int32:
      return fill_with<int32_t>(tensor.data(), count, value);
    case Dtype::int64:
      return fill_with<int64_t>(tensor.data(), count, value);
    case Dtype::uint8:
    case Dtype::boolean:
      return fill_with<uint8_t>(tensor.data(), count, value);
    default:
      std::memset(tensor.data(), 0, static_cast<size_t>(tensor.meta().bytes()));
  }
}

// Copies `from` into the corner of row `to`, whose shape is at least as large along every axis.
void copy_corner(const char* from, const Shape& small, char* to, const Shape& large, int axis,
                 Bytes size) {
  if (axis == small.rank()) {
    std::memcpy(to, from, static_cast<size_t>(size));
    return;
  }
  Bytes from_step = size, to_step = size;
  for (int a = axis + 1; a < small.rank(); ++a) {
    from_step *= small[a];
    to_step *= large[a];
  }
  if (axis + 1 == small.rank()) {
    std::memcpy(to, from, static_cast<size_t>(size * small[axis]));
    return;
  }
  for (Dim i = 0; i < small[axis]; ++i)
    copy_corner(from + i * from_step, small, to + i * to_step, large, axis + 1, size);
}

// Whether a number is one of that dtype.
bool representable(Dtype dtype, double value) {
  const auto whole = [value](double low, double high) {
    return value == std::floor(value) && value >= low && value <= high;
  };
  switch (dtype) {
    case Dtype::float32:
    case Dtype::float64:
      return true;
    case Dtype::int32:
      return whole(-0x1p31, 0x1p31 - 1);
    case Dtype::int64:
      return whole(-0x1p63, 0x1p63 - 1024);
    case Dtype::uint8:
      return whole(0, 255);
    case Dtype::boolean:
      return whole(0, 1);
    default:
      return value == 0;
  }
}

Shape padded_shape(const std::string& stage, const FieldSpec& field, size_t f,
                   const std::vector<Element>& rows) {
  Shape shape = field.shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    Dim longest = 0;
    for (const Element& row : rows) longest = std::max(longest, row[f].shape()[axis]);
    if (shape[axis] == kUnknown) shape[axis] = longest;
    if (shape[axis] < longest)
      throw DataError("[data] " + stage + ": " + field.name + ": expected at most " +
                      std::to_string(shape[axis]) + " along axis " + std::to_string(axis) +
                      ", received " + std::to_string(longest) + "; raise padded_shapes");
  }
  return shape;
}

}  // namespace

std::string Padding::text() const {
  std::string text;
  for (const double value : values) text += ", padding " + exact_text(value);
  return text;
}

Padding padding_of(const std::string& stage, const ElementSpec& in, PadFacts& facts) {
  Padding padding{in, std::move(facts.values)};
  const auto expect_few = [&](const char* what, size_t given) {
    if (given > in.fields.size())
      throw UserError("[data] " + stage + ": " + what + ": expected at most one for each field, " +
                      std::to_string(in.fields.size()) + ", received " + std::to_string(given));
  };
  expect_few("padded_shapes", facts.shapes.size());
  expect_few("padding_values", padding.values.size());
  for (size_t f = 0; f < facts.shapes.size(); ++f) {
    bool right = facts.shapes[f].rank() == in.fields[f].shape.rank();
    for (const Dim dim : facts.shapes[f]) right = right && (dim >= 0 || dim == kUnknown);
    if (!right)
      throw UserError("[data] " + stage + ": padded_shapes: expected a shape like " +
                      in.fields[f].text() + ", received " + facts.shapes[f].text() +
                      "; kUnknown is the longest of a batch");
    padding.row.fields[f].shape = facts.shapes[f];
  }
  for (size_t f = 0; f < padding.values.size(); ++f)
    if (!representable(in.fields[f].dtype, padding.values[f]))
      throw UserError("[data] " + stage + ": padding_values: expected a number of " +
                      in.fields[f].text() + ", received " + exact_text(padding.values[f]) +
                      "; give a whole one, or map the field to float32");
  return padding;
}

Element pad_rows(const std::string& stage, const Padding& padding, const std::vector<Element>& rows,
                 Bytes bound) {
  std::vector<Shape> shapes;
  Bytes bytes = 0;
  for (size_t f = 0; f < padding.row.fields.size(); ++f) {
    const FieldSpec& field = padding.row.fields[f];
    shapes.push_back(padded_shape(stage, field, f, rows).with_front(static_cast<Dim>(rows.size())));
    bytes += granted(Meta{field.dtype, shapes.back()}.bytes());
  }
  if (bytes > bound)
    throw DataError("[data] " + stage + ": expected a batch of at most " + format_bytes(bound) +
                    ", received " + format_bytes(bytes) + "; raise its max_bytes");
  Element out;
  for (size_t f = 0; f < shapes.size(); ++f) {
    Tensor& tensor = out.emplace_back(Meta{padding.row.fields[f].dtype, shapes[f]});
    fill_value(tensor, f < padding.values.size() ? padding.values[f] : 0);
    const Shape row = shapes[f].without_front();
    const Bytes size = size_of(tensor.dtype()), step = Meta{tensor.dtype(), row}.bytes();
    char* to = tensor.data_as<char>();
    for (const Element& element : rows) {
      if (element[f].shape().elements() > 0)
        copy_corner(element[f].data_as<char>(), element[f].shape(), to, row, 0, size);
      to += step;
    }
  }
  return out;
}

}  // namespace pl
