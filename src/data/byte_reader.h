// Numbers out of a block of bytes that was read from a hostile file: every step is bounds-checked.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "base/error.h"

namespace pl {

class ByteReader {
 public:
  // Both must outlive the reader. `what` names the file in the DataError of a read beyond the end.
  ByteReader(std::string_view bytes, std::string_view what) : bytes_(bytes), what_(what) {}

  size_t left() const { return bytes_.size(); }

  std::string_view take(size_t count) {
    if (count > bytes_.size())
      throw DataError("[data] " + std::string(what_) + ": expected " + std::to_string(count) +
                      " more bytes in a header, received " + std::to_string(bytes_.size()) +
                      "; the file is truncated or damaged");
    const std::string_view taken = bytes_.substr(0, count);
    bytes_.remove_prefix(count);
    return taken;
  }

  // Little-endian unsigned numbers.
  uint16_t u16() { return static_cast<uint16_t>(little(2)); }
  uint32_t u32() { return static_cast<uint32_t>(little(4)); }
  uint64_t u64() { return little(8); }

  // Big-endian, as IDX has them.
  uint32_t u32_big() {
    uint32_t value = 0;
    for (char c : take(4)) value = value << 8 | static_cast<unsigned char>(c);
    return value;
  }

 private:
  uint64_t little(size_t count) {
    const std::string_view digits = take(count);
    uint64_t value = 0;
    for (size_t i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(digits[i]);
    return value;
  }

  std::string_view bytes_, what_;
};

}  // namespace pl
