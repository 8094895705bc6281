// What kind of character a code point is, as far as splitting text into words needs it.
#pragma once

#include <cstdint>
#include <string_view>

namespace pl {

enum class CharKind : uint8_t { sign, letter, number, blank };

CharKind char_kind(uint32_t code_point);  // Unicode's categories L and N, and White_Space

struct DecodedChar {
  uint32_t code_point = 0;
  uint8_t bytes = 1;
};

// The character at the beginning of the text, which is not empty. A byte that is not UTF-8 stands
// for itself, as U+FFFD.
DecodedChar decode_utf8(std::string_view text);

}  // namespace pl
