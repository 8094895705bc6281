// search_away(): plans in which values leave for another memory, from those that do without. Each
// of them is relieved by values that leave as far as copies are hidden, which makes room to compute
// less again, or is a step further down.
#include <algorithm>

#include "plan/search/engines.h"

namespace pl {
namespace {

constexpr double kEffort = 2.0;  // of a search without
constexpr size_t kMostEntries = 24;
constexpr double kRelief = 0.75;  // of its peak is what an entry is relieved towards
constexpr int kMostRounds = 12;

class AwaySearch {
 public:
  AwaySearch(Space& space, double share) : space_(space), share_(share) {}

  void relieve(const Choice& entry) {
    const Bytes peak = entry.score.peak;
    Choice now = entry;
    for (int round = 0; round < kMostRounds && !space_.spent(share_); ++round) {
      const std::optional<Choice> next = leave(now, static_cast<Bytes>(kRelief * peak));
      if (!next) break;
      now = *next;
      // What it is worth: the same bytes in less time.
      Choice faster = now;
      take_back(faster, peak);
    }
  }

 private:
  // The values whose leaving removes the most above the target for the time it takes.
  std::optional<Choice> leave(const Choice& now, Bytes target) {
    Choice start = now;
    if (!space_.score(start, target) || start.score.excess == 0) return std::nullopt;
    const View view = space_.view(start, target);
    std::vector<Proposal> proposals;
    leave_gaps(space_, view, proposals);
    std::optional<Choice> best;
    double best_rate = 0;
    for (const Proposal& proposal : proposals) {
      Choice next{apply(start.drops, proposal, proposal.parts.size()), {}};
      if (!space_.score(next, target) || next.score.excess >= start.score.excess) continue;
      const double gain = (start.score.excess - next.score.excess) / start.score.excess;
      const double cost = std::max(next.score.ms - start.score.ms, 0.0) + 1e-6 * start.score.ms;
      if (const double rate = gain / cost; !best || rate > best_rate) {
        best_rate = rate;
        best = std::move(next);
      }
    }
    return best;
  }

  // Drops go, or leave instead, where the bytes allow it.
  void take_back(Choice& now, Bytes target) {
    const View view = space_.view(now, target);
    for (const Proposal& proposal : propose(space_, view, Goal::less_time)) {
      if (space_.spent(share_)) return;
      Choice next{apply(now.drops, proposal, proposal.parts.size()), {}};
      if (next.drops == now.drops) continue;
      if (space_.score(next, target) && next.score.excess == 0 && next.score.ms < now.score.ms)
        now = std::move(next);
    }
  }

  Space& space_;
  double share_;
};

}  // namespace

std::vector<Candidate> search_away(const Problem& problem, const std::vector<Candidate>& without,
                                   bool again, size_t threads) {
  const auto nodes = static_cast<int>(problem.nodes.size());
  Space space(problem, lower_bound(problem),
              static_cast<int64_t>(kEffort * static_cast<double>(effort_for(nodes, 1))));
  std::vector<Choice> entries;
  auto add = [&](const Drops& drops) {
    Choice choice{placed(drops), {}};
    if (space.score(choice, 0)) entries.push_back(std::move(choice));
  };
  add({});
  for (const Candidate& candidate : without) add(candidate.drops);
  space.again = again;
  space.leaving = true;
  // Each has its part of the effort, and what one leaves over the next ones have. The smallest
  // first: there computing again is dearest.
  const size_t count = std::min(entries.size(), kMostEntries);
  for (size_t e = 0; e < count; ++e) {
    const double share = 0.9 * static_cast<double>(e + 1) / static_cast<double>(count);
    const size_t at = count > 1 ? e * (entries.size() - 1) / (count - 1) : 0;
    AwaySearch(space, share).relieve(entries[entries.size() - 1 - at]);
  }
  improve(space, 1.0);
  const std::vector<Choice> choices = thin(space.pool.entries(), problem.nodes.size());
  std::vector<Drops> drops;
  for (const Choice& choice : choices) {
    drops.push_back(choice.drops);
    std::sort(drops.back().begin(), drops.back().end());
  }
  std::vector<Candidate> result;
  std::vector<std::optional<Candidate>> tried = try_each(problem, drops, threads);
  for (size_t c = 0; c < choices.size(); ++c) {
    if (!tried[c] || tried[c]->stays.empty()) continue;
    tried[c]->peak = choices[c].score.peak;
    if (result.empty() || tried[c]->bytes < result.back().bytes)
      result.push_back(std::move(*tried[c]));
  }
  return result;
}

}  // namespace pl
