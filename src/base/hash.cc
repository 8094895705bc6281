#include "base/hash.h"

#include <new>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace pl {

static_assert(sizeof(XXH3_state_t) <= 576 && alignof(XXH3_state_t) <= 64);

Xxh3::Xxh3() { XXH3_64bits_reset(new (state_) XXH3_state_t); }

Xxh3& Xxh3::update(const void* data, size_t bytes) {
  if (bytes > 0) XXH3_64bits_update(reinterpret_cast<XXH3_state_t*>(state_), data, bytes);
  return *this;
}

uint64_t Xxh3::digest() const {
  return XXH3_64bits_digest(reinterpret_cast<const XXH3_state_t*>(state_));
}

uint64_t xxh3(const void* data, size_t bytes) { return XXH3_64bits(data, bytes); }

std::string hex16(uint64_t value) {
  constexpr char kHex[] = "0123456789abcdef";
  std::string text(16, '0');
  for (size_t i = 16; i-- > 0; value >>= 4) text[i] = kHex[value & 15];
  return text;
}

}  // namespace pl
