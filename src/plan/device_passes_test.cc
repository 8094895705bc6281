// Passes that only a GPU's steps go through: the calls that are left, and the same step to rounding
// on the CPU, whole and in parts.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/passes.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"

namespace pl::test::device_passes_test {
namespace {

Meta meta(Shape shape) { return {Dtype::float32, std::move(shape)}; }

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

PassOptions for_device() {
  PassOptions options;
  options.device = true;
  return options;
}

struct Step {
  Recorder r;
  RecorderScope scope{r};
  Tensors wrt;
  Tensor params = r.input("step_params", step_params_meta(), false);

  Tensor parameter(Shape shape) {
    wrt.push_back(
        r.variable("w" + std::to_string(wrt.size()), meta(std::move(shape)), Category::parameters));
    return wrt.back();
  }
  Graph take(const Tensor& sum) {
    const Tensor loss = scale(sum, 0.01);
    r.keep(loss, "loss");
    const Tensors g = gradients(loss, wrt, fill(Shape{}, 1.0, Dtype::float32));
    for (size_t i = 0; i < wrt.size(); ++i) sgd(wrt[i], g[i], params);
    return r.take();
  }
};

// Two blocks as a transformer has them, without the heads. `narrow`: in mixed precision.
Graph transformer(bool narrow = false) {
  Step s;
  const Dim width = 16;
  Tensor x = s.r.input("x", meta({4, 5, width}), true);
  x = add(x, s.parameter({width}));  // so that a gradient goes on to the first block's input
  auto cast_to = [&](const Tensor& in) { return narrow ? cast(in, Dtype::bfloat16) : in; };
  x = cast_to(x);
  for (int b = 0; b < 2; ++b) {
    auto norm = [&](const Tensor& in) {
      const Tensor gamma = s.parameter({width}), beta = s.parameter({width});
      return layer_norm(in, gamma, beta, 1e-5).y;
    };
    auto dense = [&](const Tensor& in, Dim from, Dim to) {
      const Tensor w = s.parameter({from, to}), bias = s.parameter({to});
      return matmul(in, cast_to(w), {}, bias);
    };
    x = add(x, dense(norm(x), width, width));
    x = add(x, dense(gelu(dense(norm(x), width, 4 * width), true), 4 * width, width));
  }
  return s.take(reduce_sum(square(narrow ? cast(x, Dtype::float32) : x)));
}

// Two convolutions with biases, each with batch norm behind it.
Graph convolutions() {
  Step s;
  Tensor x = s.r.input("x", meta({3, 6, 6, 3}), true);
  for (int i = 0; i < 2; ++i) {
    const Tensor w = s.parameter({3, 3, i == 0 ? 3 : 8, 8}), bias = s.parameter({8});
    const std::string name = "bn" + std::to_string(i);
    const Tensor mean = s.r.variable(name + "/mean", meta({8}), Category::parameters);
    const Tensor variance = s.r.variable(name + "/variance", meta({8}), Category::parameters);
    const Tensor gamma = s.parameter({8}), beta = s.parameter({8});
    const auto result = batch_norm(conv2d(x, w, {.padding = "same"}, bias), gamma, beta, 1e-3);
    moving_statistics(mean, variance, result.mean, result.variance, 0.9);
    x = relu(result.y);
  }
  return s.take(reduce_sum(square(reduce_mean(x, {1, 2}))));
}

// All variables and the loss behind two steps.
std::vector<std::vector<float>> numbers_of(Prepared prepared) {
  PlannedRun run(std::move(prepared));
  fill_variables(run, 4);
  for (int64_t step = 1; step <= 2; ++step) {
    fill_inputs(run, static_cast<uint64_t>(step), step);
    run.step_poisoned();
  }
  std::vector<std::vector<float>> all;
  auto add = [&](const void* data, const Meta& meta) {
    const float* from = static_cast<const float*>(data);
    all.emplace_back(from, from + meta.elements());
  };
  for (size_t v = 0; v < run.graph().variables.size(); ++v)
    add(run.variable(v), run.graph().variables[v].meta);
  add(run.kept(0), run.graph().values[index(run.graph().keep[0])].meta);
  return all;
}

void expect_close(const std::vector<std::vector<float>>& a,
                  const std::vector<std::vector<float>>& b, double tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t v = 0; v < a.size(); ++v)
    for (size_t i = 0; i < a[v].size(); ++i)
      ASSERT_NEAR(static_cast<double>(a[v][i]), static_cast<double>(b[v][i]),
                  tolerance * std::max(1.0, std::fabs(static_cast<double>(b[v][i]))))
          << "variable " << v << " [" << i << "]";
}

TEST(DevicePasses, JoinProductsWithWhatFollows) {
  Graph graph = transformer();
  run_passes(graph, for_device());
  const std::string text = calls(print(graph));
  EXPECT_EQ(count(text, " = matmul_add("), 4) << text;
  EXPECT_EQ(count(text, " = matmul_gelu_gradient("), 2) << text;
  EXPECT_EQ(count(text, "layer_norm_gradients("), 4) << text;
  EXPECT_EQ(count(text, "layer_norm_gradient("), 0) << text;
  EXPECT_EQ(count(text, "layer_norm_parameter_gradient("), 0) << text;
  EXPECT_EQ(count(text, " = gelu_gradient("), 0) << text;
  // Biases that are added to the residual branch: their gradients are sums of norms' dx.
  EXPECT_EQ(count(text, " = reduce_sum("), 4) << text;  // those of three others, and the loss
}

TEST(DevicePasses, GiveTheSameStep) {
  CpuBackend backend(1);
  for (const Graph& graph : {transformer(), convolutions()}) {
    const VariableLayout layout = PlannedRun::layout_of(graph, backend.alignment());
    expect_close(numbers_of(prepare_graph(graph, backend, layout, for_device())),
                 numbers_of(prepare_graph(graph, backend, layout)), 2e-4);
  }
}

TEST(DevicePasses, LeaveABatchThatCanBeSplit) {
  CpuBackend backend(1);
  Graph whole = transformer(), device = whole;
  run_passes(whole);
  run_passes(device, for_device());
  expect_close(numbers_of(prepare_split(device, backend, 2)),
               numbers_of(prepare_split(whole, backend, 1)), 2e-4);
}

// Products of 16-bit numbers read biases of 16 bits.
TEST(DevicePasses, CastBiasesOnce) {
  Graph graph = transformer(true);
  run_passes(graph, for_device());
  int biases = 0;
  for (const Node& node : graph.nodes) {
    const size_t at = node.op == "matmul" ? 2 : 3;
    if (node.op.starts_with("matmul") && node.in.size() > at) {
      EXPECT_EQ(graph.values[index(node.in[at])].meta.dtype, Dtype::bfloat16);
      ++biases;
    }
  }
  EXPECT_EQ(biases, 6) << print(graph);
}

TEST(DevicePasses, DropABiasBeforeBatchNorm) {
  Graph graph = convolutions();
  run_passes(graph, for_device());
  const std::string text = print(graph);
  EXPECT_EQ(count(text, "with_bias=1"), 0) << text;
  EXPECT_EQ(count(text, " = moving_statistics("), 2) << text;
  for (const Node& node : graph.nodes)
    if (node.op == "conv2d") {
      EXPECT_EQ(node.in.size(), 2u) << text;
    }
}

// Someone else reads the convolution: its bias stays.
TEST(DevicePasses, KeepABiasThatIsSeen) {
  Step s;
  const Tensor x = s.r.input("x", meta({3, 6, 6, 3}), true);
  const Tensor w = s.parameter({3, 3, 3, 8}), bias = s.parameter({8});
  const Tensor gamma = s.parameter({8}), beta = s.parameter({8});
  const Tensor z = conv2d(x, w, {}, bias);
  Graph graph = s.take(add(reduce_sum(square(batch_norm(z, gamma, beta, 1e-3).y)), reduce_sum(z)));
  run_passes(graph, for_device());
  const std::string text = print(graph);
  EXPECT_EQ(count(text, "with_bias=1"), 1) << text;
}

}  // namespace
}  // namespace pl::test::device_passes_test
