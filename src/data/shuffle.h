// A keyed permutation of [0, n) that needs no table: a Feistel network over the next power of four,
// walked along its cycle until the image lies below n. Any position of any epoch is O(1), so a
// shuffle costs no memory and resuming in the middle of an epoch is free.
#pragma once

#include <array>
#include <cstdint>

namespace pl {

class Permutation {
 public:
  Permutation(int64_t n, uint64_t seed, uint64_t epoch);  // 0 <= n <= 2^62
  int64_t size() const { return n_; }
  int64_t operator()(int64_t i) const;  // 0 <= i < n

 private:
  static constexpr int kRounds = 8;
  int64_t n_;
  int half_bits_;
  std::array<uint64_t, kRounds> keys_;
};

}  // namespace pl
