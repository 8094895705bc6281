// Offsets: no two blocks that live together overlap, on random sets and on the eleven hard
// instances published with MiniMalloc.
#include <gtest/gtest.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <sstream>

#include "plan/storage.h"
#include "tests/graph_run.h"

namespace pl::test {
namespace {

bool live_together(const Block& a, const Block& b) { return a.start <= b.end && b.start <= a.end; }

// Every pair, and the height against the highest end.
void expect_valid(const std::vector<Block>& blocks, Bytes height, Bytes alignment) {
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

Bytes bound_of(const std::vector<Block>& blocks, int steps) {
  const auto live = live_bytes(blocks, steps);
  return *std::max_element(live.begin(), live.end());
}

TEST(Addresses, OfNothingAreNothing) {
  std::vector<Block> none;
  EXPECT_EQ(assign_addresses(none, 0), 0);
  EXPECT_EQ(assign_addresses(none, 5), 0);
}

TEST(Addresses, OfAChainReuseTwoPlaces) {
  std::vector<Block> blocks;
  for (int s = 0; s < 20; ++s) blocks.push_back({s, s + 1, 64});
  EXPECT_EQ(assign_addresses(blocks, 21), 128);
  expect_valid(blocks, 128, 64);
}

TEST(Addresses, CountBothEndsOfALife) {
  std::vector<Block> blocks{{0, 1, 64}, {1, 2, 64}, {2, 3, 64}};
  EXPECT_EQ(live_bytes(blocks, 4), (std::vector<Bytes>{64, 128, 128, 64}));
  EXPECT_EQ(assign_addresses(blocks, 4), 128);
  EXPECT_EQ(blocks[0].at, blocks[2].at);
}

TEST(Addresses, OfBlocksWithoutBytesTakeNoRoom) {
  std::vector<Block> blocks{{0, 5, 0}, {0, 5, 64}, {2, 3, 0}};
  EXPECT_EQ(assign_addresses(blocks, 6), 64);
}

TEST(Addresses, AreTheSameEachTime) {
  std::vector<Block> blocks;
  Numbers numbers(9);
  for (int b = 0; b < 60; ++b) {
    const int start = numbers.below(40);
    blocks.push_back({start, start + numbers.below(12), 64 * (1 + numbers.below(20))});
  }
  std::vector<Block> again = blocks;
  EXPECT_EQ(assign_addresses(blocks, 52), assign_addresses(again, 52));
  for (size_t b = 0; b < blocks.size(); ++b) EXPECT_EQ(blocks[b].at, again[b].at);
}

TEST(Addresses, NeverOverlapOnRandomBlocks) {
  double worst = 1;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Numbers numbers(seed);
    const int steps = 2 + numbers.below(60);
    std::vector<Block> blocks;
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
  EXPECT_LE(worst, 1.25);
}

// ---- MiniMalloc's instances

struct Instance {
  std::vector<Block> blocks;
  int steps = 0;
};

// Lives are [lower, upper) there and closed here; times are squeezed to their order.
Instance read_instance(const std::string& name) {
  std::ifstream file(std::string(PLIMSOLL_SOURCE_DIR) + "/tests/golden/minimalloc/" + name +
                     ".1048576.csv");
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

class MiniMalloc : public ::testing::TestWithParam<const char*> {};

TEST_P(MiniMalloc, IsPlacedNearThePublishedHeight) {
  Instance instance = read_instance(GetParam());
  ASSERT_GT(instance.blocks.size(), 100u);
  const Bytes bound = bound_of(instance.blocks, instance.steps);
  const Bytes height = assign_addresses(instance.blocks, instance.steps);
  expect_valid(instance.blocks, height, 1);
  EXPECT_LE(bound, kPublishedHeight);
  EXPECT_GE(height, bound);
  const double ratio = static_cast<double>(height) / static_cast<double>(kPublishedHeight);
  RecordProperty("height_ratio", std::to_string(ratio));
  std::printf("%s: %zu blocks, height %.4f of the published one\n", GetParam(),
              instance.blocks.size(), ratio);
  EXPECT_LE(ratio, 1.45);
}

INSTANTIATE_TEST_SUITE_P(Instances, MiniMalloc,
                         ::testing::Values("A", "B", "C", "D", "E", "F", "G", "H", "I", "J", "K"));

}  // namespace
}  // namespace pl::test
