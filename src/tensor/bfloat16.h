// bfloat16: the upper half of a float32. It is stored, never computed with: kernels widen what they
// read and round what they write, to nearest with ties to even; NaN stays NaN.
#pragma once

#include <bit>
#include <cstdint>

namespace pl {

struct Bfloat16 {
  uint16_t bits;

  Bfloat16() = default;
  explicit Bfloat16(float x) {
    const auto word = std::bit_cast<uint32_t>(x);
    const uint32_t rounded = (word + 0x7FFF + ((word >> 16) & 1)) >> 16;
    bits = static_cast<uint16_t>(x == x ? rounded : (word >> 16) | 0x40);
  }
  explicit operator float() const {
    return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  }
};

}  // namespace pl
