// Random changes to entries of the pool, for what greedy steps do not reach: some drops go, some
// gaps are closed, and what is left over is taken back. Numbers come from a fixed seed, so that
// equal problems give equal pools.
#include <algorithm>

#include "plan/search/engines.h"

namespace pl {
namespace {

class Shaker {
 public:
  Shaker(Space& space, double share) : space_(space), share_(share) {}

  void run() {
    int idle = 0;
    while (!space_.spent(share_) && idle < kIdle) {
      const auto& entries = space_.pool.entries();
      const Choice entry = entries[below(entries.size())];
      // A target near the entry's peak, mostly below: the least peak is the hardest to reach.
      const double factor = 0.9 + 0.12 * real();
      const auto target = static_cast<Bytes>(factor * static_cast<double>(entry.score.peak));
      entered_ = false;
      shake(entry, std::max(target, space_.bound));
      idle = entered_ ? 0 : idle + 1;
    }
  }

 private:
  static constexpr int kIdle = 20000;

  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  size_t below(size_t limit) { return static_cast<size_t>(next() % limit); }
  double real() { return static_cast<double>(next() >> 11) * 0x1p-53; }

  bool score(Choice& choice, Bytes target) {
    const size_t before = space_.pool.entered();
    const bool valid = space_.score(choice, target);
    entered_ |= space_.pool.entered() != before;
    return valid;
  }

  void shake(const Choice& entry, Bytes target) {
    Choice now = entry;
    for (size_t gone = below(4); gone > 0 && !now.drops.empty(); --gone)
      now.drops.erase(now.drops.begin() + static_cast<std::ptrdiff_t>(below(now.drops.size())));
    if (!score(now, target)) return;
    for (int more = 1 + static_cast<int>(below(4)); more > 0; --more) {
      const View view = space_.view(now, target);
      if (view.gaps.empty()) break;
      Gap gap = view.gaps[below(view.gaps.size())];
      if (real() < 0.3) {
        const int to = gap.from + 1 + static_cast<int>(below(index(gap.to - gap.from)));
        if (view.anchor[index(gap.from)] < view.anchor[index(to)]) gap = end_early(view, gap, to);
      }
      const int depth = kClosures[below(std::size(kClosures))];
      Proposal proposal{{close_gap(space_, view, gap, depth, real() < 0.5)}};
      Choice changed{apply(now.drops, proposal, 1), {}};
      if (score(changed, target)) now = std::move(changed);
    }
    take_back(now);
  }

  // Each drop goes if that costs no bytes.
  void take_back(Choice& now) {
    const Bytes peak = now.score.peak;
    for (size_t i = now.drops.size(); i-- > 0;) {
      Choice less = now;
      less.drops.erase(less.drops.begin() + static_cast<std::ptrdiff_t>(i));
      if (score(less, peak) && less.score.peak <= peak && less.score.ms <= now.score.ms)
        now = std::move(less);
    }
  }

  Space& space_;
  double share_;
  uint64_t state_ = 1;
  bool entered_ = false;
};

}  // namespace

void shake(Space& space, double share) {
  if (!space.large()) Shaker(space, share).run();  // too rarely of use to be worth it otherwise
}

}  // namespace pl
