// Numbers that a test and the script beside its answers compute alike: a counter hash, scaled by
// powers of two.
#pragma once

#include <cmath>
#include <string>

#include "tensor/tensor.h"

namespace pl::test {

inline uint32_t hashed(uint32_t salt, int64_t i) {
  uint32_t x = static_cast<uint32_t>(i) + salt * 0x9E3779B1u;
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  return x ^ (x >> 16);
}

// Uniform in [centre - 2^exponent, centre + 2^exponent), rounded to float32 whatever the dtype is.
inline Tensor hashed_reals(uint32_t salt, const Meta& meta, int exponent, float centre = 0) {
  Tensor tensor(meta);
  const bool wide = meta.dtype == Dtype::float64;
  for (int64_t i = 0, count = meta.elements(); i < count; ++i) {
    const double whole = static_cast<double>(hashed(salt, i) >> 8) - 8388608.0;
    const float value = static_cast<float>(std::ldexp(whole, exponent - 23)) + centre;
    if (wide) {
      tensor.data_as<double>()[i] = static_cast<double>(value);
    } else {
      tensor.data_as<float>()[i] = value;
    }
  }
  return tensor;
}

// int32 in [0, below).
inline Tensor hashed_integers(uint32_t salt, Shape shape, uint32_t below) {
  Tensor tensor({Dtype::int32, std::move(shape)});
  for (int64_t i = 0, count = tensor.meta().elements(); i < count; ++i)
    tensor.data_as<int32_t>()[i] = static_cast<int32_t>(hashed(salt, i) % below);
  return tensor;
}

// "3x3x64" to (3, 3, 64); "" to ().
inline Shape shape_from(const std::string& text) {
  std::vector<Dim> dims;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find('x', begin), text.size());
    dims.push_back(std::stoll(text.substr(begin, end - begin)));
    begin = end + 1;
  }
  return Shape(std::move(dims));
}

}  // namespace pl::test
