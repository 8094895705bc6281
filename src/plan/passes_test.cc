// Each pass: what it does to a small graph, and that no bit of a kept value or variable changes.
#include "plan/passes.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "model/builtin.h"
#include "model/gpt.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"
#include "train/step_trace.h"

namespace pl::test::passes_test {
namespace {

Meta meta(Shape shape, Dtype dtype = Dtype::float32) { return {dtype, std::move(shape)}; }

std::string after(Graph graph, void (*pass)(Graph&)) {
  check_graph(graph);
  pass(graph);
  check_graph(graph);
  return print(graph);
}

// ---- what each pass does

TEST(DeadCode, KeepsWhatIsKeptOrUpdatesAVariable) {
  Recorder r;
  const Tensor w = r.variable("w", meta({2, 2}), Category::parameters);
  const Tensor x = r.input("x", meta({2, 2}), true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor used = tanh(x);
  exp(used);             // nobody reads it
  square(square(used));  // nor the end of this chain
  sgd(w, negative(x), params);
  r.keep(used, "out");
  EXPECT_EQ(after(r.take(), pass::drop_dead_code),
            "variable w float32 (2, 2) parameters %0 -> %5\n"
            "input x float32 (2, 2) %1\n"
            "input step_params uint8 (64,) %2\n"
            "%3 = tanh(%1) : float32 (2, 2)\n"
            "%4 = negative(%1) : float32 (2, 2)\n"
            "%5 = sgd(%0, %4, %2) : float32 (2, 2)\n"
            "keep out %3\n");
}

TEST(CommonSubexpressions, AreComputedOnce) {
  Recorder r;
  const Tensor x = r.input("x", meta({2, 2}), true);
  const Tensor a = tanh(scale(x, 2.0)), b = tanh(scale(x, 2.0)), c = tanh(scale(x, 3.0));
  r.keep(add(a, b), "sum");
  r.keep(c, "other");
  EXPECT_EQ(after(r.take(), pass::share_common_subexpressions),
            "input x float32 (2, 2) %0\n"
            "%1 = scale(%0) {factor=2} : float32 (2, 2)\n"
            "%2 = tanh(%1) : float32 (2, 2)\n"
            "%3 = scale(%0) {factor=3} : float32 (2, 2)\n"
            "%4 = tanh(%3) : float32 (2, 2)\n"
            "%5 = add(%2, %2) : float32 (2, 2)\n"
            "keep sum %5\n"
            "keep other %4\n");
}

TEST(CommonSubexpressions, AreNotUpdatesNorReadsOfAnotherVersion) {
  Recorder r;
  const Tensor a = r.variable("a", meta({2}), Category::parameters);
  const Tensor x = r.input("x", meta({2}), false);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  r.keep(tanh(a), "before");
  const Tensor once = sgd(a, x, params);
  r.keep(tanh(once), "between");
  sgd(once, x, params);
  Graph graph = r.take();
  pass::share_common_subexpressions(graph);
  EXPECT_EQ(graph.nodes.size(), 4u);
}

TEST(CommonSubexpressions, MayBeKeptUnderTwoNames) {
  Recorder r;
  const Tensor x = r.input("x", meta({2}), false);
  r.keep(tanh(x), "one");
  r.keep(tanh(x), "two");
  Graph graph = r.take();
  pass::share_common_subexpressions(graph);
  check_graph(graph);
  EXPECT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.keep, (std::vector<ValueId>{1, 1}));
}

// conv -> relu -> pool with its gradients, as a small training step.
Graph conv_step(Dtype dtype, bool train) {
  Recorder r;
  RecorderScope scope(r);
  const Tensor k = r.variable("conv/kernel", meta({3, 3, 2, 8}, dtype), Category::parameters);
  const Tensor b = r.variable("conv/bias", meta({8}, dtype), Category::parameters);
  const Tensor x = r.input("x", meta({2, 6, 6, 2}, dtype), true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  Tensor pooled;
  {
    PathScope path(&r, "conv");
    pooled = relu(conv2d(x, k, {}, b));
  }
  {
    PathScope path(&r, "pool");
    pooled = max_pool(pooled);
  }
  const Tensor loss = reduce_sum(square(pooled));
  r.keep(loss, "loss");
  r.keep(pooled, "pooled");
  if (!train) return r.take();
  const Tensors g = gradients(loss, {k, b}, fill(Shape{}, 1.0, dtype));
  sgd(k, g[0], params);
  sgd(b, g[1], params);
  return r.take();
}

TEST(ReluBehindPool, MovesForward) {
  EXPECT_EQ(
      after(conv_step(Dtype::float32, false), pass::move_relu_behind_pool),
      "variable conv/kernel float32 (3, 3, 2, 8) parameters %0 -> %0\n"
      "variable conv/bias float32 (8,) parameters %1 -> %1\n"
      "input x float32 (2, 6, 6, 2) %2\n"
      "input step_params uint8 (64,) %3\n"
      "%4 = conv2d(%2, %0, %1) {padding=valid, strides=[1, 1]} : float32 (2, 4, 4, 8)  # conv\n"
      "%5, %6 = max_pool(%4) {padding=valid, pool_size=[2, 2], strides=[2, 2]} : float32 (2, 2, 2, "
      "8) uint8 (2, 2, 2, 8)  # pool\n"
      "%7 = relu(%5) : float32 (2, 2, 2, 8)  # conv\n"
      "%8 = square(%7) : float32 (2, 2, 2, 8)\n"
      "%9 = reduce_sum(%8) {axes=[0, 1, 2, 3]} : float32 ()\n"
      "keep loss %9\n"
      "keep pooled %7\n");
}

TEST(ReluBehindPool, MovesTheGradientToo) {
  EXPECT_EQ(calls(after(conv_step(Dtype::float32, true), pass::move_relu_behind_pool)),
            "%4 = conv2d(%2, %0, %1)\n"
            "%5, %6 = max_pool(%4)\n"
            "%7 = relu(%5)\n"
            "%8 = square(%7)\n"
            "%9 = reduce_sum(%8)\n"
            "%10 = fill()\n"
            "%11 = reshape(%10)\n"
            "%12 = broadcast_to(%11)\n"
            "%13 = multiply(%12, %7)\n"
            "%14 = scale(%13)\n"
            "%15 = relu_gradient(%7, %14)\n"
            "%16 = max_pool_gradient(%6, %15)\n"
            "%17, %18 = conv2d_weight_gradient(%2, %16)\n"
            "%19 = sgd(%0, %17, %3)\n"
            "%20 = sgd(%1, %18, %3)\n");
}

TEST(ReluBehindPool, LeavesARectifiedValueThatOthersRead) {
  for (const bool kept : {false, true}) {
    Recorder r;
    const Tensor x = r.input("x", meta({1, 4, 4, 1}), true);
    const Tensor y = relu(x);
    r.keep(max_pool(y), "pooled");
    r.keep(kept ? y : reduce_sum(y), "other");
    Graph graph = r.take();
    const std::string before = print(graph);
    pass::move_relu_behind_pool(graph);
    EXPECT_EQ(print(graph), before);
  }
}

TEST(FuseRelu, BecomesTheEpilogueOfMatmulAndConvolution) {
  Recorder r;
  const Tensor w = r.variable("w", meta({4, 3}), Category::parameters);
  const Tensor k = r.variable("k", meta({2, 2, 1, 2}), Category::parameters);
  const Tensor x = r.input("x", meta({2, 4}), true);
  const Tensor image = r.input("image", meta({1, 4, 4, 1}), true);
  r.keep(relu(matmul(x, w)), "dense");
  r.keep(relu(conv2d(image, k)), "conv");
  const Tensor kept = matmul(x, w);  // its own value is asked for, so it stays
  r.keep(kept, "linear");
  r.keep(tanh(relu(kept)), "tanh");
  Graph graph = r.take();
  EXPECT_EQ(calls(after(graph, pass::fuse_relu)),
            "%4 = matmul(%2, %0)\n"
            "%5 = conv2d(%3, %1)\n"
            "%6 = matmul(%2, %0)\n"
            "%7 = relu(%6)\n"
            "%8 = tanh(%7)\n");
  pass::fuse_relu(graph);
  EXPECT_EQ(graph.nodes[0].attrs.text("activation"), "relu");
  EXPECT_EQ(graph.nodes[1].attrs.text("activation"), "relu");
  EXPECT_FALSE(graph.nodes[2].attrs.has("activation"));
}

TEST(FuseRelu, LeavesAProductThatOthersRead) {
  Recorder r;
  const Tensor w = r.variable("w", meta({4, 3}), Category::parameters);
  const Tensor y = matmul(r.input("x", meta({2, 4}), true), w);
  r.keep(add(relu(y), y), "out");
  Graph graph = r.take();
  const std::string before = print(graph);
  pass::fuse_relu(graph);
  EXPECT_EQ(print(graph), before);
}

TEST(EarlyUpdate, ComesAsSoonAsTheGradientIsFinalAndNobodyReadsTheOldVersion) {
  Recorder r;
  const Tensor a = r.variable("a", meta({2, 2}), Category::parameters);
  const Tensor b = r.variable("b", meta({2, 2}), Category::parameters);
  const Tensor x = r.input("x", meta({2, 2}), true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor ga = scale(x, 2.0);
  const Tensor late = matmul(reshape(reshape(a, {4}), {2, 2}), x);  // reads a through an alias
  const Tensor gb = tanh(late);
  const Tensor later = square(gb);
  sgd(a, ga, params);
  sgd(b, gb, params);
  r.keep(later, "out");
  EXPECT_EQ(calls(after(r.take(), pass::update_early)),
            "%4 = scale(%2)\n"
            "%5 = reshape(%0)\n"
            "%6 = reshape(%5)\n"
            "%7 = matmul(%6, %2)\n"
            "%8 = sgd(%0, %4, %3)\n"
            "%9 = tanh(%7)\n"
            "%10 = sgd(%1, %9, %3)\n"
            "%11 = square(%9)\n");
}

TEST(EarlyUpdate, StaysWhereItsResultIsReadAgain) {
  Recorder r;
  const Tensor a = r.variable("a", meta({2}), Category::parameters);
  const Tensor x = r.input("x", meta({2}), true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor g = tanh(x);
  r.keep(square(x), "other");
  const Tensor next = sgd(a, g, params);
  r.keep(tanh(next), "out");
  Graph graph = r.take();
  const std::string before = print(graph);
  pass::update_early(graph);
  EXPECT_EQ(print(graph), before);
}

// ---- bits

// Everything at once: shared calls, dead code, dropout, tied weights, momentum, reuse of updates.
Graph mixed_step(Dtype dtype) {
  Recorder r;
  RecorderScope scope(r);
  const Tensor w = r.variable("w", meta({6, 6}, dtype), Category::parameters);
  const Tensor b = r.variable("b", meta({6}, dtype), Category::parameters);
  const Tensor m = r.variable("m", meta({6, 6}, dtype), Category::optimizer);
  const Tensor v = r.variable("v", meta({6, 6}, dtype), Category::optimizer);
  const Tensor x = r.input("x", meta({4, 6}, dtype), true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor h = dropout(relu(matmul(x, w, {}, b)), params, 0.25, 1);
  const Tensor again = dropout(relu(matmul(x, w, {}, b)), params, 0.25, 1);
  const Tensor y = relu(matmul(add(h, again), w, {.transpose_b = true}));
  exp(y);
  const Tensor loss = reduce_sum(square(y));
  r.keep(loss, "loss");
  r.keep(x, "x");
  const Tensors g = gradients(loss, {w, b}, fill(Shape{}, 1.0, dtype));
  adam(w, m, v, g[0], params);
  const Tensor next = sgd(b, g[1], params);
  r.keep(tanh(next), "after");
  return r.take();
}

// One step of a built-in model.
Graph model_step(const char* name, int64_t batch) {
  const BuiltinModel& model = find_builtin(name);
  const Compiled compiled{
      Adam(), loss_from_name("sparse_categorical_crossentropy"), {"accuracy"}, Dtype::float32};
  return trace_step(model.build(model.input, model.classes), compiled, {StepKind::train, batch},
                    {{{Dtype::float32, model.input}}, {{Dtype::int32, Shape{}}}, 1, false});
}

// Kept values and variables after three steps. Pixels may be -0.0, which relu and pool must treat
// alike.
std::vector<std::string> three_steps(const Graph& graph, Backend& backend,
                                     const PassOptions& options) {
  PlannedRun run(graph, backend, options);
  fill_variables(run, 2);
  // Optimiser slots start at zero, and weights small enough for a loss that stays finite.
  for (size_t v = 0; v < graph.variables.size(); ++v) {
    const GraphVariable& variable = graph.variables[v];
    const double factor = variable.category == Category::optimizer ? 0 : 0.125;
    for (int64_t i = 0; i < variable.meta.elements(); ++i)
      if (variable.meta.dtype == Dtype::float64)
        static_cast<double*>(run.variable(v))[i] *= factor;
      else
        static_cast<float*>(run.variable(v))[i] *= static_cast<float>(factor);
  }
  std::vector<std::string> all;
  for (int64_t step = 1; step <= 3; ++step) {
    fill_inputs(run, static_cast<uint64_t>(step), step, 10);
    run.step_poisoned();
    for (std::string& bytes : results(run)) all.push_back(std::move(bytes));
  }
  return all;
}

void expect_same_bits(const Graph& graph, Backend& backend) {
  const auto plain = three_steps(graph, backend, all_passes_off());
  auto differing = [&](const std::vector<std::string>& other) {
    int count = 0;
    for (size_t i = 0; i < plain.size(); ++i) count += plain[i] != other[i];
    return count;
  };
  for (const Pass& pass : passes())
    EXPECT_EQ(differing(three_steps(graph, backend, only_pass(pass.name))), 0) << pass.name;
  EXPECT_EQ(differing(three_steps(graph, backend, {})), 0) << "all passes";
}

TEST(Passes, KeepTheBitsOfAConvolutionStep) {
  CpuBackend backend(2);
  for (Dtype dtype : {Dtype::float32, Dtype::float64})
    for (bool train : {false, true}) expect_same_bits(conv_step(dtype, train), backend);
}

TEST(Passes, KeepTheBitsOfAMixedStep) {
  CpuBackend backend(2);
  for (Dtype dtype : {Dtype::float32, Dtype::float64}) expect_same_bits(mixed_step(dtype), backend);
}

TEST(Passes, KeepTheBitsOfMnistCnn) {
  CpuBackend backend(2);
  expect_same_bits(model_step("mnist-cnn", 4), backend);
}

TEST(Passes, KeepTheBitsOfMlp) {
  CpuBackend backend(2);
  expect_same_bits(model_step("mlp", 4), backend);
}

// A small GPT, whose table has two gradients; too few classes for the blocks of the loss head.
Graph gpt_step() {
  const Network network = gpt_network({2, 16, 2, 40}, Shape{6});
  Compiled compiled{
      Adam(), loss_from_name("sparse_categorical_crossentropy"), {"accuracy"}, Dtype::float32};
  compiled.loss.from_logits = true;
  return trace_step(network, compiled, {StepKind::train, 3},
                    {{{Dtype::int32, Shape{6}}}, {{Dtype::int32, Shape{6}}}, 1, false});
}

TEST(Passes, KeepTheBitsOfGpt) {
  CpuBackend backend(2);
  expect_same_bits(gpt_step(), backend);
}

// relu and pool on values where they could disagree: ties, zeros of both signs, all-negative
// windows, overlapping windows.
TEST(Passes, KeepTheBitsOfReluAndPoolAtTies) {
  CpuBackend backend(1);
  for (Dtype dtype : {Dtype::float32, Dtype::float64})
    for (const PoolOptions& options :
         {PoolOptions{}, PoolOptions{.pool_size = {3, 3}, .strides = {1, 2}},
          PoolOptions{.pool_size = {3, 2}, .strides = {2, 1}, .padding = "same"}}) {
      Recorder r;
      RecorderScope scope(r);
      const Tensor x = r.input("x", meta({2, 9, 8, 3}, dtype), true);
      // Quarters: many ties. negative(0) is -0.0.
      const Tensor c = negative(scale(cast(cast(scale(x, 8.0), Dtype::int32), dtype), 0.25));
      const Tensor y = max_pool(relu(c), options);
      const Tensor dy = r.input("dy", y.meta(), true);
      r.keep(y, "y");
      r.keep(gradients(y, {c}, dy)[0], "dc");
      const Graph graph = r.take();
      expect_same_bits(graph, backend);
    }
}

TEST(Passes, AreListedWithSummariesAndReported) {
  Graph graph = conv_step(Dtype::float32, true);
  std::vector<std::string> seen;
  PassOptions options;
  options.off = {"fuse-relu"};
  options.after = [&](const Pass& pass, const Graph& now, double ms) {
    seen.push_back(pass.name);
    EXPECT_GE(ms, 0);
    EXPECT_FALSE(now.nodes.empty());
    EXPECT_GT(std::string(pass.summary).size(), 10u);
  };
  run_passes(graph, options);
  EXPECT_EQ(seen, (std::vector<std::string>{"dead-code", "common-subexpressions", "loss-head",
                                            "fold-padding", "relu-behind-pool", "relu-bits",
                                            "batch-norm", "fuse-conv-pool", "gradient-onto",
                                            "early-update", "fuse-pointwise"}));
}

}  // namespace
}  // namespace pl::test::passes_test
