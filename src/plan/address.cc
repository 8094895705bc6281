// Offsets for blocks with known lifetimes. Several first-fit orders are tried; if none reaches the
// lower bound (the most bytes live at once), the blocks that define the top are moved to the front
// of the best order and fitted again; then a depth-first search tries heights between.
// Deterministic: rounds and nodes are counted, never timed.
#include <algorithm>
#include <numeric>

#include "plan/address_search.h"

namespace pl {
namespace {

constexpr int kPromotionRounds = 50;
constexpr int kAttempts = 3;
constexpr int64_t kManyBlocks = 500;
constexpr int64_t kSearchVisits = 4'000, kMostSearchVisits = 2'000'000;  // for each block, in all
constexpr int64_t kPromotionVisits = 1'000'000;  // of placed blocks, in all rounds
constexpr int64_t kMostVisits = 50'000'000;      // before further orders are skipped

// Places blocks one after the other, each at the lowest offset where it fits.
class FirstFit {
 public:
  // Returns the height, or gives up (-1) once it reaches `limit`, if that is not negative.
  Bytes run(std::vector<Block>& blocks, const std::vector<int>& order, Bytes limit) {
    begin_.clear();
    end_.clear();
    start_.clear();
    last_.clear();
    Bytes height = 0;
    for (int id : order) {
      Block& block = blocks[index(id)];
      place(block);
      height = std::max(height, block.at + block.bytes);
      if (limit >= 0 && height >= limit) return -1;
    }
    return height;
  }
  int64_t visits() const { return visits_; }

 private:
  // Most of what lies there lived at another time: looked through in runs that the compiler turns
  // into vector comparisons.
  static constexpr size_t kRun = 32;

  void place(Block& block) {
    ByteOffset at = 0;
    const size_t count = begin_.size();
    size_t i = 0;
    for (bool found = false; i < count && !found; i += found ? 0 : kRun) {
      const size_t end = std::min(i + kRun, count);
      if (!any_alive(block, i, end)) continue;
      for (size_t k = i; k < end && !found; ++k) {
        if (last_[k] < block.start || block.end < start_[k]) continue;
        found = begin_[k] - at >= block.bytes;
        if (!found) at = std::max(at, end_[k]);
      }
    }
    visits_ += static_cast<int64_t>(std::min(i, count));
    block.at = at;
    const auto where = std::upper_bound(begin_.begin(), begin_.end(), at) - begin_.begin();
    begin_.insert(begin_.begin() + where, at);
    end_.insert(end_.begin() + where, at + block.bytes);
    start_.insert(start_.begin() + where, block.start);
    last_.insert(last_.begin() + where, block.end);
  }

  // Whether one of the placed blocks [from, to) lives while `block` does.
  bool any_alive(const Block& block, size_t from, size_t to) const {
    int any = 0;
    for (size_t k = from; k < to; ++k)
      any |= static_cast<int>(last_[k] >= block.start) & static_cast<int>(start_[k] <= block.end);
    return any != 0;
  }

  std::vector<ByteOffset> begin_, end_;  // of placed blocks, sorted by begin_
  std::vector<int> start_, last_;        // their lifetimes
  int64_t visits_ = 0;
};

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

struct Fit {
  std::vector<Block> blocks;
  std::vector<int> order;
  Bytes height = -1;
};

Fit first_fits(std::vector<Block>& blocks, Bytes bound) {
  FirstFit fit;
  Fit best;
  for (Key key : kKeys) {
    std::vector<int> order = order_by(blocks, key);
    const Bytes height = fit.run(blocks, order, best.height);
    if (height >= 0) best = {blocks, std::move(order), height};
    if (best.height == bound || fit.visits() > kMostVisits) break;
  }
  return best;
}

// The blocks that reach the top go first next time, again and again.
void promote(Fit& best, Bytes bound) {
  FirstFit fit;
  std::vector<Block> blocks = best.blocks;
  std::vector<int> order = best.order;
  for (int round = 0; round < kPromotionRounds && best.height > bound; ++round) {
    const Bytes height = fit.run(blocks, order, -1);
    if (height < best.height) best = {blocks, order, height};
    if (fit.visits() > kPromotionVisits) return;
    std::stable_partition(order.begin(), order.end(), [&](int id) {
      return blocks[index(id)].at + blocks[index(id)].bytes == height;
    });
  }
}

Bytes height_of(const std::vector<Block>& blocks) {
  Bytes height = 0;
  for (const Block& block : blocks) height = std::max(height, block.at + block.bytes);
  return height;
}

}  // namespace

Bytes assign_addresses(std::vector<Block>& blocks, int steps, int effort) {
  if (blocks.empty()) return 0;
  const auto live = live_bytes(blocks, steps);
  const Bytes bound = *std::max_element(live.begin(), live.end());
  Fit best = first_fits(blocks, bound);
  const auto count = static_cast<int64_t>(blocks.size());
  const int64_t visits = effort * std::min(kMostSearchVisits, kSearchVisits * count);
  auto search_within = [&](Bytes height) {
    if (!fit_within(blocks, height, visits)) return false;
    best.blocks = blocks;
    best.height = height_of(blocks);
    return true;
  };
  // With many blocks the search takes milliseconds: a gap of one part in eighty is left.
  const bool many = count > kManyBlocks && effort <= 1;
  if (best.height > bound + (many ? bound / 80 : 0) && !search_within(bound)) {
    promote(best, bound);
    // Ever less ambitious, towards what is there already.
    Bytes failed = bound;
    const int attempts = many ? 1 : kAttempts * effort;
    for (int a = 0; a < attempts && best.height - failed > bound / 500; ++a) {
      const Bytes target = failed + (best.height - failed) / (many ? 2 : 3);
      if (target == failed) break;
      if (!search_within(target)) failed = target;
    }
  }
  blocks = std::move(best.blocks);
  return best.height;
}

}  // namespace pl
