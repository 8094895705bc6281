// The validator: true plans pass, planted faults do not, and what passes computes the right bits.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/plan.h"
#include "tests/graph_run.h"
#include "tests/random_graph.h"

namespace pl::test::validate_test {
namespace {

constexpr Bytes kAlignment = 64;
constexpr Bytes kBlock = 256;  // bytes of every value in the small example
const Meta kMeta{Dtype::float32, Shape{8, 8}};

struct Example {
  Graph graph;
  GraphFacts facts;
  Plan plan;
};

Plan plan_of(const Graph& graph, const GraphFacts& facts) {
  return make_plan(graph, facts, layout_variables(graph.variables, kAlignment), kAlignment);
}

// Nodes: 0 matmul (with workspace), 1 tanh, 2 add, 3 matmul, 4 sgd, 5 reduce_sum.
Example example() {
  Recorder r;
  const Tensor w = r.variable("w", kMeta, Category::parameters);
  const Tensor x = r.input("x", kMeta, true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor a = matmul(x, w);
  const Tensor b = tanh(a);
  const Tensor c = add(a, b);
  const Tensor d = matmul(c, w, {.transpose_b = true});
  sgd(w, d, params);
  r.keep(b, "b");
  r.keep(reduce_sum(d), "sum");
  Example e{r.take(), {.nodes = std::vector<Facts>(6)}, {}};
  e.facts.nodes[0].workspace = kBlock;
  e.facts.nodes[3].workspace = 100;  // rounded up to two cells
  e.plan = plan_of(e.graph, e.facts);
  return e;
}

std::string fault_of(const Example& e) {
  return error_of<InternalError>([&] { validate(e.graph, e.plan, e.facts); });
}

TEST(Validate, AcceptsATruePlan) {
  const Example e = example();
  EXPECT_EQ(fault_of(e), "");
  EXPECT_GE(e.plan.arena, e.plan.bound);
  EXPECT_GE(e.plan.bound, e.plan.floor);
}

TEST(Plan, PrintsItsSteps) {
  EXPECT_EQ(print(example().graph, example().plan),
            "arena 1216 persistent 256 bound 1216\n"
            "matmul(@256, @0) -> @512\n"
            "tanh(@512) -> @256\n"
            "add(@512, @256) -> @512\n"
            "matmul(@512, @0) -> @768\n"
            "sgd(@0, @768, @1152) -> @0\n"
            "reduce_sum(@768) -> @512\n");
}

struct Fault {
  const char* name;
  void (*plant)(Example&);
  const char* message;
};

void PrintTo(const Fault& c, std::ostream* out) { *out << c.name; }

const Fault kFaults[] = {
    // c is written over a value that the next step still reads.
    {"FreedTooEarly",
     [](Example& e) {
       const ByteOffset w = e.plan.steps[0].in[1];
       e.plan.steps[1].out[0] = e.plan.steps[1].in[0];  // tanh in place although add reads a
       e.plan.steps[2].in[1] = e.plan.steps[1].out[0];
       e.plan.keep_at[0] = e.plan.steps[1].out[0];
       e.plan.steps[0].in[1] = w;
     },
     "is not where it is read"},
    {"OverlappingOffsets", [](Example& e) { e.plan.steps[2].out[0] += kAlignment; },
     "overwrites operand"},
    {"HalfOverwritten",
     [](Example& e) {
       // The workspace of step 3 is moved onto the kept value b.
       e.plan.steps[3].workspace_at = e.plan.keep_at[0] + kAlignment;
     },
     "a kept value is lost"},
    {"VariableUpdatedBeforeAReader",
     [](Example& e) {
       // Another graph in which nothing but the order of steps changes: sgd before matmul 3 cannot
       // have d, so it takes b as gradient; w is then gone for the transposed product.
       e.graph.nodes[4].in[1] = e.graph.nodes[1].out[0];
       e.plan.steps[4].in[1] = e.plan.steps[1].out[0];
       std::swap(e.plan.steps[3], e.plan.steps[4]);
     },
     "(%0, w) is not where it is read"},
    {"UpdateElsewhere", [](Example& e) { e.plan.steps[4].out[0] = e.plan.persistent; },
     "a variable is not updated in its place"},
    {"OutsideTheArena", [](Example& e) { e.plan.steps[5].out[0] = e.plan.arena; },
     "lies outside the arena"},
    {"ArenaTooSmall", [](Example& e) { e.plan.arena -= kAlignment; }, "lies outside the arena"},
    {"FarOutsideTheArena",
     [](Example& e) { e.plan.steps[5].out[0] = (int64_t{1} << 62) / kAlignment * kAlignment; },
     "lies outside the arena"},
    {"BeforeTheArena", [](Example& e) { e.plan.steps[5].out[0] = -kAlignment; }, "not aligned"},
    {"Misaligned",
     [](Example& e) {
       e.plan.arena += kAlignment;
       e.plan.steps[5].out[0] = e.plan.arena - kAlignment - 4;
     },
     "is not aligned"},
    {"WorkspaceOnAnInput", [](Example& e) { e.plan.steps[0].workspace_at = e.plan.steps[0].in[0]; },
     "the workspace overlaps an operand"},
    {"WorkspaceOnTheOutput",
     [](Example& e) { e.plan.steps[0].workspace_at = e.plan.steps[0].out[0]; },
     "an output overlaps the workspace"},
    {"WorkspaceOnVariables", [](Example& e) { e.plan.steps[0].workspace_at = 0; },
     "the workspace lies among the variables"},
    {"WorkspaceOutside", [](Example& e) { e.plan.steps[0].workspace_at = e.plan.arena; },
     "lies outside the arena"},
    {"WorkspaceGrew", [](Example& e) { e.facts.nodes[0].workspace = e.plan.arena; },
     "lies outside the arena"},
    {"EffectTwice", [](Example& e) { e.plan.steps.push_back(e.plan.steps[4]); },
     "an effect runs twice"},
    {"MissingNode", [](Example& e) { e.plan.steps.erase(e.plan.steps.begin() + 2); },
     "is not where it is read"},
    {"MissingLastNode", [](Example& e) { e.plan.steps.pop_back(); }, "never runs"},
    {"MissingUpdate", [](Example& e) { e.plan.steps.erase(e.plan.steps.begin() + 4); },
     "never runs"},
    {"UnknownNode", [](Example& e) { e.plan.steps[2].node = 6; }, "unknown node"},
    {"NegativeNode", [](Example& e) { e.plan.steps[2].node = -1; }, "unknown node"},
    {"OperandMissing", [](Example& e) { e.plan.steps[2].in.pop_back(); }, "operands are missing"},
    {"OffsetsMissing", [](Example& e) { e.plan.keep_at.pop_back(); }, "offsets are missing"},
    // matmul may not write over its operand even where that one dies.
    {"IllegalInPlace",
     [](Example& e) {
       e.plan.steps[3].out[0] = e.plan.steps[3].in[0];
       e.plan.steps[4].in[1] = e.plan.steps[5].in[0] = e.plan.steps[3].out[0];
     },
     "output 0 overwrites operand 0"},
    {"KeptValueOverwritten", [](Example& e) { e.plan.steps[3].out[0] = e.plan.keep_at[0]; }, ""},
    {"KeptElsewhere", [](Example& e) { e.plan.keep_at[0] = e.plan.keep_at[1]; },
     "a kept value is lost"},
    {"OutputAmongVariables", [](Example& e) { e.plan.steps[1].out[0] = 0; },
     "output 0 lies among the variables"},
    {"InputAmongVariables", [](Example& e) { e.plan.input_at[0] = 0; },
     "input x lies among the variables"},
    {"InputsOverlap", [](Example& e) { e.plan.input_at[1] = e.plan.input_at[0]; },
     "inputs overlap"},
    {"VariableInTransientPart", [](Example& e) { e.plan.variable_at[0] = e.plan.persistent; },
     "lies in the transient part"},
    {"ReadsTheWrongPlace", [](Example& e) { e.plan.steps[2].in[0] = e.plan.steps[2].in[1]; },
     "is not where it is read"},
};

class PlanFault : public ::testing::TestWithParam<Fault> {};

TEST_P(PlanFault, IsCaught) {
  Example e = example();
  GetParam().plant(e);
  const std::string message = fault_of(e);
  EXPECT_NE(message, "") << "the validator let it pass";
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(Validate, PlanFault, ::testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Validate, RefusesTwoVariablesInOnePlace) {
  Recorder r;
  const Tensor a = r.variable("a", kMeta, Category::parameters);
  const Tensor b = r.variable("b", kMeta, Category::parameters);
  r.keep(add(a, b), "sum");
  Example e{r.take(), {.nodes = std::vector<Facts>(1)}, {}};
  e.plan = plan_of(e.graph, e.facts);
  ASSERT_EQ(fault_of(e), "");
  e.plan.variable_at[1] = e.plan.variable_at[0] + kAlignment;
  EXPECT_NE(fault_of(e).find("overlaps another"), std::string::npos) << fault_of(e);
}

// Two grants can be equal where the values are not: (1, 5) and (3, 5) both take one cell. The small
// one is read for every row, so it must not be written over.
TEST(Validate, RefusesABroadcastOperandInPlaceAndThePlannerDoesNotDoIt) {
  Recorder r;
  const Tensor x = r.input("x", {Dtype::float32, Shape{1, 5}}, false);
  const Tensor y = r.input("y", {Dtype::float32, Shape{3, 5}}, false);
  r.keep(add(x, tanh(y)), "sum");
  r.keep(y, "y");
  Example e{r.take(), {.nodes = std::vector<Facts>(2)}, {}};
  e.plan = plan_of(e.graph, e.facts);
  ASSERT_EQ(fault_of(e), "");
  EXPECT_NE(e.plan.steps[1].out[0], e.plan.steps[1].in[0]);
  EXPECT_EQ(e.plan.steps[1].out[0], e.plan.steps[1].in[1]) << "the whole operand dies here";
  e.plan.steps[1].out[0] = e.plan.keep_at[0] = e.plan.steps[1].in[0];
  EXPECT_NE(fault_of(e).find("overwrites operand 0"), std::string::npos) << fault_of(e);
}

// Nothing to run: the input itself is the answer.
TEST(Plan, OfAnAliasAloneHasNoSteps) {
  Recorder r;
  const Tensor x = r.input("x", {Dtype::float32, Shape{4, 4}}, true);
  r.keep(reshape(x, {16}), "flat");
  Example e{r.take(), {.nodes = std::vector<Facts>(1)}, {}};
  e.plan = plan_of(e.graph, e.facts);
  EXPECT_EQ(fault_of(e), "");
  EXPECT_TRUE(e.plan.steps.empty());
  EXPECT_EQ(e.plan.arena, 64);
  EXPECT_EQ(e.plan.bound, 64);
  EXPECT_EQ(e.plan.keep_at[0], e.plan.input_at[0]);
  EXPECT_EQ(e.plan.culprits.size(), 1u);
}

TEST(Plan, HoldsValuesWithoutBytes) {
  Recorder r;
  const Tensor w = r.variable("w", {Dtype::float32, Shape{0, 4}}, Category::parameters);
  const Tensor x = r.input("x", {Dtype::float32, Shape{3, 4}}, true);
  r.keep(matmul(x, w, {.transpose_b = true}), "none");
  r.keep(tanh(x), "some");
  Example e{r.take(), {.nodes = std::vector<Facts>(2)}, {}};
  e.plan = plan_of(e.graph, e.facts);
  EXPECT_EQ(fault_of(e), "");
}

// ---- random graphs

TEST(RandomPlans, AlwaysValidate) {
  constexpr int kGraphs = 3000;
  double worst = 1, sum = 0;
  int at_bound = 0;
  for (int seed = 0; seed < kGraphs; ++seed) {
    Example e{
        RandomGraph(static_cast<uint64_t>(seed), Dtype::float32, 4 + seed % 40).take(), {}, {}};
    if (seed % 2) run_passes(e.graph);
    Numbers numbers(static_cast<uint64_t>(seed) + 77);
    e.facts.nodes.resize(e.graph.nodes.size());
    for (Facts& facts : e.facts.nodes)
      if (numbers.chance(0.3)) facts.workspace = numbers.below(3000);
    e.plan = plan_of(e.graph, e.facts);
    ASSERT_EQ(fault_of(e), "") << "seed " << seed << "\n" << print(e.graph);
    ASSERT_GE(e.plan.arena, e.plan.bound) << "seed " << seed;
    ASSERT_GE(e.plan.bound, e.plan.floor) << "seed " << seed;
    Bytes categories = 0;
    for (Bytes bytes : e.plan.at_peak) categories += bytes;
    ASSERT_EQ(categories, e.plan.bound) << "seed " << seed;
    const double ratio = static_cast<double>(e.plan.arena) / static_cast<double>(e.plan.bound);
    worst = std::max(worst, ratio);
    sum += ratio;
    at_bound += e.plan.arena == e.plan.bound;
  }
  RecordProperty("arena_over_bound_worst", std::to_string(worst));
  RecordProperty("arena_over_bound_mean", std::to_string(sum / kGraphs));
  RecordProperty("at_the_bound", at_bound);
  EXPECT_LE(worst, 1.25);
  EXPECT_GE(at_bound, kGraphs * 9 / 10);
}

// Two steps of the plan, dead bytes poisoned, against the traced graph run without any reuse.
void expect_same_bits(uint64_t seed, Dtype dtype, Backend& backend, const PassOptions& options) {
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Graph graph = RandomGraph(seed, dtype, 6 + static_cast<int>(seed % 30)).take();
  Interpreter truth(graph, backend);
  PlannedRun run(graph, backend, options);
  fill_variables(truth, seed);
  fill_variables(run, seed);
  for (int64_t step = 1; step <= 2; ++step) {
    fill_inputs(truth, seed + static_cast<uint64_t>(step), step);
    fill_inputs(run, seed + static_cast<uint64_t>(step), step);
    truth.step();
    run.step_poisoned();
    ASSERT_EQ(difference(graph, results(truth), results(run)), "")
        << print(graph) << "\n"
        << print(run.graph(), run.plan());
  }
  ASSERT_EQ(run.executor().used_bytes(), run.plan().arena);
}

TEST(RandomPlans, ComputeTheSameBitsAsWithoutReuse) {
  CpuBackend backend(1);
  for (uint64_t seed = 0; seed < 250 && !HasFatalFailure(); ++seed)
    expect_same_bits(seed, Dtype::float64, backend, all_passes_off());
}

TEST(RandomPlans, ComputeTheSameBitsAfterAllPasses) {
  CpuBackend backend(1);
  for (uint64_t seed = 0; seed < 250 && !HasFatalFailure(); ++seed)
    expect_same_bits(1000 + seed, Dtype::float64, backend, {});
}

TEST(RandomPlans, ComputeTheSameBitsInFloat32) {
  CpuBackend backend(2);
  for (uint64_t seed = 0; seed < 40 && !HasFatalFailure(); ++seed)
    expect_same_bits(2000 + seed, Dtype::float32, backend, {});
}

}  // namespace
}  // namespace pl::test::validate_test
