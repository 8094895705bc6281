// Gradients of composed graphs, run through plan and executor in float64, against central
// differences of the loss. (Single ops: tests/conformance_test.cc.)
#include "trace/gradient.h"

#include <gtest/gtest.h>

#include <cmath>
#include <functional>

#include "backend/cpu/cpu_backend.h"
#include "op/functions.h"
#include "tests/graph_run.h"

namespace pl::test::gradient_test {
namespace {

constexpr double kStep = 1e-5, kRelative = 1e-6, kAbsolute = 1e-8;
constexpr int kLabels = 3;

Meta real(Shape shape) { return {Dtype::float64, std::move(shape)}; }

// What a case traces with: named sources and a way to say what is differentiated.
struct Trace {
  Recorder recorder;
  Tensors wrt;
  Tensor w(const std::string& path, Shape shape) {
    wrt.push_back(recorder.variable(path, real(std::move(shape)), Category::parameters));
    return wrt.back();
  }
  Tensor x(Shape shape) { return recorder.input("x", real(std::move(shape)), true); }
  Tensor labels(Dim rows) { return recorder.input("y", {Dtype::int32, Shape{rows}}, true); }
};

struct Case {
  const char* name;
  Tensor (*loss)(Trace&);
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"FanOut",
     [](Trace& t) {
       const Tensor h = tanh(matmul(t.x({3, 4}), t.w("w", {4, 5})));
       return add(reduce_sum(multiply(h, sigmoid(h))), reduce_sum(square(h)));
     }},
    {"Diamond",
     [](Trace& t) {
       const Tensor h = matmul(t.x({3, 4}), t.w("w", {4, 4}));
       const Tensor left = exp(scale(h, 0.3)), right = multiply(h, left);
       return reduce_sum(divide(right, scale(square(left), 1.0, 2.0)));
     }},
    {"OneValueTwiceInOneNode",
     [](Trace& t) {
       const Tensor w = t.w("w", {3, 3});
       return reduce_sum(add(multiply(w, w), matmul(w, w)));
     }},
    {"TiedWeights",
     [](Trace& t) {
       const Tensor w = t.w("w", {5, 4});
       const Tensor hidden = tanh(matmul(t.x({3, 5}), w));
       return reduce_sum(square(matmul(hidden, w, {.transpose_b = true})));
     }},
    {"TiedThreeTimesWithBias",
     [](Trace& t) {
       const Tensor w = t.w("w", {4, 4}), b = t.w("b", {4});
       Tensor h = t.x({2, 4});
       for (int i = 0; i < 3; ++i) h = tanh(matmul(h, w, {}, b));
       return reduce_sum(multiply(h, h));
     }},
    {"Broadcasts",
     [](Trace& t) {
       const Tensor a = t.w("a", {3, 1}), b = t.w("b", {4}), c = t.w("c", {});
       const Tensor sum = add(multiply(a, b), c);
       return reduce_sum(multiply(sum, tanh(t.x({3, 4}))));
     }},
    {"ReshapeAndTranspose",
     [](Trace& t) {
       const Tensor w = t.w("w", {2, 6});
       const Tensor turned = transpose(reshape(w, {3, 4}), {1, 0});
       return reduce_sum(multiply(square(reshape(turned, {6, 2})), t.x({6, 2})));
     }},
    {"BothOutputsOfTheLoss",
     [](Trace& t) {
       const Tensor logits = matmul(t.x({4, 3}), t.w("w", {3, kLabels}));
       const auto [loss, probs] = sparse_softmax_cross_entropy(logits, t.labels(4));
       return add(reduce_sum(loss), reduce_sum(square(probs)));
     }},
    {"ProbabilitiesOnly",
     [](Trace& t) {
       const Tensor logits = matmul(t.x({4, 3}), t.w("w", {3, kLabels}));
       return reduce_sum(square(sparse_softmax_cross_entropy(logits, t.labels(4)).probs));
     }},
    {"ConvPoolDense",
     [](Trace& t) {
       const Tensor x = t.x({2, 8, 8, 2});
       const Tensor k1 = t.w("k1", {3, 3, 2, 3}), b1 = t.w("b1", {3});
       const Tensor pooled = max_pool(relu(conv2d(x, k1, {}, b1)));
       const Tensor k2 = t.w("k2", {2, 2, 3, 2}), b2 = t.w("b2", {2});
       const Tensor deep = relu(conv2d(pooled, k2, {.padding = "same"}, b2));
       const Tensor flat = reshape(deep, {2, 18});
       const Tensor logits = matmul(flat, t.w("d", {18, kLabels}), {}, t.w("db", {kLabels}));
       return scale(reduce_sum(sparse_softmax_cross_entropy(logits, t.labels(2)).loss), 0.5);
     }},
    {"SharedConvolution",
     [](Trace& t) {
       const Tensor k = t.w("k", {3, 3, 2, 2});
       const Tensor once = conv2d(t.x({1, 6, 6, 2}), k, {.padding = "same"});
       const Tensor twice = conv2d(tanh(once), k, {.strides = {2, 2}});
       return add(reduce_sum(square(twice)), reduce_sum(once));
     }},
    {"MaximaAndMinima",
     [](Trace& t) {
       const Tensor a = t.w("a", {3, 4}), b = t.w("b", {3, 4});
       const Tensor top = reduce_max(maximum(a, b), {1}, true);
       return reduce_sum(add(square(minimum(a, b)), square(top)));
     }},
};

Bytes bytes_of(const Graph& graph, ValueId id) {
  return graph.values[static_cast<size_t>(id)].meta.bytes();
}

// A traced loss with its gradients, ready to be asked at any point.
class Loss {
 public:
  Loss(Graph graph, Backend& backend, const PassOptions& options = {})
      : run_(std::move(graph), backend, options) {
    fill_variables(run_, 3);
    // Away from the sixty-fourths of fill_numbers, where maxima would have ties.
    for (size_t v = 0; v < run_.graph().variables.size(); ++v)
      for (int64_t i = 0; i < run_.graph().variables[v].meta.elements(); ++i)
        variable(v)[i] += 1e-3 * static_cast<double>((i * 7 + static_cast<int64_t>(v) * 5) % 11);
  }

  double* variable(size_t v) { return static_cast<double*>(run_.variable(v)); }
  const Graph& graph() const { return run_.graph(); }
  double value() {
    fill_inputs(run_, 5, 1, kLabels);
    run_.step_poisoned();
    return *static_cast<const double*>(run_.kept(0));
  }
  std::vector<double> kept(size_t k) {
    const auto* data = static_cast<const double*>(run_.kept(k));
    return {data, data + bytes_of(run_.graph(), run_.graph().keep[k]) / 8};
  }
  double slope(size_t v, int64_t i) {
    const double at = variable(v)[i];
    variable(v)[i] = at + kStep;
    const double up = value();
    variable(v)[i] = at - kStep;
    const double down = value();
    variable(v)[i] = at;
    return (up - down) / (2 * kStep);
  }

 private:
  PlannedRun run_;
};

Graph with_gradients(const Case& c) {
  Trace trace;
  RecorderScope scope(trace.recorder);
  const Tensor loss = c.loss(trace);
  trace.recorder.keep(loss, "loss");
  const Tensors gradient = gradients(loss, trace.wrt, fill(Shape{}, 1.0, Dtype::float64));
  for (size_t i = 0; i < gradient.size(); ++i) {
    EXPECT_TRUE(gradient[i].defined()) << "gradient " << i;
    EXPECT_EQ(gradient[i].meta(), trace.wrt[i].meta());
    trace.recorder.keep(gradient[i], "gradient");
  }
  return trace.recorder.take();
}

class Gradient : public ::testing::TestWithParam<Case> {};

TEST_P(Gradient, IsTheSlopeOfTheLoss) {
  CpuBackend backend(1);
  const Graph graph = with_gradients(GetParam());
  check_graph(graph);
  Loss loss(graph, backend);
  loss.value();
  for (size_t v = 0; v < graph.variables.size(); ++v) {
    loss.value();
    const std::vector<double> gradient = loss.kept(v + 1);
    double largest = 0;
    for (size_t i = 0; i < gradient.size(); ++i) {
      const double slope = loss.slope(v, static_cast<int64_t>(i));
      largest = std::max(largest, std::fabs(slope));
      ASSERT_NEAR(gradient[i], slope, kAbsolute + kRelative * std::max(1.0, std::fabs(slope)))
          << graph.variables[v].path << "[" << i << "]";
    }
    EXPECT_GT(largest, 1e-3) << graph.variables[v].path << ": a case without slope tests nothing";
  }
}

INSTANTIATE_TEST_SUITE_P(Composed, Gradient, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(Gradients, OfAnUnusedTensorAreUndefined) {
  Trace trace;
  RecorderScope scope(trace.recorder);
  const Tensor used = trace.w("used", {2, 2}), unused = trace.w("unused", {2, 2});
  const Tensor aside = square(unused);  // exists, but the root does not depend on it
  const Tensor root = reduce_sum(square(used));
  const size_t before = trace.recorder.graph().nodes.size();
  const Tensors all = gradients(root, {unused, used, aside}, fill(Shape{}, 1.0, Dtype::float64));
  EXPECT_FALSE(all[0].defined());
  EXPECT_TRUE(all[1].defined());
  EXPECT_FALSE(all[2].defined());
  const Graph& graph = trace.recorder.graph();
  for (size_t n = before; n < graph.nodes.size(); ++n)
    for (ValueId in : graph.nodes[n].in)
      EXPECT_NE(in, unused.id()) << "a gradient node reads what the loss does not depend on";
}

TEST(Gradients, AreNotTracedTowardsInputsNobodyAsksFor) {
  Trace trace;
  RecorderScope scope(trace.recorder);
  const Tensor x = trace.x({3, 4}), w = trace.w("w", {4, 2});
  gradients(reduce_sum(matmul(x, w)), {w}, fill(Shape{}, 1.0, Dtype::float64));
  for (const Node& node : trace.recorder.graph().nodes)
    if (node.op == "matmul") {
      EXPECT_TRUE(node.in[0] == x.id()) << "only forward and the weight's gradient read x";
    }
}

TEST(Gradients, OfAnIntermediateValueAndItsSourceAtOnce) {
  CpuBackend backend(1);
  Recorder recorder;
  RecorderScope scope(recorder);
  const Tensor w = recorder.variable("w", real({2, 3}), Category::parameters);
  const Tensor h = scale(w, 3.0);
  const Tensor root = reduce_sum(square(h));
  const Tensors all = gradients(root, {h, w}, fill(Shape{}, 1.0, Dtype::float64));
  recorder.keep(root, "loss");
  recorder.keep(all[0], "dh");
  recorder.keep(all[1], "dw");
  Loss loss(recorder.take(), backend);
  loss.value();
  const auto dh = loss.kept(1), dw = loss.kept(2);
  for (size_t i = 0; i < dh.size(); ++i) {
    EXPECT_DOUBLE_EQ(dh[i], 6 * loss.variable(0)[i]);
    EXPECT_DOUBLE_EQ(dw[i], 18 * loss.variable(0)[i]);
  }
}

TEST(Gradients, ScaleWithTheSeed) {
  CpuBackend backend(1);
  Recorder recorder;
  RecorderScope scope(recorder);
  const Tensor w = recorder.variable("w", real({2, 3}), Category::parameters);
  const Tensor h = tanh(w);
  recorder.keep(reduce_sum(h), "loss");
  recorder.keep(gradients(h, {w}, fill(Shape{2, 3}, 1.0, Dtype::float64))[0], "one");
  recorder.keep(gradients(h, {w}, fill(Shape{2, 3}, -4.0, Dtype::float64))[0], "four");
  Loss loss(recorder.take(), backend);
  loss.value();
  const auto one = loss.kept(1), four = loss.kept(2);
  for (size_t i = 0; i < one.size(); ++i) EXPECT_DOUBLE_EQ(four[i], -4 * one[i]);
}

TEST(Gradients, OfGradientsAreSecondDerivatives) {
  CpuBackend backend(1);
  Recorder recorder;
  RecorderScope scope(recorder);
  const Tensor w = recorder.variable("w", real({5}), Category::parameters);
  const Tensor one = fill(Shape{}, 1.0, Dtype::float64);
  const Tensor first = gradients(reduce_sum(multiply(w, square(w))), {w}, one)[0];
  const Tensor second = gradients(reduce_sum(first), {w}, one)[0];
  recorder.keep(second, "second");
  Loss loss(recorder.take(), backend);
  loss.value();
  for (size_t i = 0; i < 5; ++i) EXPECT_NEAR(loss.kept(0)[i], 6 * loss.variable(0)[i], 1e-14);
}

TEST(Gradients, OfAnOpWithoutOneNameTheLayerPath) {
  Recorder recorder;
  RecorderScope scope(recorder);
  const Tensor w = recorder.variable("w", real({4, 3}), Category::parameters);
  const Tensor y = recorder.input("y", {Dtype::int32, Shape{4}}, true);
  Tensor root;
  {
    PathScope outer(&recorder, "head"), inner(&recorder, "metric");
    root = reduce_sum(sparse_categorical_accuracy(w, y));
  }
  const std::string message =
      error_of<UserError>([&] { gradients(root, {w}, fill(Shape{}, 1.0)); });
  EXPECT_NE(message.find("head/metric"), std::string::npos) << message;
  EXPECT_NE(message.find("sparse_categorical_accuracy"), std::string::npos) << message;
}

TEST(Gradients, PassAnOpWithoutOneThatTheLossDoesNotReach) {
  Recorder recorder;
  RecorderScope scope(recorder);
  const Tensor w = recorder.variable("w", real({4, 3}), Category::parameters);
  recorder.keep(reduce_sum(sign(w)), "metric");
  const Tensor root = reduce_sum(square(w));
  EXPECT_TRUE(gradients(root, {w}, fill(Shape{}, 1.0, Dtype::float64))[0].defined());
}

// The order in which a dense layer's gradients appear decides what can be freed early.
TEST(Gradients, OfWeightsComeBeforeThoseOfInputs) {
  Trace trace;
  RecorderScope scope(trace.recorder);
  const Tensor x = trace.x({2, 3}), a = trace.w("a", {3, 3}), b = trace.w("b", {3, 2});
  Tensor h, root;
  {
    PathScope path(&trace.recorder, "first");
    h = relu(matmul(x, a));
  }
  {
    PathScope path(&trace.recorder, "second");
    root = reduce_sum(matmul(h, b));
  }
  gradients(root, trace.wrt, fill(Shape{}, 1.0, Dtype::float64));
  EXPECT_EQ(calls(print(trace.recorder.graph())),
            "%3 = matmul(%0, %1)\n"
            "%4 = relu(%3)\n"
            "%5 = matmul(%4, %2)\n"
            "%6 = reduce_sum(%5)\n"
            "%7 = fill()\n"
            "%8 = reshape(%7)\n"
            "%9 = broadcast_to(%8)\n"
            "%10 = matmul(%4, %9)\n"
            "%11 = matmul(%9, %2)\n"
            "%12 = relu_gradient(%4, %11)\n"
            "%13 = matmul(%0, %12)\n");
}

}  // namespace
}  // namespace pl::test::gradient_test
