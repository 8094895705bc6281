// Padding that is folded into convolutions and pools: where that is done, and equal results.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/passes.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"

namespace pl::test::fold_padding_test {
namespace {

// pad, conv, relu, pad, pool, pad, conv 'same' with its gradients, as a small training step.
Graph step(Dtype dtype, bool rectified = true) {
  auto meta = [&](Shape shape) { return Meta{dtype, std::move(shape)}; };
  Recorder r;
  RecorderScope scope(r);
  const Tensor v = r.variable("v", meta({7, 7, 3, 16}), Category::parameters);
  const Tensor w = r.variable("w", meta({3, 3, 16, 8}), Category::parameters);
  const Tensor x = r.input("x", meta({2, 13, 12, 3}), true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  Tensor h = conv2d(pad(x, {3, 3, 3, 3}), v, {.strides = {2, 2}});
  if (rectified) h = relu(h);
  h = max_pool(pad(h, {1, 1, 1, 1}), {.pool_size = {3, 3}, .strides = {2, 2}});
  h = conv2d(pad(h, {1, 0, 0, 1}), w, {.strides = {2, 2}, .padding = "same"});
  const Tensor loss = reduce_sum(square(h));
  r.keep(loss, "loss");
  const Tensors g = gradients(loss, {v, w}, fill(Shape{}, 1.0, dtype));
  sgd(v, g[0], params);
  sgd(w, g[1], params);
  Graph graph = r.take();
  pass::drop_dead_code(graph);
  return graph;
}

int count(const Graph& graph, const std::string& op) {
  int found = 0;
  for (const Node& node : graph.nodes) found += node.op == op;
  return found;
}

TEST(FoldPadding, LeavesNoCopyOfPaddedImages) {
  Graph graph = step(Dtype::float32);
  EXPECT_EQ(count(graph, "pad"), 3);
  EXPECT_EQ(count(graph, "crop"), 2);
  pass::fold_padding(graph);
  check_graph(graph);
  EXPECT_EQ(count(graph, "pad"), 0) << print(graph);
  EXPECT_EQ(count(graph, "crop"), 0) << print(graph);
}

TEST(FoldPadding, KeepsZerosInFrontOfAPoolOfValuesThatMayBeNegative) {
  Graph graph = step(Dtype::float32, false);
  pass::fold_padding(graph);
  check_graph(graph);
  EXPECT_EQ(count(graph, "pad"), 1) << print(graph);
  EXPECT_EQ(count(graph, "max_pool"), 1);
}

TEST(FoldPadding, LeavesPaddingThatIsReadElsewhereOrTooWide) {
  Recorder r;
  const Meta images{Dtype::float32, {2, 5, 5, 3}};
  const Tensor x = r.input("x", images, true);
  const Tensor w = r.input("w", {Dtype::float32, {3, 3, 3, 4}}, false);
  const Tensor p = pad(x, {1, 1, 1, 1});
  r.keep(conv2d(p, w), "folded");
  r.keep(square(p), "square");
  r.keep(conv2d(pad(x, {0, 3, 0, 0}), w), "wide");
  Graph graph = r.take();
  pass::fold_padding(graph);
  check_graph(graph);
  EXPECT_EQ(count(graph, "pad"), 2) << print(graph);
}

// In float32 the library may sum in another order when it knows of the padding.
TEST(FoldPadding, ChangesNoBitOfTheReference) {
  CpuBackend backend(2);
  for (bool rectified : {true, false}) {
    const Graph graph = step(Dtype::float64, rectified);
    auto two_steps = [&](const PassOptions& options) {
      PlannedRun run(graph, backend, options);
      fill_variables(run, 4);
      for (int64_t i = 1; i <= 2; ++i) {
        fill_inputs(run, static_cast<uint64_t>(i), i);
        run.step_poisoned();
      }
      return results(run);
    };
    const auto plain = two_steps(all_passes_off());
    EXPECT_EQ(difference(graph, two_steps(only_pass("fold-padding")), plain), "");
    EXPECT_EQ(difference(graph, two_steps({}), plain), "");
  }
}

}  // namespace
}  // namespace pl::test::fold_padding_test
