#include "data/class_limit.h"

#include <cmath>
#include <type_traits>

#include "base/error.h"
#include "base/number_text.h"
#include "data/source.h"
#include "tensor/bfloat16.h"
#include "tensor/float16.h"

namespace pl {
namespace {

template <class T>
std::string outside(const ClassLimit& limit, const void* values, int64_t elements) {
  const T* list = static_cast<const T*>(values);
  for (int64_t i = 0; i < elements; ++i) {
    const auto value = static_cast<int64_t>(list[i]);
    if ((value < 0 || value >= limit.count) && value != limit.allowed) return std::to_string(value);
  }
  return "";
}

template <class T>
std::string outside_real(const ClassLimit& limit, const void* values, int64_t elements) {
  const T* list = static_cast<const T*>(values);
  for (int64_t i = 0; i < elements; ++i) {
    double value;
    if constexpr (std::is_same_v<T, double>)
      value = list[i];
    else
      value = static_cast<double>(static_cast<float>(list[i]));
    const bool whole = value == std::trunc(value);  // not of NaN
    const bool below = value >= 0 && value < static_cast<double>(limit.count);
    const bool allowed = limit.allowed && value == static_cast<double>(*limit.allowed);
    if (!whole || (!below && !allowed)) return number_text(value);
  }
  return "";
}

}  // namespace

std::string outside(const ClassLimit& limit, const void* values, const Meta& sample) {
  const int64_t elements = sample.elements();
  switch (sample.dtype) {
    case Dtype::float32:
      return outside_real<float>(limit, values, elements);
    case Dtype::float64:
      return outside_real<double>(limit, values, elements);
    case Dtype::bfloat16:
      return outside_real<Bfloat16>(limit, values, elements);
    case Dtype::float16:
      return outside_real<Float16>(limit, values, elements);
    case Dtype::int32:
      return outside<int32_t>(limit, values, elements);
    case Dtype::int64:
      return outside<int64_t>(limit, values, elements);
    case Dtype::uint8:
    case Dtype::boolean:
      return outside<uint8_t>(limit, values, elements);
  }
  return "";
}

void check_limit(const ClassLimit& limit, const Source& source, const void* values,
                 const Meta& sample, int64_t index, const std::string& note) {
  if (limit.count == 0) return;
  const std::string received = outside(limit, values, sample);
  if (received.empty()) return;
  throw DataError("[data] " + source.name() + ": expected " + limit.what +
                  (is_floating(sample.dtype) ? " that are whole numbers" : "") + " from 0 to " +
                  std::to_string(limit.count - 1) + ", received " + received + " in sample " +
                  std::to_string(index) + note);
}

}  // namespace pl
