// Offsets: no two blocks that live together overlap, on random sets and on the eleven hard
// instances published with MiniMalloc.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "plan/address_search.h"
#include "tests/graph_run.h"
#include "tests/places.h"

namespace pl::test::address_test {
namespace {

bool live_together(const StorageBlock& a, const StorageBlock& b) {
  return a.start <= b.end && b.start <= a.end;
}

// Every pair, and the height against the highest end.
void expect_valid(const std::vector<StorageBlock>& blocks, Bytes height, Bytes alignment) {
  Bytes highest = 0;
  for (size_t a = 0; a < blocks.size(); ++a) {
    ASSERT_GE(blocks[a].at, 0) << "block " << a;
    ASSERT_EQ(blocks[a].at % alignment, 0) << "block " << a;
    highest = std::max(highest, blocks[a].at + blocks[a].bytes);
    for (size_t b = 0; b < a; ++b) {
      const bool apart = blocks[a].at + blocks[a].bytes <= blocks[b].at ||
                         blocks[b].at + blocks[b].bytes <= blocks[a].at;
      ASSERT_TRUE(apart || !live_together(blocks[a], blocks[b])) << "blocks " << a << ", " << b;
    }
  }
  ASSERT_EQ(height, highest);
}

Bytes bound_of(const std::vector<StorageBlock>& blocks, int steps) {
  const auto live = live_bytes(blocks, steps);
  return *std::max_element(live.begin(), live.end());
}

TEST(Addresses, OfNothingAreNothing) {
  std::vector<StorageBlock> none;
  EXPECT_EQ(assign_addresses(none, 0), 0);
  EXPECT_EQ(assign_addresses(none, 5), 0);
}

TEST(Addresses, OfAChainReuseTwoPlaces) {
  std::vector<StorageBlock> blocks;
  for (int s = 0; s < 20; ++s) blocks.push_back({s, s + 1, 64});
  EXPECT_EQ(assign_addresses(blocks, 21), 128);
  expect_valid(blocks, 128, 64);
}

TEST(Addresses, CountBothEndsOfALife) {
  std::vector<StorageBlock> blocks{{0, 1, 64}, {1, 2, 64}, {2, 3, 64}};
  EXPECT_EQ(live_bytes(blocks, 4), (std::vector<Bytes>{64, 128, 128, 64}));
  EXPECT_EQ(assign_addresses(blocks, 4), 128);
  EXPECT_EQ(blocks[0].at, blocks[2].at);
}

TEST(Addresses, OfBlocksWithoutBytesTakeNoRoom) {
  std::vector<StorageBlock> blocks{{0, 5, 0}, {0, 5, 64}, {2, 3, 0}};
  EXPECT_EQ(assign_addresses(blocks, 6), 64);
}

TEST(Addresses, AreTheSameEachTime) {
  std::vector<StorageBlock> blocks;
  Numbers numbers(9);
  for (int b = 0; b < 60; ++b) {
    const int start = numbers.below(40);
    blocks.push_back({start, start + numbers.below(12), 64 * (1 + numbers.below(20))});
  }
  std::vector<StorageBlock> again = blocks;
  EXPECT_EQ(assign_addresses(blocks, 52), assign_addresses(again, 52));
  for (size_t b = 0; b < blocks.size(); ++b) EXPECT_EQ(blocks[b].at, again[b].at);
}

TEST(Addresses, NeverOverlapOnRandomBlocks) {
  double worst = 1;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Numbers numbers(seed);
    const int steps = 2 + numbers.below(60);
    std::vector<StorageBlock> blocks;
    for (int b = 1 + numbers.below(100); b > 0; --b) {
      const int start = numbers.below(steps);
      blocks.push_back(
          {start, start + numbers.below(steps - start), 64 * (numbers.below(30) + b % 2)});
    }
    const Bytes bound = bound_of(blocks, steps), height = assign_addresses(blocks, steps);
    expect_valid(blocks, height, 64);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    ASSERT_GE(height, bound);
    if (bound > 0)
      worst = std::max(worst, static_cast<double>(height) / static_cast<double>(bound));
  }
  RecordProperty("height_over_bound_worst", std::to_string(worst));
  EXPECT_LE(worst, 1.06);
}

TEST(Addresses, WithinTheBoundAreFoundOrRefusedExactly) {
  // Where first fit by size leaves a hole: two long blocks around a step that fills everything
  // else.
  std::vector<StorageBlock> blocks{{0, 2, 3}, {2, 4, 3}, {0, 1, 4}, {3, 4, 4}, {1, 3, 2}};
  EXPECT_TRUE(fit_within(blocks, bound_of(blocks, 5), 1000));
  expect_valid(blocks, bound_of(blocks, 5), 1);
  EXPECT_FALSE(fit_within(blocks, bound_of(blocks, 5) - 1, 1000));
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Numbers numbers(seed);
    std::vector<StorageBlock> few;
    for (int b = 0; b < 5; ++b) {
      const int start = numbers.below(6);
      few.push_back({start, start + numbers.below(4), 1 + numbers.below(5)});
    }
    // The least height over all orders of first fit: for so few blocks, the optimum.
    std::vector<int> order{0, 1, 2, 3, 4};
    Bytes least = 1000;
    do {
      Bytes height = 0;
      std::vector<StorageBlock> placed;
      for (int id : order) {
        StorageBlock block = few[index(id)];
        for (block.at = 0;; ++block.at) {
          const bool free =
              std::none_of(placed.begin(), placed.end(), [&](const StorageBlock& other) {
                return live_together(block, other) && block.at < other.at + other.bytes &&
                       other.at < block.at + block.bytes;
              });
          if (free) break;
        }
        placed.push_back(block);
        height = std::max(height, block.at + block.bytes);
      }
      least = std::min(least, height);
    } while (std::next_permutation(order.begin(), order.end()));
    ASSERT_TRUE(fit_within(few, least, 100000)) << "seed " << seed;
    expect_valid(few, least, 1);
    ASSERT_FALSE(fit_within(few, least - 1, 100000)) << "seed " << seed;
  }
}

// ---- MiniMalloc's instances

struct Instance {
  std::vector<StorageBlock> blocks;
  int steps = 0;
};

// Lives are [lower, upper) there and closed here; times are squeezed to their order.
Instance read_instance(const std::string& name) {
  std::ifstream file(::pl::test::golden("minimalloc/") + name + ".1048576.csv");
  std::string line;
  std::getline(file, line);
  EXPECT_EQ(line, "id,lower,upper,size");
  std::vector<std::array<int64_t, 3>> rows;
  std::map<int64_t, int> times;
  while (std::getline(file, line)) {
    std::replace(line.begin(), line.end(), ',', ' ');
    std::istringstream words(line);
    int64_t id = 0, lower = 0, upper = 0, size = 0;
    EXPECT_TRUE(words >> id >> lower >> upper >> size) << line;
    rows.push_back({lower, upper, size});
    times[lower] = times[upper] = 0;
  }
  Instance instance;
  for (auto& [time, rank] : times) rank = instance.steps++;
  for (const auto& [lower, upper, size] : rows)
    instance.blocks.push_back({times[lower], times[upper] - 1, size});
  return instance;
}

constexpr Bytes kPublishedHeight = 1048576;  // each instance fits in it

class MiniMalloc : public ::testing::TestWithParam<const char*> {
 protected:
  // Height over the published one.
  static double place(int effort) {
    Instance instance = read_instance(GetParam());
    EXPECT_GT(instance.blocks.size(), 100u);
    const Bytes bound = bound_of(instance.blocks, instance.steps);
    const Bytes height = assign_addresses(instance.blocks, instance.steps, effort);
    expect_valid(instance.blocks, height, 1);
    EXPECT_LE(bound, kPublishedHeight);
    EXPECT_GE(height, bound);
    const double ratio = static_cast<double>(height) / static_cast<double>(kPublishedHeight);
    std::printf("%s: %zu blocks, effort %d, height %.4f of the published one\n", GetParam(),
                instance.blocks.size(), effort, ratio);
    return ratio;
  }
};

TEST_P(MiniMalloc, IsPlacedNearThePublishedHeight) { EXPECT_LE(place(1), 1.25); }
TEST_P(MiniMalloc, IsPlacedNearerWithMoreEffortSlow) { EXPECT_LE(place(20), 1.14); }

INSTANTIATE_TEST_SUITE_P(Instances, MiniMalloc,
                         ::testing::Values("A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"));

}  // namespace
}  // namespace pl::test::address_test
