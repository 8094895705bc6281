// Fused chains: what becomes of small graphs, and over random ones that no bit changes and that no
// plan gets larger.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "backend/cpu/cpu_backend.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/graph_problem.h"
#include "plan/passes.h"
#include "tests/graph_run.h"
#include "tests/random_graph.h"
#include "tests/random_step.h"
#include "trace/gradient.h"

namespace pl::test::fuse_pointwise_test {
namespace {

Meta meta(Shape shape, Dtype dtype = Dtype::float32) { return {dtype, std::move(shape)}; }

Graph fused(Graph graph) {
  check_graph(graph);
  pass::fuse_pointwise(graph);
  check_graph(graph);
  return graph;
}

int fused_nodes(const Graph& graph) {
  return static_cast<int>(std::count_if(graph.nodes.begin(), graph.nodes.end(), [](const Node& n) {
    return n.op == kFusedPointwise.name;
  }));
}

// ---- what becomes of a graph

TEST(FusePointwise, MakesOneNodeOfAChain) {
  Recorder r;
  const Tensor b = r.variable("b", meta({3}), Category::parameters);
  const Tensor x = r.input("x", meta({2, 3}), true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  r.keep(dropout(tanh(scale(add(x, b), 2.0, 0.5)), params, 0.25, 7), "out");
  EXPECT_EQ(print(fused(r.take())),
            "variable b float32 (3,) parameters %0 -> %0\n"
            "input x float32 (2, 3) %1\n"
            "input step_params uint8 (64,) %2\n"
            "%3 = fused_pointwise(%2, %1, %0) {aligned=2, dtype=float32, program=add 1 2;scale 3 2 "
            "0.5;tanh 4;dropout 5 0 0.25 7 1} : float32 (2, 3)\n"
            "keep out %3\n");
}

TEST(FusePointwise, ConvertsPixelsOnTheWay) {
  Recorder r;
  const Tensor x = r.input("x", meta({2, 3}, Dtype::uint8), true);
  r.keep(scale(cast(x, Dtype::float32), 0.5), "out");
  const Graph graph = fused(r.take());
  ASSERT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.nodes[0].attrs.text("program"), "cast 0;scale 1 0.5 0");
}

// What others than pointwise ops read, what is kept, and other shapes stay as they are.
TEST(FusePointwise, StopsAtWhatOthersNeed) {
  Recorder r;
  const Tensor x = r.input("x", meta({4, 4}), true);
  const Tensor read = tanh(x);
  r.keep(matmul(square(read), read), "product");
  const Tensor kept = exp(x);
  r.keep(kept, "kept");
  r.keep(negative(kept), "negative");
  r.keep(square(reshape(abs(x), {2, 8})), "reshaped");
  r.keep(scale(reduce_sum(sign(x), {1}), 2.0), "sum");
  Graph graph = r.take();
  const std::string before = print(graph);
  EXPECT_EQ(print(fused(graph)), before);
}

// A gate's forward part is computed again in the backward part: nothing but x is held for it.
TEST(FusePointwise, ComputesAgainWhatOnlyPointwiseOpsRead) {
  Recorder r;
  RecorderScope scope(r);
  const Tensor w = r.variable("w", meta({4, 4}), Category::parameters);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor h = matmul(r.input("x", meta({2, 4}), true), w);
  const Tensor y = matmul(multiply(h, sigmoid(h)), w);
  const Tensor loss = reduce_sum(y);
  r.keep(loss, "loss");
  sgd(w, gradients(loss, {w}, fill(Shape{}, 1.0))[0], params);
  const Graph graph = fused(r.take());
  for (const Node& node : graph.nodes) EXPECT_NE(node.op, "sigmoid");
  EXPECT_EQ(fused_nodes(graph), 2);
}

TEST(FusePointwise, ReadsNoVariableBehindItsUpdate) {
  Recorder r;
  const Tensor w = r.variable("w", meta({4}), Category::parameters);
  const Tensor x = r.input("x", meta({4}), false);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor before = square(w);
  const Tensor next = sgd(w, x, params);
  r.keep(add(before, tanh(next)), "out");
  const Graph graph = fused(r.take());
  // tanh reads the next version, so it may join; the square of the last one may not.
  EXPECT_EQ(calls(print(graph)),
            "%3 = square(%0)\n%4 = sgd(%0, %1, %2)\n%5 = fused_pointwise(%3, %4)\n");
}

// A sum of terms, each of which the backward part reads.
Graph sum_of_terms(int terms, bool train, Dtype dtype) {
  Recorder r;
  RecorderScope scope(r);
  const Tensor w = r.variable("w", meta({4, 64}, dtype), Category::parameters);
  const Tensor u = r.variable("u", meta({64, 64}, dtype), Category::parameters);
  const Tensor x = r.input("x", meta({32, 4}, dtype), true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor product = matmul(x, w);
  Tensor total = tanh(product);
  for (int i = 1; i < terms; ++i) total = add(total, tanh(scale(product, 1.0 + i / 100.0)));
  const Tensor loss = reduce_sum(square(matmul(total, u)));
  r.keep(loss, "loss");
  if (train) sgd(w, scale(gradients(loss, {w}, fill(Shape{}, 1.0, dtype))[0], 1e-6), params);
  return r.take();
}

Bytes transient(const Graph& graph, Backend& backend, const PassOptions& options) {
  PlannedRun run(graph, backend, options);
  return run.plan().bound - run.plan().persistent;
}

std::vector<std::string> one_step(const Graph& graph, Backend& backend,
                                  const PassOptions& options) {
  PlannedRun run(graph, backend, options);
  fill_variables(run, 2);
  fill_inputs(run, 3, 1, 4);
  run.step_poisoned();
  return results(run);
}

TEST(FusePointwise, SumsAHundredTermsInAFractionOfTheMemory) {
  CpuBackend backend(2);
  for (const bool train : {false, true}) {
    const Graph graph = sum_of_terms(100, train, Dtype::float32);
    const Graph after = fused(graph);
    EXPECT_GE(fused_nodes(after), 2);
    EXPECT_LT(after.nodes.size(), graph.nodes.size() / 10) << calls(print(after));
    for (const Node& node : after.nodes)
      if (node.op == kFusedPointwise.name) {
        const auto program =
            parse_tile_program(node.attrs.text("program"), static_cast<int>(node.in.size()));
        ASSERT_TRUE(program);
        EXPECT_LE(program->code.size(), 64u);  // cut, not one program of hundreds
      }
    const Bytes plain = transient(graph, backend, all_passes_off());
    const Bytes tiled = transient(graph, backend, only_pass("fuse-pointwise"));
    EXPECT_LT(tiled, train ? plain / 10 : plain + 1);
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      const Graph typed = sum_of_terms(100, train, dtype);
      EXPECT_EQ(difference(typed, one_step(typed, backend, all_passes_off()),
                           one_step(typed, backend, only_pass("fuse-pointwise"))),
                "");
    }
  }
}

// ---- random chains

// Pointwise ops in any order over rows, weights that broadcast, scalars, bytes and dropout, with a
// product now and then, differentiated half of the time.
class RandomChains {
 public:
  RandomChains(uint64_t seed, Dtype dtype) : numbers_(seed), scope_(recorder_), dtype_(dtype) {
    const Dim batch = 2 + numbers_.below(3), width = numbers_.chance(0.5) ? 5 : 32;
    width_ = width;
    differentiate_ = numbers_.chance(0.6);
    x_ = recorder_.input("x", meta({batch, width}, dtype), true);
    const Tensor bytes = recorder_.input("bytes", meta({batch, width}, Dtype::uint8), true);
    params_ = recorder_.input("step_params", step_params_meta(), false);
    pool_ = {x_, scale(cast(bytes, dtype), 1.0 / 256)};
    const int count = 5 + numbers_.below(40);
    for (int i = 0; i < count; ++i) grow();
    const Tensor loss = reduce_sum(square(tanh(pool_.back())));
    recorder_.keep(loss, "loss");
    for (const Tensor& tensor : pool_)
      if (numbers_.chance(0.05) && tensor.id() != x_.id())
        recorder_.keep(tensor, "kept" + std::to_string(tensor.id()));
    if (variables_.empty() || !differentiate_) return;
    const Tensors g = gradients(loss, variables_, fill(Shape{}, 1.0, dtype));
    for (size_t v = 0; v < g.size(); ++v)
      if (g[v].defined()) sgd(variables_[v], g[v], params_);
  }
  Graph take() { return recorder_.take(); }

 private:
  const Tensor& pick() {
    const int size = static_cast<int>(pool_.size());
    const int from = numbers_.chance(0.7) ? std::max(0, size - 3) : 0;
    return pool_[index(from + numbers_.below(size - from))];
  }
  Tensor weight(Shape shape) {
    variables_.push_back(recorder_.variable("w" + std::to_string(variables_.size()),
                                            meta(std::move(shape), dtype_), Category::parameters));
    return variables_.back();
  }
  void grow() {
    const Tensor a = pick(), b = numbers_.chance(0.3) ? weight(small_shape()) : pick();
    const int choice = numbers_.below(24);
    const bool flat = choice == 6 || choice == 7 || choice == 15;  // without a gradient
    switch (flat && differentiate_ ? 2 : choice) {
      case 0:
        return push(add(a, b));
      case 1:
        return push(subtract(b, a));
      case 2:
        return push(multiply(a, b));
      case 3:
        return push(divide(a, b));  // zeros do occur, so infinities and NaN as well
      case 4:
        return push(maximum(a, b));
      case 5:
        return push(minimum(b, a));
      case 6:
        return push(multiply(a, greater_mask(a, b)));
      case 7:
        return push(add(equal_mask(a, b), greater_equal_mask(b, a)));
      case 8:
        return push(negative(a));
      case 9:
        return push(exp(scale(a, 0.5)));
      case 10:
        return push(log(abs(a)));
      case 11:
        return push(sqrt(abs(a)));
      case 12:
        return push(square(a));
      case 13:
        return push(tanh(a));
      case 14:
        return push(sigmoid(a));
      case 15:
        return push(sign(a));
      case 16:
        return push(scale(a, -1.5, 0.25));
      case 17:
        return push(relu(a));
      case 18:
        return push(leaky_relu(a, 0.125));
      case 19:
        return push(gelu(a, numbers_.chance(0.5)));
      case 20:
        return push(dropout(a, params_, 0.25, ++stream_));
      case 21:
        return push(scale(matmul(a, weight({width_, width_})), 0.125));
      case 22:
        return push(add(add(a, b), pick()));
      default:
        return push(add(a, scale(reduce_sum(a, {1}, true), 0.125)));
    }
  }
  Shape small_shape() {
    switch (numbers_.below(4)) {
      case 0:
        return {};
      case 1:
        return {1, width_};
      case 2:
        return {1, 1};
      default:
        return {width_};
    }
  }
  void push(const Tensor& tensor) {
    if (tensor.shape() == x_.shape()) pool_.push_back(tensor);
  }

  Numbers numbers_;
  Recorder recorder_;
  RecorderScope scope_;
  Dtype dtype_;
  Dim width_;
  bool differentiate_ = false;
  int64_t stream_ = 0;
  Tensor x_, params_;
  Tensors pool_, variables_;
};

// All NaN are one: which of two NaN an addition passes on is the machine's choice.
void make_one_nan(const Graph& graph, std::vector<std::string>& all) {
  for (size_t i = 0; i < all.size(); ++i) {
    const Meta& shape = i < graph.keep.size() ? graph.values[index(graph.keep[i])].meta
                                              : graph.variables[i - graph.keep.size()].meta;
    auto clean = [&]<class T>(T) {
      for (size_t at = 0; at + sizeof(T) <= all[i].size(); at += sizeof(T)) {
        T number;
        std::memcpy(&number, all[i].data() + at, sizeof number);
        if (number != number) number = std::nan("");
        std::memcpy(all[i].data() + at, &number, sizeof number);
      }
    };
    shape.dtype == Dtype::float64 ? clean(double{}) : clean(float{});
  }
}

TEST(FusePointwise, KeepsTheBitsOfRandomChains) {
  CpuBackend backend(2);
  int fused_graphs = 0, instructions = 0;
  for (uint64_t seed = 1; seed <= 300; ++seed)
    for (const Dtype dtype : {Dtype::float32, Dtype::float64}) {
      const Graph graph = RandomChains(seed, dtype).take();
      auto plain = one_step(graph, backend, all_passes_off());
      auto tiled = one_step(graph, backend, only_pass("fuse-pointwise"));
      make_one_nan(graph, plain);
      make_one_nan(graph, tiled);
      ASSERT_EQ(difference(graph, plain, tiled), "") << "seed " << seed << "\n"
                                                     << print(graph) << print(fused(graph));
      const Graph after = fused(graph);
      fused_graphs += fused_nodes(after) > 0;
      instructions += static_cast<int>(graph.nodes.size() - after.nodes.size());
    }
  EXPECT_GT(fused_graphs, 500);
  EXPECT_GT(instructions, 5000);
}

// ---- memory

struct Figures {
  Bytes unlimited, bound;
};
Figures figures(const Graph& graph) {
  const GraphProblem made = make_problem(graph, std::vector<Facts>(graph.nodes.size()), 64);
  std::vector<int> steps(made.problem.nodes.size());
  std::iota(steps.begin(), steps.end(), 0);
  return {evaluate(made.problem, steps).peak, lower_bound(made.problem)};
}

TEST(FusePointwise, NeverNeedsMoreMemory) {
  int smaller = 0;
  for (uint64_t seed = 1; seed <= 200; ++seed) {
    std::vector<Graph> graphs;
    graphs.push_back(RandomChains(seed, Dtype::float32).take());
    graphs.push_back(RandomGraph(seed, Dtype::float32, 30).take());
    graphs.push_back(RandomStep(seed, Dtype::float32, 4, 16).take());
    for (Graph& graph : graphs) {
      pass::drop_dead_code(graph);
      const Figures before = figures(graph), after = figures(fused(graph));
      ASSERT_LE(after.unlimited, before.unlimited) << "seed " << seed << "\n" << print(graph);
      ASSERT_LE(after.bound, before.bound) << "seed " << seed;
      smaller += after.unlimited < before.unlimited;
    }
  }
  EXPECT_GT(smaller, 100);
}

// The least bytes that the search finds, which the bound above only limits from below.
TEST(FusePointwise, LowersTheLeastPlanOfSmallSteps) {
  double sum = 0;
  int count = 0;
  for (uint64_t seed = 1; seed <= 30; ++seed) {
    Graph graph = RandomStep(seed, Dtype::float32, 4, 12).take();
    pass::drop_dead_code(graph);
    auto least = [](const Graph& g) {
      const GraphProblem made =
          make_problem(g, std::vector<Facts>(g.nodes.size(), {.nominal_ms = 1}), 64);
      return search(made.problem).back().bytes;
    };
    sum += static_cast<double>(least(fused(graph))) / static_cast<double>(least(graph));
    ++count;
  }
  EXPECT_LE(sum / count, 1.0);
}

}  // namespace
}  // namespace pl::test::fuse_pointwise_test
