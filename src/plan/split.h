// Splitting a step over micro-batches: everything that works on samples becomes the body of one
// Loop; what the body sums over samples (gradients, losses, counts) is accumulated over the trips,
// and the rest of the step (the updates) runs behind the loop.
#pragma once

#include <cstdint>
#include <vector>

#include "graph/graph.h"

namespace pl {

// Samples in the batch that the graph was traced with; 0 when no input carries samples.
int64_t samples_of(const Graph& graph);

// The graph with its batch in `trips` equal parts, which must divide the batch. Throws UserError
// naming the layer when an op mixes samples, or when something that was summed over the batch is
// needed to work on its samples.
Graph split_batch(const Graph& graph, int64_t trips);

// The trips worth planning: divisors of the batch, few of the large ones, from 1 to the batch
// itself.
std::vector<int64_t> split_choices(int64_t batch);

}  // namespace pl
