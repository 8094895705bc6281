// Convolution and max-pool in one call: where it happens, what it saves, and equal bits.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/passes.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"

namespace pl::test::fuse_conv_pool_test {
namespace {

Meta meta(Shape shape) { return {Dtype::float32, std::move(shape)}; }

// One step of conv2d (3x3 over `channels` to 20 filters), relu, max-pool, a sum of squares.
Graph step(Shape x_shape, const Conv2dOptions& conv, const PoolOptions& pool) {
  Recorder r;
  RecorderScope scope(r);
  const Tensor w = r.variable("w", meta({3, 3, x_shape.back(), 20}), Category::parameters);
  const Tensor b = r.variable("b", meta({20}), Category::parameters);
  const Tensor x = r.input("x", meta(std::move(x_shape)), true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor y = max_pool(relu(conv2d(x, w, conv, b)), pool);
  const Tensor loss = reduce_sum(square(y));
  r.keep(loss, "loss");
  const Tensors g = gradients(loss, {w, b}, fill(Shape{}, 1.0, Dtype::float32));
  sgd(w, g[0], params);
  sgd(b, g[1], params);
  return r.take();
}

auto run_steps(const Graph& graph, Backend& backend, const PassOptions& options) {
  PlannedRun run(graph, backend, options);
  fill_variables(run, 4);
  for (int64_t step = 1; step <= 2; ++step) {
    fill_inputs(run, static_cast<uint64_t>(step), step);
    run.step_poisoned();
  }
  return results(run);
}

TEST(FuseConvPool, LeavesNoLargeImage) {
  const Graph graph = step({70, 26, 26, 1}, {}, {});
  Graph fused = graph;
  run_passes(fused);
  const std::string text = print(fused);
  EXPECT_NE(text.find(" = conv2d_pool("), std::string::npos) << text;
  EXPECT_NE(text.find(" = conv2d_pool_weight_gradient("), std::string::npos) << text;
  EXPECT_EQ(text.find("(70, 24, 24, 20)"), std::string::npos) << text;
  CpuBackend backend(1);
  const VariableLayout layout = PlannedRun::layout_of(graph, backend.alignment());
  PassOptions without;
  without.off = {"fuse-conv-pool"};
  EXPECT_LT(2 * prepare_graph(graph, backend, layout).plan.arena,
            prepare_graph(graph, backend, layout, without).plan.arena);
}

// Groups of images, strips of one image, padding, odd sizes, strides, windows that are not 2x2.
TEST(FuseConvPool, KeepsTheBits) {
  const Graph graphs[] = {
      step({130, 9, 8, 1}, {}, {}),
      step({1, 61, 30, 3}, {.padding = "same"}, {}),
      step({3, 40, 17, 2}, {.strides = {2, 1}}, {.pool_size = {3, 2}, .strides = {3, 3}}),
  };
  for (const Graph& graph : graphs)
    for (int threads : {1, 2}) {
      CpuBackend backend(threads);
      EXPECT_EQ(difference(graph, run_steps(graph, backend, {}),
                           run_steps(graph, backend, all_passes_off())),
                "")
          << print(graph);
    }
}

TEST(FuseConvPool, LeavesOverlappingWindowsAndManyChannels) {
  for (Graph graph :
       {step({2, 12, 12, 1}, {}, {.pool_size = {3, 3}, .strides = {2, 2}}),
        step({2, 12, 12, 8}, {}, {}), step({2, 12, 11, 1}, {}, {.padding = "same"})}) {
    run_passes(graph);
    EXPECT_EQ(print(graph).find("conv2d_pool"), std::string::npos) << print(graph);
  }
}

}  // namespace
}  // namespace pl::test::fuse_conv_pool_test
