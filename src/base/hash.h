// XXH3-64 (seed 0): the hash of weights, plans and cache keys. Not for anything an attacker may
// forge.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

namespace pl {

// Streaming; the pieces' boundaries do not matter. Allocates nothing.
class Xxh3 {
 public:
  Xxh3();
  Xxh3& update(const void* data, size_t bytes);
  Xxh3& update(std::string_view text) { return update(text.data(), text.size()); }
  uint64_t digest() const;  // of all so far; more may follow

 private:
  alignas(64) unsigned char state_[576];  // an XXH3_state_t
};

uint64_t xxh3(const void* data, size_t bytes);
inline uint64_t xxh3(std::string_view text) { return xxh3(text.data(), text.size()); }

// The finaliser of SplitMix64 (Steele, Lea and Flood 2014): each input bit flips half of the
// output. Of a counter with that step: a stream of random bits.
inline constexpr uint64_t kGoldenStep = 0x9E3779B97F4A7C15;
inline uint64_t mix(uint64_t value) {
  value = (value ^ (value >> 30)) * 0xBF58476D1CE4E5B9;
  value = (value ^ (value >> 27)) * 0x94D049BB133111EB;
  return value ^ (value >> 31);
}

std::string hex16(uint64_t value);  // 16 lower-case digits

}  // namespace pl
