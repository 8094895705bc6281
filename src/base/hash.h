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

std::string hex16(uint64_t value);  // 16 lower-case digits

}  // namespace pl
