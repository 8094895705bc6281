// float16: IEEE 754's binary16. Like bfloat16 it is stored, never computed with: kernels widen what
// they read and round what they write, to nearest with ties to even. Beyond 65504 lies infinity,
// hence loss scaling.
#pragma once

#include <bit>
#include <cstdint>

#include "tensor/dtype.h"

namespace pl {

inline constexpr Policy kMixedFloat16{Dtype::float32, Dtype::float16};

struct Float16 {
  uint16_t bits;

  Float16() = default;
  explicit Float16(float x) {
    const auto word = std::bit_cast<uint32_t>(x);
    const uint32_t sign = (word >> 16) & 0x8000, size = word & 0x7FFFFFFF;
    uint32_t half;
    if (size > 0x7F800000) {
      half = 0x7E00 | ((size >> 13) & 0x3FF);  // NaN, quiet
    } else if (size >= 0x477FF000) {
      half = 0x7C00;  // rounds beyond the largest
    } else if (size < 0x38800000) {
      // Subnormal: adding 0.5 puts the last bit of a half at the last of a float, which rounds.
      half = std::bit_cast<uint32_t>(std::bit_cast<float>(size) + 0.5f) - 0x3F000000;
    } else {
      half = (size - 0x38000000 + 0xFFF + ((size >> 13) & 1)) >> 13;
    }
    bits = static_cast<uint16_t>(sign | half);
  }
  explicit operator float() const {
    const uint32_t sign = (bits & 0x8000u) << 16, size = bits & 0x7FFFu;
    if (size >= 0x7C00)  // infinity, or NaN, quiet
      return std::bit_cast<float>(sign | 0x7F800000 | (size > 0x7C00 ? 0x400000u : 0) |
                                  (size << 13));
    if (size >= 0x400) return std::bit_cast<float>(sign | ((size << 13) + 0x38000000));
    const float small = static_cast<float>(size) * 0x1p-24f;
    return sign ? -small : small;
  }
};

}  // namespace pl
