#include "graph/graph.h"

#include <gtest/gtest.h>

#include <functional>

#include "op/functions.h"
#include "op/recorder.h"
#include "tests/graph_run.h"

namespace pl::test::graph_test {
namespace {

const Meta kMatrix{Dtype::float32, Shape{2, 2}};

// One dense layer and its update.
Graph traced() {
  Recorder recorder;
  const Tensor w = recorder.variable("dense/kernel", kMatrix, Category::parameters);
  const Tensor x = recorder.input("x", kMatrix, true);
  const Tensor params = recorder.input("step_params", step_params_meta(), false);
  Tensor y;
  {
    PathScope scope(&recorder, "dense");
    y = relu(matmul(x, w, {.transpose_b = true}));
    recorder.keep(y, "output");
  }
  PathScope scope(&recorder, "sgd");
  sgd(w, scale(y, 0.5), params);
  return recorder.take();
}

TEST(Graph, PrintsOneLineForEachPart) {
  EXPECT_EQ(print(traced()),
            "variable dense/kernel float32 (2, 2) parameters %0 -> %6\n"
            "input x float32 (2, 2) %1\n"
            "input step_params uint8 (64,) %2\n"
            "%3 = matmul(%1, %0) {transpose_b=1} : float32 (2, 2)  # dense\n"
            "%4 = relu(%3) : float32 (2, 2)  # dense\n"
            "%5 = scale(%4) {factor=0.5} : float32 (2, 2)  # sgd\n"
            "%6 = sgd(%0, %5, %2) : float32 (2, 2)  # sgd\n"
            "keep output %4\n");
}

TEST(Graph, RecordsVersionsAndRows) {
  const Graph graph = traced();
  EXPECT_NO_THROW(check_graph(graph));
  EXPECT_EQ(graph.values[6].variable, 0);
  EXPECT_EQ(graph.values[6].version, 1);
  EXPECT_EQ(graph.values[6].category, Category::parameters);
  EXPECT_TRUE(graph.values[4].rows);
  EXPECT_FALSE(graph.values[6].rows);
}

// As plain data, to be broken in one place at a time: y = f(x, w); w' = g(w, y).
Graph plain() {
  Graph graph;
  graph.values = {{.meta = kMatrix, .variable = 0, .path = "w"},
                  {.meta = kMatrix, .path = "x"},
                  {.meta = kMatrix, .producer = 0, .path = "y"},
                  {.meta = kMatrix, .producer = 1, .variable = 0, .version = 1, .path = "w"}};
  graph.nodes = {{.op = "f", .in = {1, 0}, .out = {2}, .path = "layer"},
                 {.op = "g", .in = {0, 2}, .out = {3}, .path = "update"}};
  graph.variables = {{"w", kMatrix, Category::parameters, 0, 3}};
  graph.inputs = {1};
  graph.keep = {2};
  return graph;
}

struct Fault {
  const char* name;
  void (*plant)(Graph&);
  const char* message;
};

void PrintTo(const Fault& c, std::ostream* out) { *out << c.name; }

const Fault kFaults[] = {
    {"ReadBeforeWrite",
     [](Graph& g) {
       g.nodes[0].in = {1, 3};
     },
     "before it is written"},
    {"NodesSwapped", [](Graph& g) { std::swap(g.nodes[0], g.nodes[1]); }, "before it is written"},
    {"ReadsPastTheEnd",
     [](Graph& g) {
       g.nodes[0].in = {1, 99};
     },
     "before it is written"},
    {"ReadsANegativeId",
     [](Graph& g) {
       g.nodes[0].in = {1, -1};
     },
     "before it is written"},
    {"DoubleWrite", [](Graph& g) { g.nodes[1].out = {2}; }, "writes a value twice"},
    {"WritesASource", [](Graph& g) { g.nodes[1].out = {1}; }, "writes a value twice"},
    {"WritesPastTheEnd", [](Graph& g) { g.nodes[1].out = {99}; }, "writes a value twice"},
    {"OtherProducer", [](Graph& g) { g.values[2].producer = 1; }, "producer does not match"},
    {"SourceWithProducer", [](Graph& g) { g.values[1].producer = 0; }, "a source has a producer"},
    {"InputTwice",
     [](Graph& g) {
       g.inputs = {1, 1};
     },
     "listed twice"},
    {"InputIsVariable",
     [](Graph& g) {
       g.inputs = {1, 0};
     },
     "listed twice"},
    {"InputPastTheEnd",
     [](Graph& g) {
       g.inputs = {1, 4};
     },
     "listed twice"},
    {"KeepPastTheEnd", [](Graph& g) { g.keep = {99}; }, "kept value is never written"},
    {"ValueNobodyWrites", [](Graph& g) { g.values.push_back({.meta = kMatrix}); },
     "a value is never written"},
    {"LastVersionNobodyWrites", [](Graph& g) { g.nodes.pop_back(); }, "a value is never written"},
    {"VariablePastTheEnd", [](Graph& g) { g.variables[0].last = 9; }, "out of range"},
    {"TwoVariablesOneValue", [](Graph& g) { g.variables.push_back(g.variables[0]); },
     "two variables share a value"},
    {"UnknownVariable", [](Graph& g) { g.values[2].variable = 5; }, "unknown variable"},
    {"LastIsNotLast", [](Graph& g) { g.variables[0].last = 0; }, "not a chain"},
    {"FirstIsLater", [](Graph& g) { g.values[0].version = 2; }, "not a chain"},
    {"VersionMissing", [](Graph& g) { g.values[3].version = 2; }, "a version is missing"},
    {"ReadAfterReplacement",
     [](Graph& g) {
       g.values.push_back({.meta = kMatrix, .producer = 2});
       g.nodes.push_back({.op = "f", .in = {0}, .out = {4}, .path = "late"});
     },
     "read after its replacement"},
    {"LoopWithoutLoop", [](Graph& g) { g.nodes[0].op = "loop"; }, "loop index and op disagree"},
    {"LoopOutOfRange",
     [](Graph& g) {
       g.nodes[0].op = "loop";
       g.nodes[0].loop = 3;
     },
     "loop index out of range"},
};

std::string name_of_fault(const ::testing::TestParamInfo<Fault>& info) { return info.param.name; }

// The test's own graph passes; with the fault in it, the checker names the rule.
void expect_caught(Graph graph, const Fault& fault) {
  ASSERT_EQ(error_of<InternalError>([&] { check_graph(graph); }), "");
  fault.plant(graph);
  const std::string message = error_of<InternalError>([&] { check_graph(graph); });
  EXPECT_NE(message.find(fault.message), std::string::npos) << "received '" << message << "'";
}

class GraphFault : public ::testing::TestWithParam<Fault> {};
TEST_P(GraphFault, IsCaught) { expect_caught(plain(), GetParam()); }
INSTANTIATE_TEST_SUITE_P(Graph, GraphFault, ::testing::ValuesIn(kFaults), name_of_fault);

TEST(Graph, MessageNamesNodeOpAndPath) {
  Graph graph = plain();
  graph.nodes[1].in = {0, 3};
  EXPECT_EQ(error_of<InternalError>([&] { check_graph(graph); }),
            "[graph] reads a value before it is written at node 1 (g, update)");
}

TEST(Graph, RefusesAValueTooLargeToExist) {
  Graph graph = plain();
  graph.values[2].meta.shape = Shape{int64_t{1} << 40, int64_t{1} << 40};
  EXPECT_THROW(check_graph(graph), UserError);
}

// sum over 3 trips of x[i] * w, with a running state: every kind of link once.
Graph looped() {
  Graph body;
  body.values = {{.meta = kMatrix, .path = "x_i"},
                 {.meta = kMatrix, .variable = 0, .path = "w"},
                 {.meta = kMatrix, .path = "s"},
                 {.meta = step_params_meta(), .path = "step_params"},
                 {.meta = kMatrix, .variable = 1, .path = "sum"},
                 {.meta = kMatrix, .producer = 0},
                 {.meta = kMatrix, .producer = 1},
                 {.meta = kMatrix, .producer = 2},
                 {.meta = kMatrix, .producer = 3, .variable = 1, .version = 1, .path = "sum"}};
  body.variables = {{"w", kMatrix, Category::parameters, 1, 1},
                    {"sum", kMatrix, Category::gradients, 4, 8}};
  body.inputs = {0, 2, 3};
  body.nodes = {{.op = "matmul", .in = {0, 1}, .out = {5}, .path = "rnn"},
                {.op = "add", .in = {2, 5}, .out = {6}, .path = "rnn"},
                {.op = "dropout", .in = {6, 3}, .out = {7}, .path = "rnn"},
                {.op = "accumulate", .in = {4, 5}, .out = {8}, .path = "rnn"}};
  body.keep = {6, 7};
  Graph graph;
  const Meta rows{Dtype::float32, Shape{6, 2}};
  graph.values = {{.meta = kMatrix, .variable = 0, .path = "w"},
                  {.meta = rows, .path = "x"},
                  {.meta = kMatrix, .path = "s0"},
                  {.meta = step_params_meta(), .path = "step_params"},
                  {.meta = kMatrix, .producer = 0, .path = "final"},
                  {.meta = rows, .producer = 0, .path = "outputs"},
                  {.meta = kMatrix, .producer = 0, .path = "sum"}};
  graph.variables = {{"w", kMatrix, Category::parameters, 0, 0}};
  graph.inputs = {1, 2, 3};
  graph.nodes = {{.op = "loop", .in = {0, 1, 2, 3}, .out = {4, 5, 6}, .path = "rnn", .loop = 0}};
  graph.keep = {4, 5, 6};
  graph.loops.push_back({.body = std::move(body),
                         .trips = 3,
                         .samples = 2,
                         .shared = {{0, 1}},
                         .sliced = {{1, 0}},
                         .params = {{3, 3}},
                         .carried = {{2, 2, 6, 4}},
                         .stacked = {{7, 5}},
                         .accumulated = {{8, 6}}});
  return graph;
}

TEST(Graph, PrintsALoopWithItsBody) {
  EXPECT_NO_THROW(check_graph(looped()));
  EXPECT_EQ(
      print(looped()),
      "variable w float32 (2, 2) parameters %0 -> %0\n"
      "input x float32 (6, 2) %1\n"
      "input s0 float32 (2, 2) %2\n"
      "input step_params uint8 (64,) %3\n"
      "%4, %5, %6 = loop(%0, %1, %2, %3) : float32 (2, 2) float32 (6, 2) float32 (2, 2)  # rnn\n"
      "  loop 3 trips\n"
      "    variable w float32 (2, 2) parameters %1 -> %1\n"
      "    variable sum float32 (2, 2) gradients %4 -> %8\n"
      "    input x_i float32 (2, 2) %0\n"
      "    input s float32 (2, 2) %2\n"
      "    input step_params uint8 (64,) %3\n"
      "    %5 = matmul(%0, %1) : float32 (2, 2)  # rnn\n"
      "    %6 = add(%2, %5) : float32 (2, 2)  # rnn\n"
      "    %7 = dropout(%6, %3) : float32 (2, 2)  # rnn\n"
      "    %8 = accumulate(%4, %5) : float32 (2, 2)  # rnn\n"
      "    keep  %6\n"
      "    keep  %7\n"
      "keep final %4\n"
      "keep outputs %5\n"
      "keep sum %6\n");
}

const Fault kLoopFaults[] = {
    {"NoTrips", [](Graph& g) { g.loops[0].trips = 0; }, "at least one trip"},
    {"NegativeTrips", [](Graph& g) { g.loops[0].trips = -1; }, "at least one trip"},
    {"SharedLinkMissing", [](Graph& g) { g.loops[0].shared.clear(); }, "match its inputs"},
    {"ParamsLinkMissing", [](Graph& g) { g.loops[0].params.clear(); }, "match its inputs"},
    {"CarriedLinkMissing", [](Graph& g) { g.loops[0].carried.clear(); }, "match its inputs"},
    {"InputTwice",
     [](Graph& g) {
       g.loops[0].sliced.push_back({1, 0});
     },
     "match its inputs"},
    {"StackedLinkMissing", [](Graph& g) { g.loops[0].stacked.clear(); }, "match its outputs"},
    {"SumLinkMissing", [](Graph& g) { g.loops[0].accumulated.clear(); }, "match its outputs"},
    {"BodyInputUnlinked",
     [](Graph& g) {
       g.loops[0].body.values.push_back({.meta = kMatrix});
       g.loops[0].body.inputs.push_back(9);
     },
     "match the body's inputs"},
    {"BodyVariableUnlinked",
     [](Graph& g) {
       g.loops[0].body.values.push_back({.meta = kMatrix, .variable = 2});
       g.loops[0].body.variables.push_back({"v", kMatrix, Category::parameters, 9, 9});
     },
     "match the body's inputs"},
    {"BodyInputLinkedTwice", [](Graph& g) { g.loops[0].shared[0].body = 0; },
     "match the body's inputs"},
    {"SlicedVariable",
     [](Graph& g) {
       g.loops[0].sliced[0].body = 1;
       g.loops[0].shared[0].body = 0;
     },
     "a shared value is a variable of the body"},
    {"SharedValueChangesInTheBody",
     [](Graph& g) {
       Graph& body = g.loops[0].body;
       body.values.push_back({.meta = kMatrix, .producer = 4, .variable = 0, .version = 1});
       body.nodes.push_back({.op = "g", .in = {1}, .out = {9}});
       body.variables[0].last = 9;
     },
     "that the body does not change"},
    {"SumWithoutAdding", [](Graph& g) { g.loops[0].accumulated[0].body = 4; },
     "not a variable of its body"},
    {"SumOfAnotherShape",
     [](Graph& g) {
       g.values[6].meta.shape = Shape{4, 1};
     },
     "has not the body's shape"},
    {"SharedOfAnotherShape",
     [](Graph& g) {
       g.values[0].meta.shape = g.variables[0].meta.shape = Shape{4, 1};
     },
     "has not the body's shape"},
    {"SlicesThatMakeUpLess",
     [](Graph& g) {
       g.values[1].meta.shape = Shape{8, 2};
     },
     "do not make up the whole"},
    {"SlicesOfColumns",
     [](Graph& g) {
       g.values[1].meta.shape = Shape{2, 6};
     },
     "do not make up the whole"},
    {"SlicesOfAnotherType", [](Graph& g) { g.values[1].meta.dtype = Dtype::int32; },
     "do not make up the whole"},
    {"StacksOfAnotherHeight", [](Graph& g) { g.loops[0].trips = 2; }, "do not make up the whole"},
    {"ParamsOfAnotherShape", [](Graph& g) { g.values[3].meta.shape = Shape{32}; },
     "has not the body's shape"},
    {"StackedFromNowhere", [](Graph& g) { g.loops[0].stacked[0].body = 99; },
     "a value that the body does not keep"},
    {"CarriedFromNowhere", [](Graph& g) { g.loops[0].carried[0].body_out = -1; },
     "a value that the body does not keep"},
    {"StackedValueThatIsNotKept", [](Graph& g) { g.loops[0].body.keep = {6}; },
     "a value that the body does not keep"},
    {"BrokenBody",
     [](Graph& g) {
       g.loops[0].body.nodes[0].in = {0, 7};
     },
     "before it is written"},
};

class LoopFault : public ::testing::TestWithParam<Fault> {};
TEST_P(LoopFault, IsCaught) { expect_caught(looped(), GetParam()); }
INSTANTIATE_TEST_SUITE_P(Graph, LoopFault, ::testing::ValuesIn(kLoopFaults), name_of_fault);

TEST(Attrs, AreSortedTypedAndPrinted) {
  Attrs attrs{{"strides", std::vector<int64_t>{1, 2}}, {"padding", std::string("same")}};
  attrs.set("axis", int64_t{-1});
  attrs.set("rate", 0.1);
  EXPECT_EQ(attrs.print(), "{axis=-1, padding=same, rate=0.10000000000000001, strides=[1, 2]}");
  EXPECT_EQ(attrs.integer("axis"), -1);
  EXPECT_EQ(attrs.integer("none", 7), 7);
  EXPECT_EQ(attrs.text("padding"), "same");
  EXPECT_THROW(attrs.integer("none"), InternalError);
  EXPECT_THROW(attrs.integer("rate"), InternalError);
  attrs.set("axis", int64_t{2});
  EXPECT_EQ(attrs.integer("axis"), 2);
  EXPECT_EQ(attrs.entries().size(), 4u);
}

}  // namespace
}  // namespace pl::test::graph_test
