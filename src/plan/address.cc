// Offsets for blocks with known lifetimes. Several first-fit orders are tried; if none reaches the
// lower bound (the most bytes live at once), the blocks that define the top are moved to the front
// of the best order and fitted again. Deterministic: rounds are counted, never timed.
#include <algorithm>
#include <numeric>

#include "plan/storage.h"

namespace pl {
namespace {

constexpr int kPromotionRounds = 50;

bool overlap_in_time(const Block& a, const Block& b) {
  return a.start <= b.end && b.start <= a.end;
}

// Places blocks in `order`, each at the lowest offset where it fits. Returns the height.
Bytes first_fit(std::vector<Block>& blocks, const std::vector<int>& order) {
  std::vector<const Block*> placed;  // sorted by offset
  std::vector<std::pair<ByteOffset, ByteOffset>> busy;
  Bytes height = 0;
  for (int id : order) {
    Block& block = blocks[index(id)];
    busy.clear();
    for (const Block* other : placed)
      if (overlap_in_time(block, *other)) busy.emplace_back(other->at, other->at + other->bytes);
    ByteOffset at = 0;
    for (const auto& [begin, end] : busy) {
      if (begin - at >= block.bytes) break;
      at = std::max(at, end);
    }
    block.at = at;
    height = std::max(height, at + block.bytes);
    auto where = std::upper_bound(placed.begin(), placed.end(), &block,
                                  [](const Block* a, const Block* b) { return a->at < b->at; });
    placed.insert(where, &block);
  }
  return height;
}

// Sort keys, larger first; ties keep the given order.
using Key = double (*)(const Block&);
constexpr Key kKeys[] = {
    [](const Block& b) { return static_cast<double>(b.bytes); },
    [](const Block& b) { return static_cast<double>(b.bytes) * (b.end - b.start + 1); },
    [](const Block& b) { return static_cast<double>(b.end - b.start + 1); },
    [](const Block& b) { return -static_cast<double>(b.start); },
    [](const Block& b) { return static_cast<double>(b.bytes) / (b.start + 1); },
    [](const Block& b) { return static_cast<double>(b.bytes) * (b.start + 1); },
};

std::vector<int> order_by(const std::vector<Block>& blocks, Key key) {
  std::vector<int> order(blocks.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int a, int b) { return key(blocks[index(a)]) > key(blocks[index(b)]); });
  return order;
}

}  // namespace

Bytes assign_addresses(std::vector<Block>& blocks, int steps) {
  if (blocks.empty()) return 0;
  const auto live = live_bytes(blocks, steps);
  const Bytes bound = *std::max_element(live.begin(), live.end());
  std::vector<Block> best = blocks;
  std::vector<int> best_order;
  Bytes best_height = -1;
  auto attempt = [&](const std::vector<int>& order) {
    const Bytes height = first_fit(blocks, order);
    if (best_height >= 0 && height >= best_height) return false;
    best = blocks;
    best_order = order;
    best_height = height;
    return true;
  };
  for (Key key : kKeys) {
    attempt(order_by(blocks, key));
    if (best_height == bound) break;
  }
  std::vector<int> order = best_order;
  for (int round = 0; round < kPromotionRounds && best_height > bound; ++round) {
    const Bytes height = first_fit(blocks, order);
    // The blocks that reach the top go first next time.
    std::stable_partition(order.begin(), order.end(), [&](int id) {
      return blocks[index(id)].at + blocks[index(id)].bytes == height;
    });
    attempt(order);
  }
  blocks = std::move(best);
  return best_height;
}

}  // namespace pl
