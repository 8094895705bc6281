// Which pointwise nodes of a graph run as one. A group is a node, its *sink*, with nodes that only
// lead to it; what it makes is the sink's output, so that computing it again is one call as well.
#pragma once

#include <set>
#include <vector>

#include "graph/graph.h"
#include "op/tile_program.h"

namespace pl {

struct PointwiseGroup {
  NodeId sink = -1;
  std::vector<NodeId> members;   // the sink first, in the order in which they joined
  std::vector<ValueId> inlined;  // computed here although others read them too, in their own groups
  std::vector<ValueId> operands;
  TileProgram program;
};

// What grouping must leave alone; grows while a pass tries.
struct GroupLimits {
  std::set<ValueId> stored;       // values that are not computed in several groups
  std::vector<int> most_members;  // per node: of the group it is the sink of
  int most_large_operands = 4;    // that are as large as the result and not variables
};

std::vector<PointwiseGroup> group_pointwise(const Graph& graph, const GroupLimits& limits);

}  // namespace pl
