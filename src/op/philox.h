// Philox 4x32-10: random words as a pure function of a counter and a key (Salmon, Moraes, Dror,
// Shaw: Parallel random numbers: as easy as 1, 2, 3). Nothing is stored, so a second run gives
// equal bits.
#pragma once

#include <array>
#include <cstdint>

namespace pl {

using PhiloxKey = std::array<uint32_t, 2>;
using PhiloxWords = std::array<uint32_t, 4>;

inline constexpr int kPhiloxRounds = 10;

constexpr PhiloxWords philox(PhiloxWords counter, PhiloxKey key) {
  auto& [c0, c1, c2, c3] = counter;
  for (int round = 0; round < kPhiloxRounds; ++round) {
    const uint64_t p0 = uint64_t{0xD2511F53} * c0, p1 = uint64_t{0xCD9E8D57} * c2;
    c0 = static_cast<uint32_t>(p1 >> 32) ^ c1 ^ key[0];
    c2 = static_cast<uint32_t>(p0 >> 32) ^ c3 ^ key[1];
    c1 = static_cast<uint32_t>(p1);
    c3 = static_cast<uint32_t>(p0);
    key[0] += 0x9E3779B9;
    key[1] += 0xBB67AE85;
  }
  return counter;
}

// A random sequence of its own for each seed and stream (a layer's path and call, hashed).
constexpr PhiloxKey philox_stream(uint64_t seed, uint64_t stream) {
  const PhiloxWords words =
      philox({static_cast<uint32_t>(stream), static_cast<uint32_t>(stream >> 32), 0, 0},
             {static_cast<uint32_t>(seed), static_cast<uint32_t>(seed >> 32)});
  return {words[0], words[1]};
}

// Words 4 * block .. 4 * block + 3 of a stream in one step.
constexpr PhiloxWords philox_block(PhiloxKey stream, uint64_t step, uint64_t block) {
  return philox({static_cast<uint32_t>(block), static_cast<uint32_t>(block >> 32),
                 static_cast<uint32_t>(step), static_cast<uint32_t>(step >> 32)},
                stream);
}

}  // namespace pl
