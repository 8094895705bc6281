// Depth-first search over canonical assignments, after MiniMalloc. Any assignment can be pushed
// down until each block rests on the bottom or on another block; sorted by offset, each block then
// lies at the highest end of the blocks before it that it meets in time. So it is enough to choose
// an order: the next block lies on the *floor* below it, and offsets never fall.
//
// Prunes:
// - a section of time whose floor (the lowest place of a block still to come there, and no lower
// than
//   the last offset) plus the bytes still to come exceeds the capacity;
// - a block at or above the end that another one would have if it came now: that one could be moved
//   below, so the other order is at least as good;
// - at one offset, any order of blocks but that of their rank.
// Time is cut, before the search and behind each placed block, where no block to come is live on
// both sides; the parts are searched one by one.
#include "plan/address_search.h"

#include <algorithm>
#include <array>
#include <limits>
#include <numeric>

namespace pl {
namespace {

// What decides among blocks with the same floor: larger values first, in the order given.
enum class Trait : uint8_t { width, area, crowding };
constexpr std::array<Trait, 3> kTastes[] = {
    {Trait::width, Trait::area, Trait::crowding},
    {Trait::crowding, Trait::area, Trait::width},
    {Trait::crowding, Trait::width, Trait::area},
};

constexpr size_t kMostLookedAt = 256;

// Sizes and offsets are counted in units of `unit` bytes, which divides all sizes: `Size` may then
// be narrow, and more of them are compared at once.
template <typename Size>
class Fitting {
 public:
  Fitting(const std::vector<StorageBlock>& blocks, Bytes capacity, Bytes unit)
      : unit_(unit), capacity_(static_cast<Size>(capacity / unit)) {
    for (size_t b = 0; b < blocks.size(); ++b) {
      if (blocks[b].bytes == 0) continue;
      ids_.push_back(static_cast<int>(b));
      blocks_.push_back(blocks[b]);
      sizes_.push_back(static_cast<Size>(blocks[b].bytes / unit));
    }
    find_sections();
    find_neighbours();
  }

  // All tastes in turn, each time with more visits, up to `visits` in all. A run that never goes
  // back visits each block once for each that is placed.
  bool run(int64_t visits) {
    if (*std::max_element(total_.begin(), total_.end()) > capacity_) return false;
    const auto count = static_cast<int64_t>(ids_.size());
    for (int64_t round = std::max<int64_t>(count * count, 1000); visits > 0; round *= 2)
      for (const auto& taste : kTastes) {
        visits_left_ = std::min(round, visits);
        visits -= visits_left_;
        if (visits_left_ <= 0) return false;
        start(taste);
        if (split_and_place(order_, 0, 0)) return true;
        if (visits_left_ > 0) return false;  // everything was searched
      }
    return false;
  }
  void write(std::vector<StorageBlock>& blocks) const {
    for (size_t b = 0; b < ids_.size(); ++b) blocks[index(ids_[b])].at = offset_[b] * unit_;
  }

 private:
  // A section is a set of blocks live at one time that no neighbouring time's set contains: it
  // stands at a start behind which, before the next start, a block ends.
  void find_sections() {
    std::vector<std::pair<int, int>> events;  // (time, 0: start, 1: end)
    for (const StorageBlock& block : blocks_) {
      events.emplace_back(block.start, 0);
      events.emplace_back(block.end, 1);
    }
    std::sort(events.begin(), events.end());
    std::vector<int> times;
    for (size_t e = 0; e + 1 < events.size(); ++e)
      if (events[e].second == 0 && events[e + 1].second == 1) times.push_back(events[e].first);
    std::vector<Bytes> total(std::max<size_t>(times.size(), 1), 0);
    for (size_t b = 0; b < blocks_.size(); ++b) {
      const StorageBlock& block = blocks_[b];
      const auto first = std::lower_bound(times.begin(), times.end(), block.start);
      const auto last = std::upper_bound(times.begin(), times.end(), block.end);
      spans_.push_back(
          {static_cast<int>(first - times.begin()), static_cast<int>(last - times.begin())});
      for (int s = spans_.back().first; s < spans_.back().last; ++s) total[index(s)] += sizes_[b];
    }
    for (Bytes sum : total)
      total_.push_back(static_cast<Size>(std::min<Bytes>(sum, capacity_ + 1)));
  }

  void find_neighbours() {
    std::vector<int> by_start(ids_.size()), count(ids_.size() + 1, 0);
    std::iota(by_start.begin(), by_start.end(), 0);
    std::stable_sort(by_start.begin(), by_start.end(),
                     [&](int a, int b) { return spans_[index(a)].first < spans_[index(b)].first; });
    auto each_pair = [&](auto&& visit) {
      for (size_t i = 0; i < by_start.size(); ++i)
        for (size_t j = i + 1; j < by_start.size() &&
                               spans_[index(by_start[j])].first < spans_[index(by_start[i])].last;
             ++j)
          visit(by_start[i], by_start[j]);
    };
    each_pair([&](int a, int b) { ++count[index(a) + 1], ++count[index(b) + 1]; });
    for (size_t b = 1; b < count.size(); ++b) count[b] += count[b - 1];
    neighbour_at_ = count;
    neighbours_.resize(index(count.back()));
    each_pair([&](int a, int b) {
      neighbours_[index(count[index(a)]++)] = b;
      neighbours_[index(count[index(b)]++)] = a;
    });
  }

  void start(const std::array<Trait, 3>& taste) {
    auto traits = [&](int b) {
      const StorageBlock& block = blocks_[index(b)];
      const double width = block.end - block.start + 1;
      Size crowding = 0;
      for (int s = spans_[index(b)].first; s < spans_[index(b)].last; ++s)
        crowding = std::max(crowding, total_[index(s)]);
      std::array<double, 3> values;
      for (size_t t = 0; t < taste.size(); ++t)
        values[t] = taste[t] == Trait::width  ? width
                    : taste[t] == Trait::area ? width * static_cast<double>(block.bytes)
                                              : static_cast<double>(crowding);
      return values;
    };
    std::vector<std::array<double, 3>> values;
    for (size_t b = 0; b < ids_.size(); ++b) values.push_back(traits(static_cast<int>(b)));
    order_.resize(ids_.size());
    std::iota(order_.begin(), order_.end(), 0);
    std::stable_sort(order_.begin(), order_.end(),
                     [&](int a, int b) { return values[index(a)] > values[index(b)]; });
    rank_.resize(ids_.size());
    for (size_t i = 0; i < order_.size(); ++i) rank_[index(order_[i])] = static_cast<int>(i);
    low_.assign(ids_.size(), 0);
    offset_.assign(ids_.size(), -1);
    left_ = total_;
    least_.assign(total_.size(), 0);
    floor_.assign(total_.size(), 0);
    crossing_.assign(total_.size(), 0);
    for (const Span& span : spans_)
      for (int s = span.first + 1; s < span.last; ++s) ++crossing_[index(s)];
    trail_.clear();
    floors_before_.clear();
  }

  // Places `part`, unplaced blocks in rank order, cutting it where time allows.
  bool split_and_place(const std::vector<int>& part, Size last, int last_rank) {
    if (part.empty()) return true;
    std::vector<int> by_start = part;
    std::stable_sort(by_start.begin(), by_start.end(),
                     [&](int a, int b) { return spans_[index(a)].first < spans_[index(b)].first; });
    for (size_t begin = 0; begin < by_start.size();) {
      int end = spans_[index(by_start[begin])].last;
      size_t next = begin + 1;
      for (; next < by_start.size() && spans_[index(by_start[next])].first < end; ++next)
        end = std::max(end, spans_[index(by_start[next])].last);
      std::vector<int> piece(by_start.begin() + static_cast<std::ptrdiff_t>(begin),
                             by_start.begin() + static_cast<std::ptrdiff_t>(next));
      const int first = spans_[index(piece[0])].first;
      std::sort(piece.begin(), piece.end(),
                [&](int a, int b) { return rank_[index(a)] < rank_[index(b)]; });
      if (!place_next(piece, first, end, last, last_rank)) return false;
      begin = next;
    }
    return true;
  }

  // Tries the blocks of a part that cannot be cut, lowest place first, then by rank.
  bool place_next(const std::vector<int>& part, int first, int end, Size last, int last_rank) {
    // One pass for both: the lowest block always lies below the least end.
    Size least_end = capacity_ + 1, low = capacity_ + 1;
    int best = -1;
    for (int b : part) {
      const Size here = low_[index(b)];
      least_end = std::min(least_end, here + sizes_[index(b)]);
      if (here < low && (here > last || (here == last && rank_[index(b)] >= last_rank)))
        best = b, low = here;
    }
    if (least_end <= last || low >= least_end) return false;
    while (best >= 0) {
      visits_left_ -= static_cast<int64_t>(part.size());
      if (visits_left_ <= 0) return false;
      const size_t mark = trail_.size();
      const bool cut = place(best);
      if (floors_fit(first, end, low)) {
        std::vector<int> rest;
        rest.reserve(part.size());
        for (int other : part)
          if (other != best) rest.push_back(other);
        if (rest.empty()) return true;
        if (lows_fit(rest, first, end, low) &&
            (cut ? split_and_place(rest, low, rank_[index(best)])
                 : place_next(rest, first, end, low, rank_[index(best)])))
          return true;
      }
      take_back(mark);
      if (visits_left_ <= 0) return false;
      best = next_lowest(part, low, rank_[index(best)], least_end);
      if (best >= 0) low = low_[index(best)];
    }
    return false;
  }

  // The lowest block of the part behind (low, rank) and below `limit`; -1: none.
  int next_lowest(const std::vector<int>& part, Size low, int rank, Size limit) const {
    int best = -1;
    for (int b : part) {
      const Size here = low_[index(b)];
      if (here < limit && (here > low || (here == low && rank_[index(b)] > rank)))
        best = b, limit = here;
    }
    return best;
  }

  bool floors_fit(int first, int end, Size last) const {
    for (int s = first; s < end; ++s)
      if (left_[index(s)] > 0 && std::max(floor_[index(s)], last) + left_[index(s)] > capacity_)
        return false;
    return true;
  }
  // Sharper, with the lowest place of a block to come; where it is not too much work.
  bool lows_fit(const std::vector<int>& rest, int first, int end, Size last) {
    if (rest.size() > kMostLookedAt) return true;
    // Sections that fit even above the highest of these blocks need no look.
    Size highest = last;
    for (int b : rest) highest = std::max(highest, low_[index(b)]);
    auto fits = [&](int s) {
      return left_[index(s)] == 0 || left_[index(s)] + highest <= capacity_;
    };
    while (first < end && fits(first)) ++first;
    while (first < end && fits(end - 1)) --end;
    if (first == end) return true;
    for (int s = first; s < end; ++s) least_[index(s)] = capacity_ + 1;
    for (int b : rest) {
      const Size low = low_[index(b)];
      const int stop = std::min(spans_[index(b)].last, end);
      for (int s = std::max(spans_[index(b)].first, first); s < stop; ++s)
        least_[index(s)] = std::min(least_[index(s)], low);
    }
    for (int s = first; s < end; ++s)
      if (left_[index(s)] > 0 && std::max(least_[index(s)], last) + left_[index(s)] > capacity_)
        return false;
    return true;
  }

  // Answers whether time can be cut somewhere now.
  bool place(int b) {
    bool cut = false;
    for (int s = spans_[index(b)].first + 1; s < spans_[index(b)].last; ++s)
      cut |= --crossing_[index(s)] == 0;
    const Size end = low_[index(b)] + sizes_[index(b)];
    offset_[index(b)] = low_[index(b)];
    for (int s = spans_[index(b)].first; s < spans_[index(b)].last; ++s) {
      left_[index(s)] -= sizes_[index(b)];
      floors_before_.push_back(floor_[index(s)]);
      floor_[index(s)] = end;
    }
    for (int n = neighbour_at_[index(b)]; n < neighbour_at_[index(b) + 1]; ++n) {
      const int other = neighbours_[index(n)];
      if (offset_[index(other)] >= 0 || low_[index(other)] >= end) continue;
      trail_.push_back({other, low_[index(other)]});
      low_[index(other)] = end;
    }
    trail_.push_back({-1 - b, 0});
    return cut;
  }

  void take_back(size_t mark) {
    while (trail_.size() > mark) {
      const auto [b, low] = trail_.back();
      trail_.pop_back();
      if (b >= 0) {
        low_[index(b)] = low;
        continue;
      }
      const int placed = -1 - b;
      offset_[index(placed)] = -1;
      for (int s = spans_[index(placed)].first + 1; s < spans_[index(placed)].last; ++s)
        ++crossing_[index(s)];
      for (int s = spans_[index(placed)].last; s-- > spans_[index(placed)].first;) {
        left_[index(s)] += sizes_[index(placed)];
        floor_[index(s)] = floors_before_.back();
        floors_before_.pop_back();
      }
    }
  }

  struct Span {
    int first, last;  // sections [first, last)
  };
  struct Before {
    int block;  // -1 - b: block b was placed
    Size low;
  };

  std::vector<int> ids_;              // of the blocks with bytes
  std::vector<StorageBlock> blocks_;  // those
  std::vector<Size> sizes_;           // of those
  Bytes unit_;
  Size capacity_;
  std::vector<Span> spans_;  // per block
  std::vector<int> neighbour_at_, neighbours_;
  std::vector<Size> total_;        // per section: bytes live
  std::vector<int> order_, rank_;  // blocks by taste, and back
  std::vector<Size> left_;         // per section: bytes still to come
  std::vector<Size> least_;        // per section: the lowest place of a block still to come
  std::vector<int> crossing_;      // per section: blocks still to come that are live before it too
  std::vector<Size> floor_;        // per section: the highest end so far
  std::vector<Size> low_;          // per block: the floor below it
  std::vector<Size> offset_;       // per block; -1: not placed
  std::vector<Before> trail_;
  std::vector<Size> floors_before_;
  int64_t visits_left_ = 0;
};

}  // namespace

bool fit_within(std::vector<StorageBlock>& blocks, Bytes capacity, int64_t visits) {
  Bytes unit = 0;
  for (const StorageBlock& block : blocks) unit = std::gcd(unit, block.bytes);
  if (unit == 0) unit = 1;
  auto fit = [&](auto fitting) {
    if (!fitting.run(visits)) return false;
    for (StorageBlock& block : blocks) block.at = 0;  // those without bytes
    fitting.write(blocks);
    return true;
  };
  // A floor is at most twice the capacity, and what is to come above it once more.
  const bool narrow = capacity / unit < std::numeric_limits<int32_t>::max() / 4;
  return narrow ? fit(Fitting<int32_t>(blocks, capacity, unit))
                : fit(Fitting<Bytes>(blocks, capacity, unit));
}

}  // namespace pl
