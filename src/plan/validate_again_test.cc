// The validator and plans that compute values again: what the search may decide passes, and a
// solver that is broken in one place does not.
#include <gtest/gtest.h>

#include "backend/backend.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "tests/broken_solver.h"
#include "tests/graph_run.h"
#include "tests/problems.h"
#include "tests/random_graph.h"

namespace pl::test::validate_again_test {
namespace {

constexpr Bytes kAlignment = 64;
const Meta kMeta{Dtype::float32, Shape{8, 8}};

struct Example {
  Graph graph;
  GraphFacts facts;
  VariableLayout variables;
  Drops drops;
};

// Nodes: 0 a = x w, 1 b = tanh(a), 2 c = b w, 3 d = tanh(c), 4 w' = sgd(w, d), 5 e = d b,
// 6 sum(e). b is needed by 5 long after 2, and computed again there; a is not held either.
// With w updated in 4, a cannot be: the drop of a is left out of `drops`.
Example example() {
  Recorder r;
  const Tensor w = r.variable("w", kMeta, Category::parameters);
  const Tensor x = r.input("x", kMeta, true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor a = matmul(x, w);
  const Tensor b = tanh(a);
  const Tensor c = matmul(b, w);
  const Tensor d = tanh(c);
  sgd(w, d, params);
  r.keep(reduce_sum(matmul(d, b)), "sum");
  Example e{r.take(), {}, {}, {}};
  e.facts.nodes.resize(e.graph.nodes.size());
  e.facts.nodes[2].workspace = 256;
  e.variables = layout_variables(e.graph.variables, kAlignment);
  e.drops = {{b.id(), 5}};
  return e;
}

Plan solve(const Example& e, const Solver& solver) {
  return solver.plan(e.graph, e.facts, e.variables, kAlignment, e.drops);
}
std::string fault_of(const Example& e, const Plan& plan) {
  return error_of<InternalError>([&] { validate(e.graph, plan, e.facts); });
}
std::string fault_of(const Example& e, const Solver& solver) {
  return fault_of(e, solve(e, solver));
}

std::vector<NodeId> nodes_of(const Plan& plan) {
  std::vector<NodeId> nodes;
  for (const Step& step : plan.steps) nodes.push_back(step.node);
  return nodes;
}

TEST(ValidateAgain, TheSolverUnbrokenMakesThePlannersPlan) {
  const Example e = example();
  const Plan plan = make_plan(e.graph, e.facts, e.variables, kAlignment, {.drops = e.drops});
  EXPECT_EQ(nodes_of(plan), (std::vector<NodeId>{0, 1, 2, 3, 4, 1, 5, 6}));
  EXPECT_EQ(fault_of(e, plan), "");
  const Plan solved = solve(e, {});
  EXPECT_EQ(print(e.graph, solved).substr(0, 20), print(e.graph, plan).substr(0, 20));
  ASSERT_EQ(solved.steps.size(), plan.steps.size());
  for (size_t s = 0; s < plan.steps.size(); ++s) {
    EXPECT_EQ(solved.steps[s].in, plan.steps[s].in);
    EXPECT_EQ(solved.steps[s].out, plan.steps[s].out);
  }
  EXPECT_EQ(fault_of(e, solved), "");
}

TEST(ValidateAgain, APlanThatCannotBeIsRefused) {
  Example e = example();
  e.drops.push_back({e.graph.nodes[0].out[0], 5});  // a again, behind the update of w
  std::sort(e.drops.begin(), e.drops.end());
  EXPECT_THROW(make_plan(e.graph, e.facts, e.variables, kAlignment, {.drops = e.drops}),
               InternalError);
}

TEST(ValidateAgain, NoticesABlockFreedTooEarly) {
  Example e = example();
  // The last copy of a is read by the second tanh; to the solver it died in the first.
  Solver solver;
  solver.lives = [](const std::vector<int>&, Layout& layout) {
    const int a = layout.steps[0].writes[0];
    layout.blocks[index(a)].end = 1;
  };
  EXPECT_NE(fault_of(e, solver).find("is not where it is read at step 5 (tanh"), std::string::npos)
      << fault_of(e, solver);
}

TEST(ValidateAgain, NoticesAVariableUpdatedBeforeItIsReadAgain) {
  Example e = example();
  e.drops.push_back({e.graph.nodes[0].out[0], 5});
  std::sort(e.drops.begin(), e.drops.end());
  Solver solver;
  solver.before_lowering = [](Problem& problem) {
    for (Problem::Value& value : problem.values) value.replaced_by = -1;
  };
  EXPECT_NE(fault_of(e, solver).find("operand 1 (%0, w) is not where it is read at step 5 (matmul"),
            std::string::npos)
      << fault_of(e, solver);
}

TEST(ValidateAgain, NoticesOverlappingAddresses) {
  const Example e = example();
  int noticed = 0;
  const size_t blocks = lay_out(make_problem(e.graph, e.facts.nodes, kAlignment).problem,
                                std::vector<int>{0, 1, 2, 3, 4, 1, 5, 6})
                            .blocks.size();
  for (size_t b = 0; b < blocks; ++b)
    for (Bytes by : {-kAlignment, kAlignment}) {
      Solver solver;
      bool overlap = false;
      solver.addresses = [&](Layout& layout) {
        StorageBlock& moved = layout.blocks[b];
        moved.at += by;
        for (const StorageBlock& other : layout.blocks)
          overlap |= &other != &moved && other.start <= moved.end && moved.start <= other.end &&
                     other.at < moved.at + moved.bytes && moved.at < other.at + other.bytes;
      };
      const std::string fault = fault_of(e, solver);
      if (overlap) {
        EXPECT_NE(fault, "") << "block " << b << " by " << by;
        ++noticed;
      }
    }
  EXPECT_GE(noticed, 5);
}

TEST(ValidateAgain, NoticesAnEffectComputedAgain) {
  Example e = example();
  Solver solver;
  solver.after_lowering = [](std::vector<int>& steps) { steps.insert(steps.begin() + 5, 4); };
  EXPECT_NE(fault_of(e, solver).find("an effect runs twice at step 5 (sgd"), std::string::npos)
      << fault_of(e, solver);
}

TEST(ValidateAgain, NoticesAReaderThatTakesTheFirstCopy) {
  const Example e = example();
  Plan plan = solve(e, {});
  ASSERT_NE(plan.steps[6].in[1], plan.steps[1].out[0]) << "the example moves b";
  plan.steps[6].in[1] = plan.steps[1].out[0];
  // Its bytes are still there, but to the solver they are free: the product is written to them.
  EXPECT_NE(fault_of(e, plan).find("output 0 overwrites operand 1 at step 6"), std::string::npos)
      << fault_of(e, plan);
}

TEST(ValidateAgain, NoticesAMissingSecondRun) {
  const Example e = example();
  Solver solver;
  Plan plan = solve(e, solver);
  plan.steps.erase(plan.steps.begin() + 5);
  EXPECT_NE(fault_of(e, plan), "");
}

// Every life that a broken solver shortens is noticed unless no byte was lost by it, which a
// second look at the blocks decides.
TEST(ValidateAgain, NoticesShortenedLivesInRandomPlans) {
  int planted = 0, again = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    Example e{
        RandomGraph(seed, Dtype::float32, 6 + static_cast<int>(seed % 20)).take(), {}, {}, {}};
    Numbers numbers(seed + 5);
    e.facts.nodes.resize(e.graph.nodes.size());
    e.variables = layout_variables(e.graph.variables, kAlignment);
    const GraphProblem made = make_problem(e.graph, e.facts.nodes, kAlignment);
    e.drops = random_drops(made.problem, numbers, 0.2);
    if (!lower(made.problem, e.drops)) e.drops.clear();
    ASSERT_EQ(fault_of(e, Solver{}), "") << "seed " << seed;
    again += lower(made.problem, e.drops)->size() > made.problem.nodes.size();
    Solver solver;
    bool lost = false;
    Layout whole;
    size_t cut = 0;
    solver.lives = [&](const std::vector<int>&, Layout& layout) {
      whole = layout;
      for (int tries = 0; tries < 20 && cut == 0; ++tries) {
        const auto b = static_cast<size_t>(numbers.below(static_cast<int>(layout.blocks.size())));
        if (layout.blocks[b].end <= layout.blocks[b].start) continue;
        --layout.blocks[b].end;
        cut = b + 1;
      }
    };
    solver.addresses = [&](Layout& layout) {
      if (cut == 0) return;
      StorageBlock block = layout.blocks[cut - 1];
      const int end = whole.blocks[cut - 1].end;
      for (const StorageBlock& other : layout.blocks)
        lost |= other.start == end && other.at < block.at + block.bytes &&
                block.at < other.at + other.bytes;
    };
    const std::string fault = fault_of(e, solver);
    ASSERT_EQ(fault != "", lost) << "seed " << seed << ": " << fault;
    planted += lost;
  }
  EXPECT_GT(planted, 50);
  EXPECT_GT(again, 200);
}

}  // namespace
}  // namespace pl::test::validate_again_test
