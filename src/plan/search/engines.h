// Engines: ways to fill the pool. Each is one file with one function, and one line in the list of
// search.cc. They run in that order; each may start from what the pool holds.
#pragma once

#include "plan/search/moves.h"

namespace pl {

struct Engine {
  const char* name;
  double share;  // it stops when this share of all effort is spent
  void (*run)(Space&, double share);
};

// Steps to walk in all.
int64_t effort_for(int nodes, int effort);
// Few enough entries for addresses.
std::vector<Choice> thin(const std::vector<Choice>& entries, size_t nodes);

// Values held over the fullest step in equal parts, each computed again as a whole.
void segments(Space& space, double share);

// Goes down a ladder of targets with the moves; `eagerness` 0.5, 1, 2: how much a large step
// counts.
void descend(Space& space, double share, double eagerness);
void ladder(Space& space, double share);

// Changes entries of the pool by all moves until nothing new enters it.
void improve(Space& space, double share);

// Random changes to entries of the pool, until nothing enters it for long.
void shake(Space& space, double share);

// Several choices side by side, moves that do not yet help allowed: for where descend() is stuck.
// The answer has less excess than `from`, or is nothing.
std::optional<Choice> beam(Space& space, const Choice& from, Bytes target);

}  // namespace pl
