// Bits instead of rectified values: where they are stored, what they save, and equal results.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/passes.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"

namespace pl::test::relu_bits_test {
namespace {

Meta meta(Shape shape) { return {Dtype::float32, std::move(shape)}; }

// relu before dropout: its gradient needs the sign alone. relu before a matmul: the weight gradient
// reads the value.
TEST(ReluBits, ReplaceAValueThatIsKeptForItsSign) {
  Recorder r;
  RecorderScope scope(r);
  const Tensor w = r.variable("w", meta({5, 3}), Category::parameters);
  const Tensor k = r.variable("k", meta({3, 3}), Category::parameters);
  const Tensor x = r.input("x", meta({4, 5}), true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor h = dropout(reshape(relu(matmul(x, w)), {4, 3, 1}), params, 0.5, 1);
  const Tensor y = relu(matmul(reshape(h, {4, 3}), k));
  const Tensor loss = reduce_sum(matmul(y, k));
  r.keep(loss, "loss");
  const Tensors g = gradients(loss, {w, k}, fill(Shape{}, 1.0, Dtype::float32));
  r.keep(g[0], "dw");
  r.keep(g[1], "dk");
  Graph graph = r.take();
  pass::store_relu_bits(graph);
  check_graph(graph);
  const std::string text = print(graph);
  EXPECT_NE(text.find(" = relu_bits("), std::string::npos) << text;
  EXPECT_NE(text.find(" = relu_bits_gradient("), std::string::npos) << text;
  EXPECT_NE(text.find(": float32 (4, 3) uint8 (4, 1)"), std::string::npos) << text;
  EXPECT_NE(text.find(" = relu("), std::string::npos) << text;
  EXPECT_NE(text.find(" = relu_gradient("), std::string::npos) << text;
}

TEST(ReluBits, LeaveAValueThatIsKept) {
  Recorder r;
  RecorderScope scope(r);
  const Tensor x = r.input("x", meta({4, 5}), true);
  const Tensor y = relu(x);
  const Tensor loss = reduce_sum(add(y, x));
  r.keep(y, "y");
  r.keep(gradients(loss, {x}, fill(Shape{}, 1.0, Dtype::float32))[0], "dx");
  Graph graph = r.take();
  const std::string before = print(graph);
  pass::store_relu_bits(graph);
  EXPECT_EQ(print(graph), before);
}

// Five blocks x + dropout(relu(x w)): each keeps a bit instead of a float for its relu.
TEST(ReluBits, MakeTheArenaSmaller) {
  Recorder r;
  RecorderScope scope(r);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  Tensor x = r.input("x", meta({64, 256}), true);
  Tensors wrt;
  for (int block = 0; block < 5; ++block) {
    wrt.push_back(r.variable("w" + std::to_string(block), meta({256, 256}), Category::parameters));
    x = add(x, dropout(relu(matmul(x, wrt.back())), params, 0.5, block));
  }
  const Tensor loss = reduce_sum(square(x));
  r.keep(loss, "loss");
  const Tensors g = gradients(loss, wrt, fill(Shape{}, 1.0, Dtype::float32));
  for (size_t i = 0; i < wrt.size(); ++i) sgd(wrt[i], g[i], params);
  const Graph graph = r.take();
  CpuBackend backend(1);
  const VariableLayout layout = PlannedRun::layout_of(graph, backend.alignment());
  PassOptions without;
  without.off = {"relu-bits"};
  const Bytes value = 64 * 256 * 4;
  EXPECT_LE(prepare_graph(graph, backend, layout).plan.arena + 3 * value,
            prepare_graph(graph, backend, layout, without).plan.arena);
  auto two_steps = [&](const PassOptions& options) {
    PlannedRun run(graph, backend, options);
    fill_variables(run, 4);
    for (int64_t step = 1; step <= 2; ++step) {
      fill_inputs(run, static_cast<uint64_t>(step), step);
      run.step_poisoned();
    }
    return results(run);
  };
  EXPECT_EQ(difference(graph, two_steps({}), two_steps(all_passes_off())), "");
}

}  // namespace
}  // namespace pl::test::relu_bits_test
