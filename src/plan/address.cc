// Offsets for blocks with known lifetimes. Several first-fit orders are tried; if none reaches the
// lower bound (the most bytes live at once), the blocks that define the top are moved to the front
// of the best order and fitted again; then a depth-first search tries heights between.
// Deterministic: rounds and nodes are counted, never timed.
#include <algorithm>
#include <cstdint>
#include <limits>
#include <utility>

#include "plan/address_search.h"

namespace pl {
namespace {

constexpr int kPromotionRounds = 50;
constexpr int kAttempts = 3;
constexpr int64_t kManyBlocks = 500;
constexpr int64_t kSearchVisits = 4'000, kMostSearchVisits = 2'000'000;  // for each block, in all
constexpr int64_t kPromotionVisits = 1'000'000;  // of placed blocks, in all rounds
constexpr int64_t kMostVisits = 50'000'000;      // before further orders are skipped

// Places blocks one after the other, each at the lowest offset where it fits. Times are `Time`s:
// narrow ones, where they do, are compared more at once.
template <typename Time>
class FirstFit {
 public:
  // Returns the height, or gives up (-1) once it reaches `limit`, if that is not negative.
  Bytes run(std::vector<StorageBlock>& blocks, const std::vector<int>& order, Bytes limit) {
    ids_.clear();
    start_.clear();
    last_.clear();
    Bytes height = 0;
    for (int id : order) {
      StorageBlock& block = blocks[index(id)];
      place(blocks, id);
      height = std::max(height, block.at + block.bytes);
      if (limit >= 0 && height >= limit) return -1;
    }
    return height;
  }
  int64_t visits() const { return visits_; }

 private:
  // Most of what lies there lived at another time: looked through in runs that the compiler turns
  // into vector comparisons, long ones first.
  static constexpr size_t kRun = 32, kShortRun = 8;

  void place(std::vector<StorageBlock>& blocks, int id) {
    StorageBlock& block = blocks[index(id)];
    const Time start = static_cast<Time>(block.start), last = static_cast<Time>(block.end);
    ByteOffset at = 0;
    const size_t count = ids_.size();
    bool found = false;
    auto look = [&](size_t from, size_t to) {
      for (size_t k = from; k < to && !found; ++k) {
        if (last_[k] < start || last < start_[k]) continue;
        const StorageBlock& placed = blocks[index(ids_[k])];
        found = placed.at - at >= block.bytes;
        if (!found) at = std::max(at, placed.at + placed.bytes);
      }
    };
    size_t i = 0;
    for (; i + kRun <= count && !found; i += found ? 0 : kRun) {
      if (!any_alive<kRun>(start, last, i)) continue;
      for (size_t k = i; k < i + kRun && !found; k += kShortRun)
        if (any_alive<kShortRun>(start, last, k)) look(k, k + kShortRun);
    }
    if (!found) look(i, count);
    visits_ += static_cast<int64_t>(found ? i : count);
    block.at = at;
    const auto above = std::upper_bound(
        ids_.begin(), ids_.end(), at,
        [&](ByteOffset offset, int other) { return offset < blocks[index(other)].at; });
    const auto where = above - ids_.begin();
    ids_.insert(above, id);
    start_.insert(start_.begin() + where, start);
    last_.insert(last_.begin() + where, last);
  }

  // Whether one of `run` placed blocks lives at a time within [start, last]: one of which neither
  // difference is negative.
  template <size_t run>
  bool any_alive(Time start, Time last, size_t from) const {
    const Time* first_of = start_.data() + from;
    const Time* last_of = last_.data() + from;
    Time dead = -1;
    for (size_t k = 0; k < run; ++k)
      dead = static_cast<Time>(
          dead & (static_cast<Time>(last_of[k] - start) | static_cast<Time>(last - first_of[k])));
    return dead >= 0;
  }

  std::vector<int> ids_;            // of placed blocks, by offset
  std::vector<Time> start_, last_;  // their lifetimes
  int64_t visits_ = 0;
};

// Sort keys, larger first; ties keep the given order.
using Key = double (*)(const StorageBlock&);
constexpr Key kKeys[] = {
    [](const StorageBlock& b) { return static_cast<double>(b.bytes); },
    [](const StorageBlock& b) { return static_cast<double>(b.bytes) * (b.end - b.start + 1); },
    [](const StorageBlock& b) { return static_cast<double>(b.end - b.start + 1); },
    [](const StorageBlock& b) { return -static_cast<double>(b.start); },
    [](const StorageBlock& b) { return static_cast<double>(b.bytes) / (b.start + 1); },
    [](const StorageBlock& b) { return static_cast<double>(b.bytes) * (b.start + 1); },
};

std::vector<int> order_by(const std::vector<StorageBlock>& blocks, Key key) {
  std::vector<std::pair<double, int>> keyed(blocks.size());
  for (size_t b = 0; b < blocks.size(); ++b) keyed[b] = {-key(blocks[b]), static_cast<int>(b)};
  std::sort(keyed.begin(), keyed.end());
  std::vector<int> order;
  order.reserve(blocks.size());
  for (const auto& [negative, id] : keyed) order.push_back(id);
  return order;
}

struct Fit {
  std::vector<StorageBlock> blocks;
  std::vector<int> order;
  Bytes height = -1;
};

template <typename Time>
Fit first_fits(std::vector<StorageBlock>& blocks, Bytes bound) {
  FirstFit<Time> fit;
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
template <typename Time>
void promote(Fit& best, Bytes bound) {
  FirstFit<Time> fit;
  std::vector<StorageBlock> blocks = best.blocks;
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

Bytes height_of(const std::vector<StorageBlock>& blocks) {
  Bytes height = 0;
  for (const StorageBlock& block : blocks) height = std::max(height, block.at + block.bytes);
  return height;
}

template <typename Time>
Bytes assign(std::vector<StorageBlock>& blocks, int steps, int effort) {
  const auto live = live_bytes(blocks, steps);
  const Bytes bound = *std::max_element(live.begin(), live.end());
  Fit best = first_fits<Time>(blocks, bound);
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
    promote<Time>(best, bound);
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

}  // namespace

Bytes assign_addresses(std::vector<StorageBlock>& blocks, int steps, int effort) {
  if (blocks.empty()) return 0;
  const bool narrow = steps <= std::numeric_limits<int16_t>::max();
  return narrow ? assign<int16_t>(blocks, steps, effort) : assign<int>(blocks, steps, effort);
}

}  // namespace pl
