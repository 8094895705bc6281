// The ladder: targets from the peak without drops down to the lower bound, each starting from where
// the one above ended. On each rung the cheapest way down is taken until the target is met; then
// drops that are not needed are taken back.
#include <algorithm>
#include <cmath>

#include "plan/search/engines.h"

namespace pl {
namespace {

constexpr int kRungs = 24, kRungsOfLarge = 20;
constexpr size_t kMoreOfOneLook = 6;
constexpr double kStale = 1.2;
constexpr double kEagerness[] = {1.0, 0.5, 2.0};

class Descent {
 public:
  Descent(Space& space, double share, double eagerness)
      : space_(space), share_(share), eagerness_(eagerness) {}

  void run() {
    Choice now;
    if (!space_.score(now, 0)) return;
    const double high = static_cast<double>(now.score.peak);
    const int rungs = space_.large() ? kRungsOfLarge : kRungs;
    const double low = static_cast<double>(std::max<Bytes>(space_.bound, 1));
    for (int rung = 1; rung <= rungs && !space_.spent(share_); ++rung) {
      const auto target = static_cast<Bytes>(
          std::floor(high * std::pow(low / high, static_cast<double>(rung) / rungs)));
      space_.score(now, target);
      bool met = now.score.excess == 0;
      while (!met && !space_.spent(share_)) {
        std::optional<Choice> next = step_down(now, target);
        if (!next && !space_.spent(share_)) next = beam(space_, now, target);
        if (!next) return;  // lower rungs are out of reach too
        now = std::move(*next);
        met = now.score.excess == 0;
      }
      if (met) take_back(now, target);
    }
  }

 private:
  double rate(const Choice& now, const Choice& next) const {
    const double gain = (now.score.excess - next.score.excess) / now.score.excess;
    const double cost = std::max(next.score.ms - now.score.ms, 1e-9 * now.score.ms);
    return cost / std::pow(gain, eagerness_);
  }

  // The best of what the moves propose: least time for the excess it removes. Then those that came
  // next, as long as they are still about as good on top of it: proposing anew costs more.
  std::optional<Choice> step_down(const Choice& start, Bytes target) {
    const View view = space_.view(start, target);
    const auto proposals = propose(space_, view, Goal::fewer_bytes);
    struct Found {
      double rate;
      size_t proposal;
      Choice choice;
    };
    std::vector<Found> found;
    for (size_t p = 0; p < proposals.size(); ++p)
      if (auto next = least_that_helps(start, proposals[p], target))
        found.push_back({rate(start, *next), p, std::move(*next)});
    if (found.empty()) return std::nullopt;
    std::stable_sort(found.begin(), found.end(),
                     [](const Found& a, const Found& b) { return a.rate < b.rate; });
    Choice now = found[0].choice;
    const size_t most = std::min<size_t>(found.size(), 1 + kMoreOfOneLook);
    for (size_t f = 1; f < most && now.score.excess > 0; ++f) {
      auto next = least_that_helps(now, proposals[found[f].proposal], target);
      if (next && rate(now, *next) <= kStale * found[f].rate) now = std::move(*next);
    }
    return now;
  }

  // The proposal as a whole or, if that meets the target, as few of its parts as do.
  std::optional<Choice> least_that_helps(const Choice& now, const Proposal& proposal,
                                         Bytes target) {
    Choice best{apply(now.drops, proposal, proposal.parts.size()), {}};
    if (!space_.score(best, target) || best.score.excess >= now.score.excess) return std::nullopt;
    size_t too_few = 0, enough = proposal.parts.size();
    while (best.score.excess == 0 && too_few + 1 < enough) {
      const size_t middle = (too_few + enough) / 2;
      Choice part{apply(now.drops, proposal, middle), {}};
      if (space_.score(part, target) && part.score.excess == 0) {
        enough = middle;
        best = std::move(part);
      } else {
        too_few = middle;
      }
    }
    return best;
  }

  void take_back(Choice& now, Bytes target) {
    const View view = space_.view(now, target);
    for (const Proposal& proposal : propose(space_, view, Goal::less_time)) {
      Choice next{apply(now.drops, proposal, proposal.parts.size()), {}};
      if (next.drops == now.drops) continue;
      if (space_.score(next, target) && next.score.excess == 0 && next.score.ms <= now.score.ms)
        now = std::move(next);
    }
  }

  Space& space_;
  double share_, eagerness_;
};

}  // namespace

void descend(Space& space, double share, double eagerness) {
  Descent(space, share, eagerness).run();
}

void ladder(Space& space, double share) {
  for (double eagerness : kEagerness) descend(space, share, eagerness);
}

}  // namespace pl
