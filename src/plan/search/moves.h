// Moves: ways to change a choice. Each is one file with one function, and one line in the list of
// moves.cc; engines try whatever the list proposes.
#pragma once

#include "plan/search/space.h"

namespace pl {

// Drops that come and drops that go. One that comes wins over the same one that goes.
struct Change {
  std::vector<Drop> add, remove;
};

// Changes that belong together, such as one for each of the repeated blocks. An engine applies all
// of them or, where that is enough, the first few.
struct Proposal {
  std::vector<Change> parts;
};

enum class Goal : uint8_t {
  fewer_bytes,  // the view lies above its target
  less_time,    // the view lies below its target
};

struct Move {
  const char* name;
  Goal goal;
  // Appends proposals, the most promising first. Sees nothing but the view: equal views, equal
  // proposals.
  void (*propose)(const Space&, const View&, std::vector<Proposal>&);
};

std::span<const Move> moves();
std::vector<Proposal> propose(const Space& space, const View& view, Goal goal);

// The choice's drops with the first `parts` parts of the proposal.
std::vector<Drop> apply(const std::vector<Drop>& drops, const Proposal& proposal, size_t parts);

// ---- the moves, in the order of the list

void drop_gaps(const Space&, const View&, std::vector<Proposal>&);
void undo_drops(const Space&, const View&, std::vector<Proposal>&);
void swap_drops(const Space&, const View&, std::vector<Proposal>&);
void leave_gaps(const Space&, const View&, std::vector<Proposal>&);
void leave_instead(const Space&, const View&, std::vector<Proposal>&);

// ---- what moves share

// How far a dropped value takes its inputs along that would otherwise be held for it alone.
inline constexpr int kClosures[] = {0, 1, 2, 4, 1 << 20};

// A gap that ends at step `to` instead: the value is computed again there, before anyone asks for
// it.
Gap end_early(const View& view, const Gap& gap, int to);

// The drop of `gap` with the inputs up to `depth` links behind it, no more than `most` drops in
// all. False when an input is replaced by then.
bool closure(const Space& space, const View& view, const Gap& gap, int depth, size_t most,
             std::vector<Drop>& drops);

// The closure as a change, empty when there is none. With `take_over`, values computed in this bay
// serve their next bay too.
Change close_gap(const Space& space, const View& view, const Gap& gap, int depth, bool take_over,
                 size_t most = 128);

}  // namespace pl
