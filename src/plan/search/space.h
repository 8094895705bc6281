// Space: what one search works on. Moves and engines get it, score choices with it, and whatever
// they score enters the pool.
#pragma once

#include "plan/search/pool.h"

namespace pl {

// A value held without use in the lowered order: steps `from` + 1 to `to` - 1. Dropping it means
// {value, at, early}: early only for a kept value behind its last use, which nobody asks for.
struct Gap {
  int value, at;
  int from, to;
  uint64_t kind;  // equal for gaps that play the same role in repeated blocks
  bool early = false;
};

// A choice, lowered, with what moves want to know of it.
struct View {
  std::vector<Drop> drops;
  std::vector<Drop> by_value;  // the same, sorted by (value, at)
  std::vector<int> steps;
  std::vector<int> anchor;  // per step: the node itself, or the one whose bay it is in
  std::vector<Bytes> live;  // per step
  std::vector<int> over;    // per step and one more: how many before it lie above the target
  std::vector<Gap> gaps;
  std::vector<Gap> far;  // over which the value may be away; only where it may
  Score score;
  Bytes target = 0;

  // Copies as closed intervals of steps, per value.
  struct Copy {
    int start, end;
  };
  std::vector<int> copy_at;
  std::vector<Copy> copies;
  bool live_at(int value, int step) const;
  // The last step before `step` at which the value is live; -1: none.
  int last_live_before(int value, int step) const;
};

class Space {
 public:
  Space(const Problem& problem, Bytes bound, int64_t effort);

  // Lowers and scores the choice's drops, and offers it to the pool. False when it is not valid.
  bool score(Choice& choice, Bytes target);
  // Of a valid choice: its steps, and what moves want to know of it.
  const std::vector<int>& steps(const Choice& choice);
  View view(const Choice& choice, Bytes target);
  // So many nodes that a look at one choice is dear: fewer are taken.
  bool large() const { return flat.nodes > 300; }
  bool again = true;     // moves may compute values again
  bool leaving = false;  // moves may send them away
  bool spent() const { return scorer_.walked() >= limit_; }
  bool spent(double share) const {
    return static_cast<double>(scorer_.walked()) >= share * static_cast<double>(limit_);
  }

  const Flat flat;
  const Bytes bound;              // lower_bound
  std::vector<uint64_t> kind_of;  // per node: equal for nodes with equal surroundings
  Pool pool;

 private:
  Scorer scorer_;
  int64_t limit_;
  std::vector<int> steps_;
};

// Per node: its own kind with those of the nodes around it.
std::vector<uint64_t> surroundings(const Problem& problem, const Flat& flat);

}  // namespace pl
