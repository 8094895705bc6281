// Values for tests: floats that look random and are the same everywhere, and equality of bits.
#pragma once

#include <cmath>
#include <cstring>

#include "tensor/tensor.h"

namespace pl::test {

inline Tensor pattern(Shape shape, double seed) {
  Tensor x({Dtype::float32, std::move(shape)});
  for (int64_t i = 0, count = x.meta().elements(); i < count; ++i)
    x.data_as<float>()[i] = static_cast<float>(std::sin(12.9898 * static_cast<double>(i) + seed));
  return x;
}

inline bool same_bits(const Tensor& a, const Tensor& b) {
  return a.meta() == b.meta() &&
         std::memcmp(a.data(), b.data(), static_cast<size_t>(a.meta().bytes())) == 0;
}

}  // namespace pl::test
