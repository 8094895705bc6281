// lower_bound(): bytes that no order of the nodes, with any repetition, stays below.
//
// Words: node q comes *after* node i if in every valid order the first run of q follows the first
// run of i. That holds if q reads what i writes, or replaces what i reads (nobody may read it
// then), and along chains of these. A value is *single* if no node can write it twice: it has no
// producer, or one that must not run again.
//
// Level 0. Look at the first run of node i. Its reads, its writes and its workspace are live. So is
// every single value that exists by then (no producer, or the producer comes before i) and is
// needed later (kept, or read by a node after i): there is no other copy to come. Only a write that
// may take the bytes of a read can share, and only if that read is not such a value; each read
// serves one write. So
//   footprint(i, held) = bytes(reads + writes + held) + workspace - what can share at most.
//
// Levels 1, 2, ... Let S be values whose copies are all live just before a run of some node, before
// the first run of i. At the start S is what i reads, and the values without producer that are
// needed from then on. One of the copies in S was written last, by a run of node P. During that run
// all others of S are live already, so the peak is at least footprint(P, S), and just before it all
// of (S - writes(P)) + reads(P) is live: S for the next level. P is not known; but it is the
// producer of a value in S, so that the least over these producers of the larger of footprint(P, S)
// and the bound of the next level holds. A level that is not looked at gives 0, which is valid; the
// number of levels and of looks is bounded.
//
// Where values may leave for another memory, no value has to be there because it cannot be made a
// second time, and a copy may be there without a node that wrote it: what holds is each node's own
// footprint, and what is there at the ends.
#include <algorithm>

#include "plan/search/flat.h"

namespace pl {
namespace {

constexpr int kLevels = 12;
constexpr int kLooksPerNode = 400;
constexpr int64_t kLooks = 200'000;
constexpr int64_t kMostWords = 1'000'000;  // of the sets of single values, in all

class Bound {
 public:
  explicit Bound(const Problem& problem)
      : flat_(problem), mark_(index(flat_.values), 0), role_(index(flat_.values), 0) {}

  Bytes run() {
    if (!flat_.marked) find_single_values();
    for (int n = 0; n < flat_.nodes; ++n) best_ = std::max(best_, first_level(n));
    best_ = std::max(best_, ends());
    if (flat_.marked) return best_;
    // Large nodes first: they are the likely ones, and the number of looks is bounded.
    std::vector<int> order(index(flat_.nodes));
    for (int n = 0; n < flat_.nodes; ++n) order[index(n)] = n;
    std::vector<Bytes> size(index(flat_.nodes));
    for (int n = 0; n < flat_.nodes; ++n) size[index(n)] = first_level(n);
    std::stable_sort(order.begin(), order.end(),
                     [&](int a, int b) { return size[index(a)] > size[index(b)]; });
    for (int n : order) {
      looks_left_ = static_cast<int>(std::min<int64_t>(kLooksPerNode, kLooks - looks_));
      if (looks_left_ <= 0) break;
      std::vector<int> held = needed_sources(n);
      merge(held, flat_.reads(n));
      best_ = std::max(best_, further_levels(held, kLevels));
    }
    return best_;
  }

 private:
  using Set = std::vector<uint64_t>;  // one row of bits for each node

  // before_: single values that exist at a node's first run; after_: those read by nodes after it.
  void find_single_values() {
    for (int v = 0; v < flat_.values; ++v) {
      const int producer = flat_.producer[index(v)];
      if (flat_.bytes[index(v)] > 0 && (producer < 0 || !flat_.rerun[index(producer)]))
        singles_.push_back(v);
    }
    words_ = (singles_.size() + 63) / 64;
    if (static_cast<int64_t>(words_) * flat_.nodes > kMostWords) {
      singles_.clear();  // less is claimed
      words_ = 0;
    }
    std::vector<int> number(index(flat_.values), -1);
    for (size_t i = 0; i < singles_.size(); ++i) number[index(singles_[i])] = static_cast<int>(i);
    before_.assign(words_ * index(flat_.nodes), 0);
    after_ = before_;
    for (int n = 0; n < flat_.nodes; ++n)
      for (int value : flat_.reads(n)) {
        const int producer = flat_.producer[index(value)];
        if (producer >= 0) join(before_, n, producer, flat_.writes(producer), number);
      }
    for (int n = flat_.nodes; n-- > 0;) {
      for (int value : flat_.writes(n))
        for (int user : flat_.uses(value)) join(after_, n, user, flat_.reads(user), number);
      for (int value : flat_.reads(n)) {
        const int next = flat_.replaced_by[index(value)];
        if (next >= 0 && next != n) join(after_, n, next, flat_.reads(next), number);
      }
    }
  }

  // The set of `node` gets that of `other` and the single values among `also`.
  void join(Set& set, int node, int other, std::span<const int> also,
            const std::vector<int>& number) const {
    for (size_t w = 0; w < words_; ++w)
      set[index(node) * words_ + w] |= set[index(other) * words_ + w];
    for (int value : also)
      if (const int i = number[index(value)]; i >= 0)
        set[index(node) * words_ + index(i) / 64] |= uint64_t{1} << (i % 64);
  }
  bool in(const Set& set, int node, size_t i) const {
    return (set[index(node) * words_ + i / 64] >> (i % 64)) & 1;
  }

  // Single values that are live at the first run of a node whether it uses them or not.
  std::vector<int> held_at(int node, bool sources_only) const {
    std::vector<int> held;
    for (size_t i = 0; i < singles_.size(); ++i) {
      const int value = singles_[i];
      const bool source = flat_.producer[index(value)] < 0;
      if (!source && (sources_only || !in(before_, node, i))) continue;
      if (flat_.keep[index(value)] || in(after_, node, i)) held.push_back(value);
    }
    return held;
  }
  std::vector<int> needed_sources(int node) const { return held_at(node, true); }
  Bytes first_level(int node) { return footprint(node, held_at(node, false)); }

  // Before the first step all sources are there, behind the last all kept values.
  Bytes ends() const {
    Bytes sources = 0;
    for (int v = 0; v < flat_.values; ++v)
      if (flat_.producer[index(v)] < 0) sources += flat_.bytes[index(v)];
    return std::max(sources, flat_.kept_bytes);
  }

  Bytes footprint(int node, std::span<const int> held) {
    ++mark_now_;
    Bytes total = flat_.workspace[index(node)];
    auto count = [&](int value) {
      if (mark_[index(value)] == mark_now_) return;
      mark_[index(value)] = mark_now_;
      total += flat_.bytes[index(value)];
    };
    for (int value : held) count(value);
    const int64_t is_held = mark_now_;
    // A write that is held is the very copy, so it counts once; a read that is held cannot share.
    Bytes writes_sharing = 0, reads_sharing = 0;
    ++role_now_;
    for (const InOut& pair : flat_.pairs(node)) {
      if (mark_[index(pair.in)] == is_held) continue;
      for (int value : {pair.in, pair.out}) {
        if (role_[index(value)] == role_now_) continue;
        role_[index(value)] = role_now_;
        (value == pair.in ? reads_sharing : writes_sharing) += flat_.bytes[index(value)];
      }
    }
    for (int value : flat_.reads(node)) count(value);
    for (int value : flat_.writes(node)) count(value);
    return total - std::min(writes_sharing, reads_sharing);
  }

  static void merge(std::vector<int>& set, std::span<const int> more) {
    set.insert(set.end(), more.begin(), more.end());
    std::sort(set.begin(), set.end());
    set.erase(std::unique(set.begin(), set.end()), set.end());
  }

  // The least peak, as far as is looked, of getting the copies `held` to be live together. Answers
  // as soon as it cannot exceed best_.
  Bytes further_levels(const std::vector<int>& held, int levels) {
    if (levels == 0 || looks_left_ <= 0) return 0;
    Bytes least = -1;
    for (size_t i = 0; i < held.size(); ++i) {
      const int node = flat_.producer[index(held[i])];
      if (node < 0 || flat_.bytes[index(held[i])] == 0) continue;
      --looks_left_;
      ++looks_;
      Bytes bound = footprint(node, held);
      if (bound <= best_) {
        std::vector<int> next;
        next.reserve(held.size() + flat_.reads(node).size());
        for (int value : held)
          if (flat_.producer[index(value)] != node) next.push_back(value);
        for (int value : flat_.reads(node)) {  // what has no bytes is no copy to wait for
          if (flat_.bytes[index(value)] == 0) continue;
          const auto at = std::lower_bound(next.begin(), next.end(), value);
          if (at == next.end() || *at != value) next.insert(at, value);
        }
        bound = std::max(bound, further_levels(next, levels - 1));
      }
      if (bound <= best_) return bound;
      least = least < 0 ? bound : std::min(least, bound);
    }
    return std::max<Bytes>(least, 0);
  }

  Flat flat_;
  std::vector<int> singles_;
  size_t words_ = 0;
  Set before_, after_;
  std::vector<int64_t> mark_, role_;  // per value: stamps
  int64_t mark_now_ = 0, role_now_ = 0, looks_ = 0;
  int looks_left_ = 0;
  Bytes best_ = 0;
};

}  // namespace

Bytes lower_bound(const Problem& problem) { return Bound(problem).run(); }

}  // namespace pl
