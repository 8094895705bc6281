// A graph as the search sees it: aliases resolved, variables without bytes, in-place pairs checked.
#pragma once

#include <span>
#include <vector>

#include "plan/plan.h"
#include "plan/problem.h"

namespace pl {

struct GraphProblem {
  Problem problem;              // values as the graph's; those that are aliases stay unused
  std::vector<NodeId> node_of;  // per node of the problem: the graph's
  std::vector<ValueId> root;    // per value: the one whose bytes it has
  std::vector<bool> outside;    // per root: its bytes lie outside the transient part
  std::vector<std::vector<int>> read_of;  // per node of the problem and operand: index into reads
};

// `loop`: the graph is its body; what the loop slices and stacks lies outside.
GraphProblem make_problem(const Graph& graph, std::span<const Facts> facts, Bytes alignment,
                          const Loop* loop = nullptr);

}  // namespace pl
