#include "data/pipeline/element_source.h"

#include <algorithm>
#include <cstring>
#include <limits>

#include "base/error.h"

namespace pl {
namespace {

int64_t integer_at(const void* data, Dtype dtype, int64_t i) {
  switch (dtype) {
    case Dtype::int32:
      return static_cast<const int32_t*>(data)[i];
    case Dtype::int64:
      return static_cast<const int64_t*>(data)[i];
    default:
      return static_cast<const uint8_t*>(data)[i];
  }
}

}  // namespace

ElementSource::ElementSource(const Dataset& dataset, bool batches) : dataset_(dataset) {
  const ElementSpec& spec = dataset_.element_spec();
  if (spec.fields.empty() || spec.fields.size() > 3)
    throw UserError("[data] " + name() +
                    ": expected x, or x and y, or x, y and sample weights, received " +
                    spec.text());
  for (size_t f = 0; f < spec.fields.size(); ++f) add_field(spec.fields[f], f, batches);
  limits_.resize(fields_.size());
}

void ElementSource::copy(size_t f, const Tensor& tensor, int64_t rows, void* to) const {
  const Field& field = fields_[f];
  const int64_t elements = rows * field.sample.elements();
  if (limits_[f].count > 0) check_limit(limits_[f], tensor, elements);
  if (tensor.dtype() == field.sample.dtype) {
    std::memcpy(to, tensor.data(), static_cast<size_t>(tensor.meta().bytes()));
    return;
  }
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t value = integer_at(tensor.data(), tensor.dtype(), i);
    if (value < std::numeric_limits<int32_t>::min() || value > std::numeric_limits<int32_t>::max())
      throw DataError("[data] " + name() + ": " + field.name +
                      ": expected labels below 2^31, received " + std::to_string(value));
    static_cast<int32_t*>(to)[i] = static_cast<int32_t>(value);
  }
}

bool ElementSource::limited() const {
  return std::any_of(limits_.begin(), limits_.end(), [](const Limit& l) { return l.count > 0; });
}

void ElementSource::add_field(const FieldSpec& given, size_t f, bool batches) {
  Field field{.name = given.name, .sample = {}, .range = {}, .role = static_cast<Role>(f)};
  if (batches && given.shape.rank() < 1)
    throw UserError("[data] " + name() + ": expected batches, received " + given.text() +
                    "; end the pipeline with batch()");
  field.sample = {given.dtype, batches ? given.shape.without_front() : given.shape};
  for (Dim dim : field.sample.shape)
    if (dim == kUnknown)
      throw UserError("[data] " + name() + ": expected samples of one known shape, received " +
                      given.text() + "; pad or resize to one");
  if (field.role == Role::y && !is_floating(given.dtype)) {
    if (field.sample.shape == Shape{1}) field.sample.shape = Shape();
    field.sample.dtype = Dtype::int32;
  }
  fields_.push_back(std::move(field));
}

void ElementSource::check_limit(const Limit& limit, const Tensor& tensor, int64_t elements) const {
  for (int64_t i = 0; i < elements; ++i) {
    const int64_t value = integer_at(tensor.data(), tensor.dtype(), i);
    if ((value >= 0 && value < limit.count) || value == limit.allowed) continue;
    throw DataError("[data] " + name() + ": expected " + limit.what + " from 0 to " +
                    std::to_string(limit.count - 1) + ", received " + std::to_string(value));
  }
}

}  // namespace pl
