// The validator and loops: the plan of a split step passes, and with one thing wrong in its body,
// its links or its places it does not.
#include <gtest/gtest.h>

#include "op/functions.h"
#include "op/recorder.h"
#include "plan/split.h"
#include "tests/graph_run.h"

namespace pl::test::validate_loop_test {
namespace {

constexpr Bytes kAlignment = 64;

struct Example {
  Graph graph;
  GraphFacts facts;
  Plan plan;

  Loop& loop() { return graph.loops[0]; }
  Plan& body() { return plan.loops[0]; }
  Step& step() { return plan.steps[2]; }  // the loop's
  size_t in(ValueId outer) { return find(graph.nodes[2].in, outer); }
  size_t out(ValueId outer) { return find(graph.nodes[2].out, outer); }
  static size_t find(const std::vector<ValueId>& list, ValueId id) {
    return static_cast<size_t>(std::find(list.begin(), list.end(), id) - list.begin());
  }

  // Moves the body's own part, all of it.
  void move_body(Bytes by) {
    const ByteOffset begin = body().persistent, end = body().arena;
    auto move = [&](ByteOffset& at) { at += at >= begin && at < end ? by : 0; };
    for (Step& s : body().steps) {
      for (ByteOffset& at : s.in) move(at);
      for (ByteOffset& at : s.out) move(at);
      move(s.workspace_at);
    }
    for (auto* list : {&body().variable_at, &body().input_at, &body().keep_at})
      for (ByteOffset& at : *list) move(at);
    body().persistent += by;
    body().arena += by;
    step().workspace_at += by;
  }
};

// Steps: 0 h = tanh(u), 1 s = scale(v), 2 the loop, 3 t = h + g, 4 w' = sgd(w, t). The body, over 3
// micro-batches of 2: 0 a = x w, 1 b = dropout(a), 2 c = b + s, 3 d = tanh(c), 4 x^T d added to
// g, 5 sum(d), 6 added to the loss. d is stacked; h lives over the loop, which does not read it.
Example example() {
  const Meta weight{Dtype::float32, Shape{8, 8}};
  Recorder r;
  const Tensor w = r.variable("w", weight, Category::parameters);
  const Tensor u = r.variable("u", weight, Category::parameters);
  const Tensor v = r.variable("v", {Dtype::float32, Shape{8}}, Category::parameters);
  const Tensor x = r.input("x", {Dtype::float32, Shape{6, 8}}, true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor h = tanh(u), s = scale(v, 2);
  const Tensor d = tanh(add(dropout(matmul(x, w), params, 0.5, 1), s));
  const Tensor g = matmul(x, d, {.transpose_a = true});
  const Tensor loss = reduce_sum(d);
  sgd(w, add(h, g), params);
  r.keep(loss, "loss");
  r.keep(d, "d");
  Example e;
  e.graph = split_batch(r.take(), 3);
  e.facts.nodes.resize(e.graph.nodes.size());
  e.facts.loops.resize(1);
  e.facts.loops[0].nodes.resize(e.loop().body.nodes.size());
  e.facts.loops[0].nodes[0].workspace = 100;
  e.plan = make_plan(e.graph, e.facts, layout_variables(e.graph.variables, kAlignment), kAlignment);
  return e;
}

std::string fault_of(const Example& e) {
  return error_of<InternalError>([&] { validate(e.graph, e.plan, e.facts); });
}

TEST(ValidateLoop, AcceptsATruePlan) {
  Example e = example();
  EXPECT_EQ(fault_of(e), "");
  EXPECT_EQ(e.plan.steps.size(), 5u);
  EXPECT_EQ(e.body().steps.size(), 7u);
  EXPECT_EQ(e.body().persistent, e.step().workspace_at);
  EXPECT_EQ(e.loop().sliced.size(), 1u);
  EXPECT_EQ(e.loop().shared.size(), 2u);
  EXPECT_EQ(e.loop().params.size(), 1u);
  EXPECT_EQ(e.loop().accumulated.size(), 2u);
  EXPECT_EQ(e.loop().stacked.size(), 1u);
}

TEST(ValidateLoop, AcceptsABodyThatMoves) {
  Example e = example();
  e.plan.arena += 4096;
  e.move_body(e.plan.arena - e.body().arena);
  EXPECT_EQ(fault_of(e), "");
}

TEST(ValidateLoop, AcceptsValuesComputedAgainInTheBody) {
  Example e = example();
  const ValueId a = e.loop().body.nodes[0].out[0], b = e.loop().body.nodes[1].out[0],
                c = e.loop().body.nodes[2].out[0], d = e.loop().body.nodes[3].out[0];
  Drops drops{{a, 4}, {b, 4}, {c, 4}, {d, 4}, {a, 5}, {b, 5}, {c, 5}, {d, 5}};
  std::sort(drops.begin(), drops.end());
  e.plan = make_plan(e.graph, e.facts, layout_variables(e.graph.variables, kAlignment), kAlignment,
                     {.loops = {{.drops = drops}}});
  EXPECT_EQ(e.body().steps.size(), 15u);
  EXPECT_EQ(e.plan.recomputed.values, 3 * 8);
  EXPECT_EQ(fault_of(e), "");
}

struct Fault {
  const char* name;
  void (*plant)(Example&);
  const char* message;
};
void PrintTo(const Fault& c, std::ostream* out) { *out << c.name; }

const Fault kFaults[] = {
    // Body values in places that are not the body's.
    {"BodyValueInThePlaceOfASum",
     [](Example& e) { e.body().steps[2].out[0] = e.body().variable_at[2]; },
     "output 0 lies outside the body's part at step 2 (add, ) of a loop's body"},
    {"SlicedInputOverwritten", [](Example& e) { e.body().steps[0].out[0] = e.body().input_at[0]; },
     "lies outside the body's part"},
    {"SharedValueOverwritten",
     [](Example& e) { e.body().steps[2].out[0] = e.body().variable_at[1]; },
     "lies outside the body's part"},
    {"WorkspaceOnAVariable", [](Example& e) { e.body().steps[0].workspace_at = 0; },
     "the workspace lies outside the body's part"},
    {"WorkspaceBehindTheBody",
     [](Example& e) {
       e.plan.arena += 4096;
       e.body().steps[0].workspace_at = e.plan.arena - 128;
     },
     "the workspace lies outside the body's part"},
    {"WorkspaceEndsBehindTheBody",
     [](Example& e) {
       e.plan.arena += 4096;
       e.body().steps[0].workspace_at = e.body().arena - kAlignment;
     },
     "lies outside the arena"},
    {"ParametersOutsideTheBody", [](Example& e) { e.body().input_at[1] = e.plan.input_at[1]; },
     "input step_params lies outside the body's part"},
    {"BodyValueFreedTooEarly",  // a is written over by x^T d's neighbour before dropout reads it
     [](Example& e) { e.body().steps[1].in[0] = e.body().steps[0].workspace_at; },
     "is not where it is read at step 1 (dropout, ) of a loop's body"},
    {"BodyReadsLaterWrite",  // the two steps swapped: c needs b
     [](Example& e) { std::swap(e.body().steps[1], e.body().steps[2]); },
     "is not where it is read at step 1 (add"},
    {"StackedElsewhereInTheBody",
     [](Example& e) {
       e.body().steps[3].out[0] = e.body().steps[4].in[2] = e.body().steps[5].in[0] =
           e.body().steps[2].out[0];
     },
     "a stacked value is not written in its place"},
    {"SumAddedElsewhere", [](Example& e) { e.body().steps[6].out[0] = e.body().steps[5].out[0]; },
     "a variable is not updated in its place"},
    {"SumAddedTwice", [](Example& e) { e.body().steps.push_back(e.body().steps[6]); },
     "an effect runs twice"},
    {"SumNeverAdded", [](Example& e) { e.body().steps.pop_back(); }, "never runs"},
    {"SumReadAsAnotherOne", [](Example& e) { e.body().steps[6].in[0] = e.body().variable_at[2]; },
     "is not where it is read"},

    // Links that lead elsewhere.
    {"SharedElsewhere",
     [](Example& e) { e.body().variable_at[0] = e.body().steps[0].in[1] = e.plan.variable_at[1]; },
     "a shared value is not where the body reads it"},
    {"SlicedElsewhere",
     [](Example& e) {
       e.body().input_at[0] = e.body().steps[0].in[0] = e.body().steps[4].in[1] =
           e.plan.input_at[0] + kAlignment;
     },
     "a sliced value is not where the body reads it"},
    {"StackedElsewhere",
     [](Example& e) {
       e.body().keep_at[0] = e.body().steps[3].out[0] = e.body().steps[4].in[2] =
           e.body().steps[5].in[0] = e.step().out[0] + kAlignment;
     },
     "a stacked value is not where the body writes it"},
    {"SumElsewhere",
     [](Example& e) {
       e.body().variable_at[2] = e.body().steps[4].in[0] = e.body().steps[4].out[0] =
           e.body().variable_at[2] + kAlignment;
     },
     "a sum is not where the body adds to it"},
    {"SumsSwapped",
     [](Example& e) { std::swap(e.loop().accumulated[0].body, e.loop().accumulated[1].body); },
     "is something else in the body"},
    {"SharedValueChanged",
     [](Example& e) {
       e.loop().shared[0].body = e.loop().body.variables[2].first;  // the gradient's sum
     },
     "a shared value is changed"},
    {"TooManyTrips", [](Example& e) { e.loop().trips = 6; }, "do not make up the whole"},
    {"TooFewTrips", [](Example& e) { e.loop().trips = 2; }, "do not make up the whole"},
    {"NoTrips", [](Example& e) { e.loop().trips = 0; }, "a loop without trips"},
    {"PartsOfColumns",  // as many bytes, but not the rows of one trip
     [](Example& e) {
       e.loop().body.values[index(e.loop().sliced[0].body)].meta.shape = Shape{4, 4};
     },
     "do not make up the whole"},
    {"PartsOfAnotherType",
     [](Example& e) {
       e.loop().body.values[index(e.loop().sliced[0].body)].meta.dtype = Dtype::int32;
     },
     "do not make up the whole"},
    {"LinkToNoValue", [](Example& e) { e.loop().sliced[0].body = 99; },
     "names no value of the body"},
    {"LinkToNoVariable",
     [](Example& e) { e.loop().accumulated[1].body = e.loop().body.nodes[5].out[0]; },
     "names no variable of the body"},
    {"LinkFromNowhere", [](Example& e) { e.loop().sliced[0].outer = e.loop().shared[0].outer + 1; },
     ""},
    {"CarriedIsNotPlanned",
     [](Example& e) {
       e.loop().carried.push_back({0, 0, 0, 0});
     },
     "carried values are not planned"},

    // The loop among the other steps.
    {"LoopTwice", [](Example& e) { e.plan.steps.push_back(e.step()); }, "a loop runs twice"},
    {"LoopMissing", [](Example& e) { e.plan.steps.erase(e.plan.steps.begin() + 2); },
     "is not where it is read"},
    {"SumReadBeforeTheLoopEnds", [](Example& e) { std::swap(e.plan.steps[2], e.plan.steps[3]); },
     "is not where it is read at step 2 (add"},
    {"UpdateBeforeTheLoop",
     [](Example& e) {
       // The update takes h as its gradient, so that only w is wrong.
       e.graph.nodes[4].in[1] = e.graph.nodes[0].out[0];
       e.plan.steps[4].in[1] = e.plan.steps[0].out[0];
       std::rotate(e.plan.steps.begin() + 2, e.plan.steps.begin() + 4, e.plan.steps.end());
     },
     "(w) is not where the loop reads it"},
    {"OperandOfTheLoopFreedTooEarly",
     [](Example& e) { e.plan.steps[1].out[0] = e.plan.input_at[0]; }, ""},
    {"OperandMissing", [](Example& e) { e.step().in.pop_back(); }, "operands are missing"},
    {"ResultMissing", [](Example& e) { e.step().out.pop_back(); }, "operands are missing"},
    {"ResultInPlaceOfAnOperand",
     [](Example& e) {
       const size_t x = e.in(e.loop().sliced[0].outer), d = e.out(e.loop().stacked[0].outer);
       e.step().out[d] = e.plan.keep_at[1] = e.step().in[x];
     },
     "a result of the loop overwrites an operand"},
    {"ResultsOverlap", [](Example& e) { e.step().out[1] = e.step().out[0]; }, "outputs overlap"},
    {"ResultAmongTheVariables", [](Example& e) { e.step().out[0] = 0; },
     "output 0 lies among the variables"},
    {"BodyOnALiveValue",  // h, which only comes back behind the loop
     [](Example& e) {
       e.plan.arena += 8192;
       e.move_body(4096);
       const ByteOffset away = e.body().arena;  // h moves away and into the body's part
       e.plan.steps[0].out[0] = e.plan.steps[3].in[0] = away;
       ASSERT_EQ(fault_of(e), "");
       e.plan.steps[0].out[0] = e.plan.steps[3].in[0] = e.body().persistent;
     },
     "is not where it is read at step 3 (add"},
    {"BodyOnAnOperand",
     [](Example& e) {
       e.plan.arena += 4096;
       e.move_body(e.step().in[e.in(e.loop().sliced[0].outer)] - e.body().persistent);
     },
     "the body's part has an operand in it"},
    {"BodyOnAResult",
     [](Example& e) {
       e.plan.arena += 8192;
       e.move_body(4096);
       const ByteOffset inside = e.body().arena - 256;
       e.step().out[0] = e.plan.keep_at[1] = inside;
     },
     "the body's part has a result in it"},
    {"BodyAmongTheVariables", [](Example& e) { e.move_body(-e.body().persistent); },
     "the body's part lies among the variables"},
    {"BodyBehindTheArena",
     [](Example& e) { e.move_body(e.plan.arena - e.body().arena + kAlignment); },
     "the body's part lies outside the arena"},
    {"BodyOfNegativeSize", [](Example& e) { e.body().arena = e.body().persistent - kAlignment; },
     "smaller than nothing"},
    {"BodyMisaligned", [](Example& e) { e.body().alignment = 32; }, "aligned in another way"},
    {"AlignmentOfNothing", [](Example& e) { e.plan.alignment = 0; }, "no number of bytes"},
    {"BodyWithoutPlan", [](Example& e) { e.plan.loops.clear(); }, "a loop has no plan"},
    {"BodyWithoutFacts", [](Example& e) { e.facts.loops.clear(); }, "a loop has no plan"},
    {"OffsetsOfTheBodyMissing", [](Example& e) { e.body().variable_at.pop_back(); },
     "offsets of a body are missing"},
};

class LoopPlanFault : public ::testing::TestWithParam<Fault> {};

TEST_P(LoopPlanFault, IsCaught) {
  Example e = example();
  GetParam().plant(e);
  const std::string message = fault_of(e);
  EXPECT_NE(message, "") << "the validator let it pass";
  EXPECT_NE(message.find(GetParam().message), std::string::npos) << message;
}

INSTANTIATE_TEST_SUITE_P(ValidateLoop, LoopPlanFault, ::testing::ValuesIn(kFaults),
                         [](const auto& info) { return std::string(info.param.name); });

// A weight and another view of it are two values to the body, but one place.
TEST(ValidateLoop, AcceptsAValueAndItsAliasShared) {
  Recorder r;
  const Tensor w = r.variable("w", {Dtype::float32, Shape{4, 8}}, Category::parameters);
  const Tensor x = r.input("x", {Dtype::float32, Shape{6, 4}}, true);
  const Tensor y = matmul(matmul(x, w), reshape(w, {8, 4}));
  r.keep(reduce_sum(y), "sum");
  Example e;
  e.graph = split_batch(r.take(), 2);
  e.facts.nodes.resize(e.graph.nodes.size());
  e.facts.loops.resize(1);
  e.facts.loops[0].nodes.resize(e.loop().body.nodes.size());
  e.plan = make_plan(e.graph, e.facts, layout_variables(e.graph.variables, kAlignment), kAlignment);
  EXPECT_EQ(e.loop().shared.size(), 2u);
  EXPECT_EQ(fault_of(e), "");
}

}  // namespace
}  // namespace pl::test::validate_loop_test
