// Byte counts: checked arithmetic, parsing ("4GiB", "500MiB", "2GB", "123456") and printing.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace pl {

using Bytes = int64_t;
using ByteOffset = int64_t;

inline constexpr Bytes kKiB = 1024;
inline constexpr Bytes kMiB = 1024 * kKiB;
inline constexpr Bytes kGiB = 1024 * kMiB;

// Sums and products of non-negative sizes; nullopt on overflow.
std::optional<int64_t> checked_mul(int64_t a, int64_t b);
std::optional<int64_t> checked_add(int64_t a, int64_t b);

// `size` rounded up to a multiple of `alignment` (a power of two).
constexpr Bytes align_up(Bytes size, Bytes alignment) {
  return (size + alignment - 1) & ~(alignment - 1);
}

// Reads a size as users write it; throws UserError naming `option` for anything that is not a
// positive number of bytes below 2^62.
Bytes parse_bytes(std::string_view text, std::string_view option);

// "1.50 GiB", "12.3 MiB", "640 B".
std::string format_bytes(Bytes bytes);

}  // namespace pl
