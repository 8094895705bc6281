// The loss head in blocks: what becomes of the graph, that the numbers stay, that whole logits go,
// and what is left alone.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/passes.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"

namespace pl::test::loss_head_test {
namespace {

constexpr Dim kClasses = 1027;

struct Form {
  Dim rows = 6;
  Dim classes = kClasses;
  bool tied = false, bias = true, train = true, accuracy = true;
  Dtype dtype = Dtype::float32;
};

// x -> tanh(matmul) -> matmul -> cross-entropy, its mean, the accuracy, and SGD.
Graph step_of(const Form& form) {
  Recorder r;
  RecorderScope scope(r);
  auto meta = [&](Shape shape) { return Meta{form.dtype, std::move(shape)}; };
  const Tensor w0 = r.variable("w0", meta({3, 4}), Category::parameters);
  const Tensor w = r.variable(
      "w", meta(form.tied ? Shape{form.classes, 4} : Shape{4, form.classes}), Category::parameters);
  Tensor b;
  if (form.bias) b = r.variable("b", meta({form.classes}), Category::parameters);
  const Tensor x = r.input("x", meta({form.rows, 3}), true);
  const Tensor labels = r.input("y", {Dtype::int32, {form.rows}}, true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor logits = matmul(tanh(matmul(x, w0)), w, {.transpose_b = form.tied}, b);
  const auto [per_row, probs] = sparse_softmax_cross_entropy(logits, labels);
  const Tensor loss = scale(reduce_sum(per_row), 1.0 / static_cast<double>(form.rows));
  r.keep(loss, "loss");
  if (form.accuracy) r.keep(reduce_sum(sparse_categorical_accuracy(probs, labels)), "accuracy");
  if (form.train) {
    Tensors wrt{w0, w};
    if (form.bias) wrt.push_back(b);
    const Tensors g = gradients(loss, wrt, fill(Shape{}, 1.0, form.dtype));
    for (size_t i = 0; i < wrt.size(); ++i) sgd(wrt[i], g[i], params);
  }
  return r.take();
}

std::string after_pass(Graph graph) {
  pass::block_loss_head(graph);
  check_graph(graph);
  return print(graph);
}

TEST(LossHead, BecomesOneCallWithGradients) {
  EXPECT_EQ(calls(after_pass(step_of({}))),
            "%6 = matmul(%3, %0)\n"
            "%7 = tanh(%6)\n"
            "%8 = fill()\n"
            "%9 = scale(%8)\n"
            "%10 = reshape(%9)\n"
            "%11 = broadcast_to(%10)\n"
            "%12, %13, %14, %15, %16 = linear_cross_entropy(%7, %1, %4, %2, %11)\n"
            "%17 = reduce_sum(%12)\n"
            "%18 = scale(%17)\n"
            "%19 = reduce_sum(%16)\n"
            "%20 = square(%7)\n"
            "%21 = scale(%20)\n"
            "%22 = multiply(%13, %21)\n"
            "%23 = matmul(%3, %22)\n"
            "%24 = sgd(%0, %23, %5)\n"
            "%25 = sgd(%1, %14, %5)\n"
            "%26 = sgd(%2, %15, %5)\n");
}

TEST(LossHead, EvaluationHasTheForwardHalf) {
  EXPECT_EQ(calls(after_pass(step_of({.tied = true, .bias = false, .train = false}))),
            "%5 = matmul(%2, %0)\n"
            "%6 = tanh(%5)\n"
            "%7, %8 = linear_cross_entropy(%6, %1, %3)\n"
            "%9 = reduce_sum(%7)\n"
            "%10 = scale(%9)\n"
            "%11 = reduce_sum(%8)\n");
}

TEST(LossHead, LeavesFewClassesAlone) {
  const Graph graph = step_of({.classes = 1023});
  EXPECT_EQ(after_pass(graph), print(graph));
}

// Kept values and variables after two steps, as numbers.
std::vector<std::vector<double>> two_steps(const Graph& graph, Backend& backend,
                                           const PassOptions& options) {
  PlannedRun run(graph, backend, options);
  fill_variables(run, 3);
  for (int64_t step = 1; step <= 2; ++step) {
    fill_inputs(run, static_cast<uint64_t>(step), step, static_cast<int>(kClasses));
    run.step_poisoned();
  }
  std::vector<std::vector<double>> all;
  auto add = [&](const void* data, const Meta& meta) {
    all.emplace_back();
    for (int64_t i = 0; i < meta.elements(); ++i)
      all.back().push_back(meta.dtype == Dtype::float64 ? static_cast<const double*>(data)[i]
                                                        : static_cast<const float*>(data)[i]);
  };
  for (size_t k = 0; k < graph.keep.size(); ++k)
    add(run.kept(k), graph.values[static_cast<size_t>(graph.keep[k])].meta);
  for (size_t v = 0; v < graph.variables.size(); ++v) add(run.variable(v), graph.variables[v].meta);
  return all;
}

// The largest difference relative to the largest element of its value.
double difference_of(const std::vector<std::vector<double>>& a,
                     const std::vector<std::vector<double>>& b) {
  double worst = 0;
  for (size_t i = 0; i < a.size(); ++i) {
    double largest = 1e-30, apart = 0;
    for (size_t k = 0; k < a[i].size(); ++k) {
      largest = std::max(largest, std::fabs(a[i][k]));
      apart = std::max(apart, std::fabs(a[i][k] - b[i][k]));
      if (std::isnan(a[i][k]) || std::isnan(b[i][k])) return 1e9;
    }
    worst = std::max(worst, apart / largest);
  }
  return worst;
}

TEST(LossHead, GivesTheNumbersOfTheSeparateNodes) {
  CpuBackend backend(2);
  for (bool tied : {false, true})
    for (bool bias : {false, true})
      for (Dim rows : {6, 300}) {  // 300: a whole block and a rest
        SCOPED_TRACE(testing::Message() << tied << bias << rows);
        Form form{.rows = rows, .tied = tied, .bias = bias, .dtype = Dtype::float64};
        EXPECT_LT(difference_of(two_steps(step_of(form), backend, all_passes_off()),
                                two_steps(step_of(form), backend, only_pass("loss-head"))),
                  1e-12);
        form.dtype = Dtype::float32;
        EXPECT_LT(difference_of(two_steps(step_of(form), backend, all_passes_off()),
                                two_steps(step_of(form), backend, {})),
                  2e-6);
      }
}

TEST(LossHead, GivesTheNumbersOfTheSeparateNodesInPiecesOfTheClasses) {
  CpuBackend backend(2);
  for (bool tied : {false, true}) {
    const Graph graph = step_of({.rows = 300, .classes = 4100, .tied = tied});
    EXPECT_LT(
        difference_of(two_steps(graph, backend, all_passes_off()), two_steps(graph, backend, {})),
        2e-6);
  }
}

TEST(LossHead, GivesTheSameNumbersWithoutAccuracyAndInEvaluation) {
  CpuBackend backend(1);
  for (bool train : {false, true})
    for (bool accuracy : {false, true}) {
      const Graph graph =
          step_of({.rows = 300, .train = train, .accuracy = accuracy, .dtype = Dtype::float64});
      EXPECT_LT(
          difference_of(two_steps(graph, backend, all_passes_off()), two_steps(graph, backend, {})),
          1e-12);
    }
}

TEST(LossHead, BitsDoNotDependOnThreads) {
  CpuBackend one(1);
  const Graph graph = step_of({.rows = 300, .dtype = Dtype::float64});
  const auto alone = two_steps(graph, one, {});
  CpuBackend two(2);
  EXPECT_EQ(alone, two_steps(graph, two, {}));
}

TEST(LossHead, NeverHoldsWholeLogits) {
  CpuBackend backend(1);
  constexpr Dim rows = 4096;
  constexpr Bytes logits = rows * kClasses * 4;
  const Graph graph = step_of({.rows = rows});
  const VariableLayout layout = PlannedRun::layout_of(graph, backend.alignment());
  const Prepared plain = prepare_graph(graph, backend, layout, all_passes_off());
  const Prepared blocked = prepare_graph(graph, backend, layout);
  EXPECT_GT(plain.plan.arena, logits);
  EXPECT_LT(blocked.plan.arena, logits / 4);
  for (const Value& value : blocked.graph.values) EXPECT_LT(value.meta.bytes(), logits / 100);
}

// A head that is read elsewhere, or whose incoming gradient depends on it, stays as it is.
TEST(LossHead, LeavesWhatOthersRead) {
  enum Kind { logits_kept, probs_kept, logits_read, other_labels, dloss_from_loss, h_alone };
  for (Kind kind : {logits_kept, probs_kept, logits_read, other_labels, dloss_from_loss, h_alone}) {
    SCOPED_TRACE(static_cast<int>(kind));
    Recorder r;
    RecorderScope scope(r);
    const Tensor w = r.variable("w", {Dtype::float32, {4, kClasses}}, Category::parameters);
    const Tensor h = r.input("h", {Dtype::float32, {6, 4}}, true);
    const Tensor labels = r.input("y", {Dtype::int32, {6}}, true);
    const Tensor others = r.input("z", {Dtype::int32, {6}}, true);
    const Tensor logits = matmul(h, w);
    const auto [per_row, probs] = sparse_softmax_cross_entropy(logits, labels);
    const Tensor total = kind == dloss_from_loss ? square(per_row) : per_row;
    const Tensor loss = reduce_sum(total);
    r.keep(loss, "loss");
    if (kind == logits_kept) r.keep(logits, "logits");
    if (kind == probs_kept) r.keep(probs, "probs");
    if (kind == logits_read) r.keep(reduce_sum(logits), "sum");
    if (kind == other_labels) r.keep(sparse_categorical_accuracy(probs, others), "accuracy");
    Tensors wrt{h, w};
    if (kind == h_alone) wrt = {h};
    const Tensors g = gradients(loss, wrt, fill(Shape{}, 1.0, Dtype::float32));
    for (size_t i = 0; i < g.size(); ++i) r.keep(g[i], "g" + std::to_string(i));
    const Graph graph = r.take();
    EXPECT_EQ(after_pass(graph), print(graph));
  }
}

TEST(LossHead, ABadLabelGivesNan) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  const Tensor h({Dtype::float32, {2, 3}}), w({Dtype::float32, {3, 5}});
  const Tensor labels({Dtype::int32, {2}}), dloss({Dtype::float32, {2}});
  std::fill_n(h.data_as<float>(), 6, 0.5f);
  std::fill_n(w.data_as<float>(), 15, 0.25f);
  std::fill_n(dloss.data_as<float>(), 2, 1.0f);
  labels.data_as<int32_t>()[0] = 0;
  labels.data_as<int32_t>()[1] = 5;
  const auto result = linear_cross_entropy(h, w, labels, false, {}, dloss);
  EXPECT_NEAR(result.loss.data_as<float>()[0], std::log(5.0f), 1e-6f);
  EXPECT_TRUE(std::isnan(result.loss.data_as<float>()[1]));
  EXPECT_EQ(result.correct.data_as<float>()[0], 1.0f);  // all equal: the first is the largest
  EXPECT_EQ(result.correct.data_as<float>()[1], 0.0f);
  EXPECT_FALSE(std::isnan(result.dh.data_as<float>()[0]));
  EXPECT_TRUE(std::isnan(result.dh.data_as<float>()[3]));
  EXPECT_TRUE(std::isnan(result.dw.data_as<float>()[0]));
}

TEST(LossHead, RowsMapButForTheWeights) {
  Recorder r;
  const Tensor h = r.input("h", {Dtype::float32, {2, 3}}, true);
  const Tensor w = r.variable("w", {Dtype::float32, {3, 5}}, Category::parameters);
  const Tensor b = r.variable("b", {Dtype::float32, {5}}, Category::parameters);
  const Tensor labels = r.input("y", {Dtype::int32, {2}}, true);
  const Tensor dloss = r.input("dloss", {Dtype::float32, {2}}, true);
  const auto result = linear_cross_entropy(h, w, labels, false, b, dloss);
  EXPECT_TRUE(carries_rows(result.loss));
  EXPECT_TRUE(carries_rows(result.dh));
  EXPECT_FALSE(carries_rows(result.dw));
  EXPECT_FALSE(carries_rows(result.dbias));
  EXPECT_TRUE(carries_rows(result.correct));
  const Node& node = r.graph().nodes[0];
  EXPECT_EQ(output_rows(kLinearCrossEntropy, node.attrs, 0b10101, 3), Rows::sums);
  EXPECT_EQ(output_rows(kLinearCrossEntropy, node.attrs, 0b00101, 3), Rows::mixes);
}

}  // namespace
}  // namespace pl::test::loss_head_test
