#include "data/shuffle.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

namespace pl::shuffle_test {
namespace {

TEST(Permutation, IsBijective) {
  std::vector<int64_t> sizes;
  for (int64_t n = 0; n <= 300; ++n) sizes.push_back(n);
  for (int64_t n : {1023, 1024, 1025, 4095, 4096, 4097, 60'000, 100'003}) sizes.push_back(n);
  for (int64_t n : sizes) {
    const Permutation permutation(n, 42, 3);
    std::vector<bool> seen(static_cast<size_t>(n));
    for (int64_t i = 0; i < n; ++i) {
      const int64_t image = permutation(i);
      ASSERT_TRUE(image >= 0 && image < n) << n;
      ASSERT_FALSE(seen[static_cast<size_t>(image)]) << n;
      seen[static_cast<size_t>(image)] = true;
    }
  }
}

TEST(Permutation, DependsOnSeedAndEpochOnly) {
  const int64_t n = 1000;
  const auto equal = [&](const Permutation& a, const Permutation& b) {
    int64_t count = 0;
    for (int64_t i = 0; i < n; ++i) count += a(i) == b(i);
    return count;
  };
  const Permutation first(n, 0, 0);
  EXPECT_EQ(equal(first, Permutation(n, 0, 0)), n);
  // Two random permutations agree in one place on average.
  EXPECT_LT(equal(first, Permutation(n, 0, 1)), 10);
  EXPECT_LT(equal(first, Permutation(n, 1, 0)), 10);
  EXPECT_LT(equal(Permutation(n, 1, 0), Permutation(n, 0, 1)), 10);
}

// Chi-square of where elements land over many epochs; 99.99 % quantiles, and the seeds are fixed.
TEST(Permutation, IsRoughlyUniform) {
  for (int64_t n : {2, 5, 10, 64}) {
    for (int64_t element : {int64_t{0}, n - 1}) {
      std::vector<double> count(static_cast<size_t>(n));
      const int64_t trials = 400 * n;
      for (int64_t epoch = 0; epoch < trials; ++epoch)
        ++count[static_cast<size_t>(Permutation(n, 7, static_cast<uint64_t>(epoch))(element))];
      double chi = 0;
      for (double c : count) chi += (c - 400) * (c - 400) / 400;
      const double degrees = static_cast<double>(n - 1);
      EXPECT_LT(chi, degrees + 4 * std::sqrt(2 * degrees) + 12) << n << " " << element;
    }
  }
}

// All 24 orders of four samples must occur, about equally often.
TEST(Permutation, ReachesAllOrdersOfFew) {
  std::vector<int> count(256);
  for (uint64_t epoch = 0; epoch < 4800; ++epoch) {
    const Permutation p(4, 1, epoch);
    ++count[static_cast<size_t>(p(0) | p(1) << 2 | p(2) << 4 | p(3) << 6)];
  }
  int orders = 0;
  for (int c : count) {
    if (c == 0) continue;
    ++orders;
    EXPECT_GT(c, 130);
    EXPECT_LT(c, 270);
  }
  EXPECT_EQ(orders, 24);
}

TEST(Permutation, TakesHugeSizes) {
  const int64_t n = int64_t{1} << 62;
  const Permutation permutation(n, 1, 1);
  for (int64_t i : {int64_t{0}, int64_t{12345}, n - 1}) {
    const int64_t image = permutation(i);
    EXPECT_TRUE(image >= 0 && image < n);
  }
}

}  // namespace
}  // namespace pl::shuffle_test
