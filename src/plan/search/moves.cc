// The list of moves. A new one is a file with a function like drop_gaps() and a line here.
#include "plan/search/moves.h"

#include <algorithm>

namespace pl {
namespace {

constexpr Move kMoves[] = {
    {"drop_gaps", Goal::fewer_bytes, drop_gaps},
    {"undo_drops", Goal::less_time, undo_drops},
    {"swap_drops", Goal::less_time, swap_drops},
    {"leave_gaps", Goal::fewer_bytes, leave_gaps},
    {"leave_instead", Goal::less_time, leave_instead},
};

void sort_unique(std::vector<Drop>& drops) {
  std::sort(drops.begin(), drops.end(), by_place);
  drops.erase(std::unique(drops.begin(), drops.end()), drops.end());
}

}  // namespace

std::span<const Move> moves() { return kMoves; }

std::vector<Proposal> propose(const Space& space, const View& view, Goal goal) {
  std::vector<Proposal> proposals;
  for (const Move& move : moves())
    if (move.goal == goal) move.propose(space, view, proposals);
  return proposals;
}

std::vector<Drop> apply(const std::vector<Drop>& drops, const Proposal& proposal, size_t parts) {
  std::vector<Drop> add, remove, result;
  for (size_t p = 0; p < parts; ++p) {
    const Change& change = proposal.parts[p];
    add.insert(add.end(), change.add.begin(), change.add.end());
    remove.insert(remove.end(), change.remove.begin(), change.remove.end());
  }
  sort_unique(add);
  sort_unique(remove);
  std::set_difference(drops.begin(), drops.end(), remove.begin(), remove.end(),
                      std::back_inserter(result), by_place);
  std::vector<Drop> all;
  std::set_union(result.begin(), result.end(), add.begin(), add.end(), std::back_inserter(all),
                 by_place);
  return all;
}

}  // namespace pl
