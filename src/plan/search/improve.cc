// Local search on the whole pool: each entry is changed by every move once, for a target just below
// its own peak and for its own peak. What enters the pool is changed in its turn.
#include <set>

#include "plan/search/engines.h"

namespace pl {

void improve(Space& space, double share) {
  std::set<std::vector<Drop>> done;
  bool found = true;
  while (found && !space.spent(share)) {
    found = false;
    const std::vector<Choice> entries = space.pool.entries();
    for (const Choice& entry : entries) {
      if (space.spent(share)) break;
      if (!done.insert(entry.drops).second) continue;
      found = true;
      const View view = space.view(entry, entry.score.peak - 1);
      for (Goal goal : {Goal::fewer_bytes, Goal::less_time})
        for (const Proposal& proposal : propose(space, view, goal)) {
          Choice next{apply(entry.drops, proposal, proposal.parts.size()), {}};
          space.score(next, view.target);
          if (proposal.parts.size() > 1) {
            next.drops = apply(entry.drops, proposal, 1);
            space.score(next, view.target);
          }
        }
    }
  }
}

}  // namespace pl
