// The validator's reading of a loop over bands: see bands.h for what makes such a loop right.
#pragma once

#include "graph/graph.h"

namespace pl {

// Throws InternalError at the first thing that would make the sums of `loop`, a loop of `graph`
// with bands, differ from those over whole images. Works forwards, in rows of the band itself, and
// shares no code with bands.cc.
void validate_bands(const Graph& graph, const Loop& loop);

}  // namespace pl
