// The way from a graph to a plan in the planner's own pieces, so that a test can break any of them
// and see whether the validator notices.
#pragma once

#include <functional>
#include <vector>

#include "plan/graph_problem.h"
#include "plan/plan.h"

namespace pl::test {

struct Solver {
  std::function<void(Problem&)> before_lowering;                // e.g. forgets an effect
  std::function<void(std::vector<int>&)> after_lowering;        // steps: nodes of the problem
  std::function<void(const std::vector<int>&, Layout&)> lives;  // blocks before their addresses
  std::function<void(Layout&)> addresses;                       // blocks with their addresses

  // A whole step without loops.
  Plan plan(const Graph& graph, const GraphFacts& facts, const VariableLayout& variables,
            Bytes alignment, const Drops& drops) const {
    GraphProblem made = make_problem(graph, facts.nodes, alignment);
    Problem broken = made.problem;
    if (before_lowering) before_lowering(broken);
    std::vector<int> steps = lower(broken, drops).value();
    if (after_lowering) after_lowering(steps);
    Layout layout = lay_out(made.problem, steps);
    if (lives) lives(steps, layout);
    const Bytes height = assign_addresses(layout.blocks, static_cast<int>(steps.size()));
    if (addresses) addresses(layout);
    Plan plan;
    plan.alignment = alignment;
    plan.persistent = variables.bytes;
    plan.arena = variables.bytes + height;
    for (const GraphVariable& variable : graph.variables)
      plan.variable_at.push_back(variables.find(variable.path)->at);
    auto place = [&](ValueId id, int block) {
      const VariableId variable = graph.values[index(id)].variable;
      if (variable >= 0) return plan.variable_at[index(variable)];
      return block < 0 ? plan.persistent : plan.persistent + layout.blocks[index(block)].at;
    };
    for (ValueId id : graph.inputs)
      plan.input_at.push_back(place(id, layout.source_block[index(id)]));
    for (ValueId id : graph.keep) {
      const ValueId root = made.root[index(id)];
      plan.keep_at.push_back(place(root, layout.final_block[index(root)]));
    }
    for (size_t s = 0; s < steps.size(); ++s) {
      const auto n = index(steps[s]);
      const Problem::Node& node = made.problem.nodes[n];
      Step step{.node = made.node_of[n]};
      for (int read : made.read_of[n])
        step.in.push_back(place(node.reads[index(read)], layout.steps[s].reads[index(read)]));
      for (size_t o = 0; o < node.writes.size(); ++o)
        step.out.push_back(place(node.writes[o], layout.steps[s].writes[o]));
      if (layout.steps[s].workspace >= 0)
        step.workspace_at = plan.persistent + layout.blocks[index(layout.steps[s].workspace)].at;
      plan.steps.push_back(std::move(step));
    }
    return plan;
  }
};

}  // namespace pl::test
