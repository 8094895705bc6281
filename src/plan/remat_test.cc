// Checkpointing by hand: names, what is released, and that the validator holds the planner to it.
#include "plan/remat.h"

#include <gtest/gtest.h>

#include "op/functions.h"
#include "op/recorder.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"

namespace pl::test::remat_test {
namespace {

constexpr Bytes kAlignment = 64;
constexpr Bytes kSize = 256 * 64 * 4;  // of every activation

// Four layers "block_0/a", "block_0/b", "block_1/a", "block_1/b", each tanh(x w), and their
// gradients.
Graph blocks() {
  Recorder r;
  RecorderScope scope(r);
  const Meta meta{Dtype::float32, Shape{64, 64}};
  Tensors weights;
  for (const char* name : {"w0", "w1", "w2", "w3"})
    weights.push_back(r.variable(name, meta, Category::parameters));
  Tensor x = r.input("x", {Dtype::float32, Shape{256, 64}}, true);
  const char* paths[] = {"block_0/a", "block_0/b", "block_1/a", "block_1/b"};
  for (size_t i = 0; i < 4; ++i) {
    PathScope path(&r, paths[i]);
    x = tanh(matmul(x, weights[i]));
  }
  const Tensor loss = reduce_sum(x);
  r.keep(loss, "loss");
  for (const Tensor& gradient : gradients(loss, weights, fill(Shape{}, 1.0, Dtype::float32)))
    r.keep(gradient, "gradient");
  return r.take();
}

struct Planned {
  Graph graph;
  GraphFacts facts;
  Plan plan;
};

Planned planned(const std::vector<std::string>& names) {
  Planned p{blocks(), {}, {}};
  EXPECT_TRUE(mark_remat(p.graph, names).empty());
  p.facts.nodes.resize(p.graph.nodes.size());
  p.plan = make_plan(p.graph, p.facts, layout_variables(p.graph.variables, kAlignment), kAlignment);
  return p;
}

std::vector<std::string> scopes_of(const std::vector<std::string>& names) {
  Graph graph = blocks();
  mark_remat(graph, names);
  std::vector<std::string> scopes;
  for (const Node& node : graph.nodes)
    if (node.op == "matmul") scopes.push_back(remat_scope(node.path));
  scopes.resize(4);  // of the forward part
  return scopes;
}

TEST(Remat, NamesArePathsTheirFirstPartsOrPatterns) {
  using List = std::vector<std::string>;
  EXPECT_EQ(scopes_of({"block_1/a"}), (List{"", "", "remat:block_1.a", ""}));
  EXPECT_EQ(scopes_of({"block_1"}), (List{"", "", "remat:block_1", "remat:block_1"}));
  EXPECT_EQ(scopes_of({"block_*"}),
            (List{"remat:block_0", "remat:block_0", "remat:block_1", "remat:block_1"}));
  EXPECT_EQ(scopes_of({"block_**"}), (List(4, "remat:block_")));
  EXPECT_EQ(scopes_of({"block_*/b"}), (List{"", "remat:block_0.b", "", "remat:block_1.b"}));
  EXPECT_EQ(scopes_of({"block"}), List(4));
  Graph graph = blocks();
  EXPECT_EQ(mark_remat(graph, {"block_0", "block", "lock_*"}), (List{"block", "lock_*"}));
  EXPECT_EQ(without_scopes("remat:block_0/block_0/a"), "block_0/a");
  EXPECT_EQ(without_scopes("layer/remat:tail/x"), "layer/x");
}

int runs_of(const Planned& p, const std::string& op) {
  int runs = 0;
  for (const Step& step : p.plan.steps)
    runs += p.graph.nodes[static_cast<size_t>(step.node)].op == op;
  return runs;
}

TEST(Remat, ComputesAgainWhatAScopeMakesOnTheWayAndHoldsWhatItHandsOn) {
  const Planned plain = planned({}), by_hand = planned({"block_*"});
  validate(plain.graph, plain.plan, plain.facts);
  validate(by_hand.graph, by_hand.plan, by_hand.facts);
  EXPECT_EQ(runs_of(plain, "tanh"), 4);
  // Of each block the first tanh, by way of its matmul; the last one is handed on to the next
  // block, or to the loss.
  EXPECT_EQ(runs_of(by_hand, "tanh"), 6);
  EXPECT_EQ(by_hand.plan.recomputed.values, 4);
  // At the start of the backward part two values less are held; while a block is computed again,
  // its matmul's result is in the place of its tanh.
  EXPECT_LT(by_hand.plan.arena, plain.plan.arena);
  EXPECT_EQ(by_hand.plan.arena % kSize, plain.plan.arena % kSize);
}

TEST(Remat, IsObeyedByEveryDecisionOfTheSearch) {
  Graph graph = blocks();
  mark_remat(graph, {"block_*"});
  GraphFacts facts;
  facts.nodes.resize(graph.nodes.size());
  for (Facts& node : facts.nodes) node.ms = node.nominal_ms = 1;
  const GraphProblem made = make_problem(graph, facts.nodes, kAlignment);
  const auto pool = search(made.problem);
  ASSERT_FALSE(pool.empty());
  for (const Candidate& candidate : pool) {
    const Plan plan = make_plan(graph, facts, layout_variables(graph.variables, kAlignment),
                                kAlignment, {.drops = candidate.drops});
    EXPECT_NO_THROW(validate(graph, plan, facts));
    EXPECT_EQ(plan.arena - plan.persistent, candidate.bytes);
  }
}

TEST(Remat, TheValidatorCatchesASolverThatIgnoresIt) {
  const Planned plain = planned({});
  Planned marked = planned({"block_*"});
  // The same nodes over the same values: only the scopes are missing.
  const std::string fault =
      error_of<InternalError>([&] { validate(marked.graph, plain.plan, marked.facts); });
  EXPECT_NE(fault.find("is not where it is read"), std::string::npos) << fault;
  // One that forgets a single scope.
  const Planned half = planned({"block_0"});
  EXPECT_NE(error_of<InternalError>([&] { validate(marked.graph, half.plan, marked.facts); }), "");
  EXPECT_EQ(error_of<InternalError>([&] { validate(half.graph, marked.plan, half.facts); }), "");
}

}  // namespace
}  // namespace pl::test::remat_test
