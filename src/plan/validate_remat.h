// What the validator knows of checkpointing by hand.
#pragma once

#include "graph/graph.h"

namespace pl {

// Per node: values that are forgotten when it has run for the first time. A step that reads one
// later must find a copy that was made later. `content`: per value, whose bytes it has.
std::vector<std::vector<ValueId>> forgotten_behind(const Graph& graph,
                                                   const std::vector<ValueId>& content);

}  // namespace pl
