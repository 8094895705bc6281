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

// Per value the one whose bytes it has: itself, or what an alias node made it of.
std::vector<ValueId> alias_roots(const Graph& graph);

// Adds the time of these steps, `trips` times over, and what they compute a second time. Bodies of
// loops are not in it.
void add_work(const Graph& graph, const GraphFacts& facts, const GraphProblem& made,
              std::span<const int> steps, int64_t trips, double& ms, Recomputed& recomputed);

// `loop`: the graph is its body; what the loop slices and stacks lies outside.
GraphProblem make_problem(const Graph& graph, std::span<const Facts> facts, Bytes alignment,
                          const Loop* loop = nullptr);

}  // namespace pl
