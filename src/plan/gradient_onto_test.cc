#include <gtest/gtest.h>

#include <algorithm>

#include "model/gpt.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/passes.h"
#include "train/step_trace.h"

namespace pl::gradient_onto_test {
namespace {

TEST(GradientOnto, AddsTheEmbeddingsGradientToTheTiedHeads) {
  auto nodes_of = [](const Graph& graph, const std::string& op) {
    return std::count_if(graph.nodes.begin(), graph.nodes.end(),
                         [&](const Node& node) { return node.op == op; });
  };
  Compiled compiled{Adam(), loss_from_name("sparse_categorical_crossentropy"), {}, Dtype::float32};
  compiled.loss.from_logits = true;
  const Meta tokens{Dtype::int32, Shape{6}};
  Graph graph = trace_step(gpt_network({1, 16, 2, 40}, tokens.shape), compiled,
                           {StepKind::train, 3}, {{tokens}, {tokens}, 1, false});
  const auto adds = nodes_of(graph, "add");
  EXPECT_EQ(nodes_of(graph, "embedding_gradient"), 1);
  pass::add_gradient_onto(graph);
  check_graph(graph);
  EXPECT_EQ(nodes_of(graph, "embedding_gradient"), 0);
  EXPECT_EQ(nodes_of(graph, "embedding_gradient_onto"), 1);
  EXPECT_EQ(nodes_of(graph, "add"), adds - 1);
  for (const Node& node : graph.nodes)
    if (node.op == "embedding_gradient_onto") {
      EXPECT_EQ(node.path, "wte");
      EXPECT_EQ(graph.nodes[index(graph.values[index(node.in[0])].producer)].op, "matmul");
    }
}

// A gradient that somebody else reads, or that is kept, stays as it is.
TEST(GradientOnto, LeavesAGradientThatOthersRead) {
  for (const bool kept : {false, true}) {
    Recorder r;
    const Tensor tokens = r.input("x", {Dtype::int32, {2, 3}}, true);
    const Tensor dy = r.input("dy", {Dtype::float32, {2, 3, 4}}, true);
    const Tensor other = r.input("other", {Dtype::float32, {5, 4}}, false);
    const Tensor gradient = embedding_gradient(tokens, dy, 5);
    r.keep(add(other, gradient), "sum");
    r.keep(kept ? gradient : square(gradient), "second");
    Graph graph = r.take();
    const std::string before = print(graph);
    pass::add_gradient_onto(graph);
    EXPECT_EQ(print(graph), before);
  }
}

}  // namespace
}  // namespace pl::gradient_onto_test
