#include "data/shuffle.h"

#include "base/error.h"
#include "base/hash.h"

namespace pl {
Permutation::Permutation(int64_t n, uint64_t seed, uint64_t epoch) : n_(n), half_bits_(3) {
  check(n >= 0 && n <= int64_t{1} << 62, "a permutation of 0 to 2^62 elements");
  // At least 64 points, since halves of one or two bits reach few of the possible permutations.
  // Above that the domain is below 4n, so a walk takes fewer than four rounds of the network on
  // average.
  while ((int64_t{1} << 2 * half_bits_) < n) ++half_bits_;
  uint64_t state = mix(seed + kGoldenStep) ^ mix(mix(epoch + 2 * kGoldenStep));
  for (uint64_t& key : keys_) key = mix(state += kGoldenStep);
}

int64_t Permutation::operator()(int64_t i) const {
  check(i >= 0 && i < n_, "an index below the permutation's size");
  const uint64_t mask = (uint64_t{1} << half_bits_) - 1;
  uint64_t point = static_cast<uint64_t>(i);
  do {  // a permutation's cycle returns to i at the latest, so this ends
    uint64_t left = point >> half_bits_, right = point & mask;
    for (const uint64_t key : keys_) {
      const uint64_t next = left ^ (mix(right ^ key) & mask);
      left = right;
      right = next;
    }
    point = left << half_bits_ | right;
  } while (point >= static_cast<uint64_t>(n_));
  return static_cast<int64_t>(point);
}

}  // namespace pl
