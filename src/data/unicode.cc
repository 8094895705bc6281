#include "data/unicode.h"

#include <algorithm>
#include <iterator>

namespace pl {
namespace {

struct Range {
  uint32_t first, last;
};

#include "data/unicode_table.inc"

template <size_t N>
bool within(const Range (&ranges)[N], uint32_t point) {
  const Range* at = std::upper_bound(std::begin(ranges), std::end(ranges), point,
                                     [](uint32_t p, const Range& r) { return p < r.first; });
  return at != std::begin(ranges) && point <= std::prev(at)->last;
}

}  // namespace

CharKind char_kind(uint32_t c) {
  if (c < 0x80) {
    if ((c | 0x20) >= 'a' && (c | 0x20) <= 'z') return CharKind::letter;
    if (c >= '0' && c <= '9') return CharKind::number;
    return c == ' ' || (c >= '\t' && c <= '\r') ? CharKind::blank : CharKind::sign;
  }
  if (within(kLetters, c)) return CharKind::letter;
  if (within(kNumbers, c)) return CharKind::number;
  return within(kBlanks, c) ? CharKind::blank : CharKind::sign;
}

DecodedChar decode_utf8(std::string_view text) {
  constexpr DecodedChar kBad{0xFFFD, 1};
  const auto byte = [&](size_t i) { return static_cast<uint32_t>(static_cast<uint8_t>(text[i])); };
  const uint32_t first = byte(0);
  if (first < 0x80) return {first, 1};
  const uint8_t bytes = first >= 0xF0 ? 4 : first >= 0xE0 ? 3 : 2;
  if (first < 0xC2 || first > 0xF4 || text.size() < bytes) return kBad;
  uint32_t point = first & (0x7Fu >> bytes);
  for (size_t i = 1; i < bytes; ++i) {
    if (byte(i) >> 6 != 2) return kBad;
    point = point << 6 | (byte(i) & 0x3F);
  }
  const bool overlong = (bytes == 3 && point < 0x800) || (bytes == 4 && point < 0x10000);
  const bool surrogate = point >= 0xD800 && point < 0xE000;
  if (overlong || surrogate || point > 0x10FFFF) return kBad;
  return {point, bytes};
}

}  // namespace pl
