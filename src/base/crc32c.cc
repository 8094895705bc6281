#include "base/crc32c.h"

#include <array>
#include <cstring>

namespace pl {
namespace {

constexpr std::array<uint32_t, 256> make_table() {
  std::array<uint32_t, 256> table{};
  for (uint32_t i = 0; i < 256; ++i) {
    uint32_t c = i;
    for (int k = 0; k < 8; ++k) c = c & 1 ? 0x82F63B78u ^ (c >> 1) : c >> 1;
    table[i] = c;
  }
  return table;
}
constexpr std::array<uint32_t, 256> kTable = make_table();

uint32_t by_table(std::string_view bytes, uint32_t c) {
  for (char byte : bytes) c = kTable[(c ^ static_cast<unsigned char>(byte)) & 0xFF] ^ (c >> 8);
  return c;
}

// The processor's instruction takes eight bytes at a time: some 7 GB/s, the table 0.4.
__attribute__((target("sse4.2"))) uint32_t by_instruction(std::string_view bytes, uint32_t c) {
  uint64_t wide = c;
  for (; bytes.size() >= 8; bytes.remove_prefix(8)) {
    uint64_t word;
    std::memcpy(&word, bytes.data(), sizeof word);
    wide = __builtin_ia32_crc32di(wide, word);
  }
  return by_table(bytes, static_cast<uint32_t>(wide));
}

}  // namespace

uint32_t crc32c(std::string_view bytes, uint32_t before) {
  const bool fast = __builtin_cpu_supports("sse4.2") != 0;
  return ~(fast ? by_instruction(bytes, ~before) : by_table(bytes, ~before));
}

uint32_t masked_crc32c(std::string_view bytes) {
  const uint32_t c = crc32c(bytes);
  return ((c >> 15) | (c << 17)) + 0xA282EAD8u;
}

}  // namespace pl
