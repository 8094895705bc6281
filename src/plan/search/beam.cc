#include <algorithm>

#include "plan/search/engines.h"

namespace pl {
namespace {

constexpr size_t kWidth = 8;
constexpr int kDepth = 4;

}  // namespace

std::optional<Choice> beam(Space& space, const Choice& from, Bytes target) {
  std::vector<Choice> now{from};
  auto better = [](const Choice& a, const Choice& b) {
    if (a.score.excess != b.score.excess) return a.score.excess < b.score.excess;
    return a.score.ms < b.score.ms;
  };
  for (int depth = 0; depth < kDepth && !space.spent(); ++depth) {
    std::vector<Choice> next;
    for (const Choice& choice : now) {
      const View view = space.view(choice, target);
      for (const Proposal& proposal : propose(space, view, Goal::fewer_bytes)) {
        Choice changed{apply(choice.drops, proposal, proposal.parts.size()), {}};
        if (changed.drops != choice.drops && space.score(changed, target))
          next.push_back(std::move(changed));
      }
    }
    std::stable_sort(next.begin(), next.end(), better);
    next.erase(std::unique(next.begin(), next.end(),
                           [](const Choice& a, const Choice& b) { return a.drops == b.drops; }),
               next.end());
    if (next.empty()) return std::nullopt;
    if (better(next[0], from) && next[0].score.excess < from.score.excess) return next[0];
    if (next.size() > kWidth) next.resize(kWidth);
    now = std::move(next);
  }
  return std::nullopt;
}

}  // namespace pl
