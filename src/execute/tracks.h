// Tracks: where the trips of a loop have the values that they take slices of, and what kernels may
// then take for granted of addresses.
#pragma once

#include <vector>

#include "graph/graph.h"
#include "op/op.h"

namespace pl {

// A body's sliced or stacked value, or an alias of one.
struct Track {
  ValueId value;
  std::vector<Bytes> at;  // per trip, from the first one's place
};
std::vector<Track> tracks_of(const Graph& graph, const Loop& loop);

// For each node of the loop's body, in bytes: empty lists where all operands are aligned in full.
std::vector<Alignments> alignments_of(const Graph& graph, const Loop& loop);

}  // namespace pl
