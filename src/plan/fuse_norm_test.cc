// Batch normalisation with what follows it: the calls that are left, equal bits, what is saved, and
// budgets, none of which splits the batch.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "execute/pool.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/passes.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"

namespace pl::test::fuse_norm_test {
namespace {

Meta meta(Shape shape) { return {Dtype::float32, std::move(shape)}; }

// A residual network: stem, `blocks` blocks with a projection before the first, and a head.
class Net {
 public:
  Net(Dim batch, Dim side, Dim channels) : batch_(batch), side_(side), channels_(channels) {}

  Graph trace(int blocks) {
    params_ = r_.input("step_params", step_params_meta(), false);
    const Tensor x = r_.input("x", meta({batch_, side_, side_, 3}), true);
    Tensor h = relu(norm(convolution(x, 3, 3)));
    for (int b = 0; b < blocks; ++b) {
      PathScope path(&r_, "block" + std::to_string(b));
      const Tensor inner = relu(norm(convolution(h, channels_, 3)));
      const Tensor shortcut = b == 0 ? norm(convolution(h, channels_, 1)) : h;
      h = relu(add(norm(convolution(inner, channels_, 3)), shortcut));
    }
    const Tensor loss = reduce_sum(square(reduce_mean(h, {1, 2})));
    r_.keep(loss, "loss");
    const Tensors g = gradients(loss, wrt_, fill(Shape{}, 1.0, Dtype::float32));
    for (size_t i = 0; i < wrt_.size(); ++i) sgd(wrt_[i], g[i], params_);
    return r_.take();
  }

 private:
  Tensor parameter(Shape shape) {
    wrt_.push_back(r_.variable("w" + std::to_string(wrt_.size()), meta(std::move(shape)),
                               Category::parameters));
    return wrt_.back();
  }
  Tensor convolution(const Tensor& x, Dim from, Dim size) {
    return conv2d(x, parameter({size, size, from, channels_}), {.padding = "same"});
  }
  Tensor norm(const Tensor& x) {
    const std::string name = "bn" + std::to_string(norms_++);
    PathScope path(&r_, name);
    auto moving = [&](const char* what) {
      return r_.variable(name + what, meta({channels_}), Category::parameters);
    };
    const Tensor mean = moving("/moving_mean"), variance = moving("/moving_variance");
    const Tensor gamma = parameter({channels_}), beta = parameter({channels_});
    const BatchNormResult result = batch_norm(x, gamma, beta, 1e-3);
    moving_statistics(mean, variance, result.mean, result.variance, 0.99);
    return result.y;
  }

  Recorder r_;
  RecorderScope scope_{r_};
  Dim batch_, side_, channels_;
  int norms_ = 0;
  Tensors wrt_;
  Tensor params_;
};

int count(const std::string& text, const std::string& word) {
  int found = 0;
  for (size_t at = text.find(word); at != std::string::npos; at = text.find(word, at + 1)) ++found;
  return found;
}

PassOptions without(const char* name) {
  PassOptions options;
  options.off = {name};
  return options;
}

std::vector<std::string> two_steps(Prepared prepared) {
  PlannedRun run(std::move(prepared));
  fill_variables(run, 4);
  for (int64_t step = 1; step <= 2; ++step) {
    fill_inputs(run, static_cast<uint64_t>(step), step);
    run.step_poisoned();
  }
  return results(run);
}

TEST(FuseNorm, LeavesOneCallForEachNormalisationWithWhatFollowsIt) {
  Graph graph = Net(2, 6, 8).trace(2);
  run_passes(graph);
  const std::string text = calls(print(graph));
  // Stem, and in each block two; a projection in the first.
  EXPECT_EQ(count(text, " = batch_moments("), 6) << text;
  EXPECT_EQ(count(text, " = batch_norm_apply("), 4) << text;  // stem, two inner, one projection
  EXPECT_EQ(count(text, " = batch_norm_add("), 2) << text;
  EXPECT_EQ(count(text, " = batch_norm_relu_gradient("), 3) << text;
  // The last relu's sign is stored as bits: only the mean reads its value.
  EXPECT_EQ(count(text, " = batch_norm_add_relu_gradient("), 1) << text;
  EXPECT_EQ(count(text, " = batch_norm_gradient("), 2) << text;
  EXPECT_EQ(count(text, " = relu_bits("), 1) << text;
  EXPECT_EQ(count(text, " = relu_bits_gradient("), 1) << text;
  EXPECT_EQ(count(text, " = relu("), 0) << text;
  EXPECT_EQ(count(text, " = relu_gradient("), 0) << text;
  EXPECT_EQ(count(text, " = batch_norm("), 0) << text;
  EXPECT_EQ(count(text, " = moving_statistics("), 6) << text;
}

TEST(FuseNorm, KeepsEveryBit) {
  CpuBackend backend(1);
  for (Dim channels : {3, 16}) {
    const Graph graph = Net(2, 5, channels).trace(3);
    const VariableLayout layout = PlannedRun::layout_of(graph, backend.alignment());
    const auto fused = two_steps(prepare_graph(graph, backend, layout));
    EXPECT_EQ(difference(graph, fused,
                         two_steps(prepare_graph(graph, backend, layout, without("batch-norm")))),
              "");
    EXPECT_EQ(difference(graph, fused,
                         two_steps(prepare_graph(graph, backend, layout, all_passes_off()))),
              "");
  }
}

// relu before a mean: without the pass its sign is stored, with it x decides.
TEST(FuseNorm, KeepsNothingForTheSignOfARelu) {
  Recorder r;
  RecorderScope scope(r);
  const Tensor gamma = r.variable("gamma", meta({8}), Category::parameters);
  const Tensor beta = r.variable("beta", meta({8}), Category::parameters);
  const Tensor x = r.input("x", meta({4, 64, 8}), true);
  const Tensor y = relu(batch_norm(x, gamma, beta, 1e-3).y);
  const Tensor loss = reduce_sum(square(reduce_mean(y, {1})));
  r.keep(loss, "loss");
  const Tensors g = gradients(loss, {gamma, beta}, fill(Shape{}, 1.0, Dtype::float32));
  r.keep(g[0], "dgamma");
  r.keep(g[1], "dbeta");
  Graph graph = r.take();
  run_passes(graph);
  const std::string text = calls(print(graph));
  EXPECT_EQ(count(text, "relu_bits"), 0) << text;
  EXPECT_EQ(count(text, " = batch_norm_relu_gradient("), 1) << text;
}

// As in a network for small devices: relu6 behind a norm, and a sum without an activation.
TEST(FuseNorm, ClipsAndAddsWithoutActivation) {
  Recorder r;
  RecorderScope scope(r);
  const Tensor x = r.input("x", meta({3, 7, 24}), true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  Tensors wrt;
  auto parameter = [&](Shape shape) {
    wrt.push_back(
        r.variable("w" + std::to_string(wrt.size()), meta(std::move(shape)), Category::parameters));
    return wrt.back();
  };
  auto norm = [&](const Tensor& in) {
    const Tensor gamma = parameter({24}), beta = parameter({24});
    return batch_norm(in, gamma, beta, 1e-3).y;
  };
  const Tensor h = matmul(x, parameter({24, 24}));
  const Tensor inner = clipped_relu(norm(h), 0.5);
  const Tensor y = add(h, norm(matmul(inner, parameter({24, 24}))));
  const Tensor loss = reduce_sum(square(y));
  r.keep(loss, "loss");
  const Tensors g = gradients(loss, wrt, fill(Shape{}, 1.0, Dtype::float32));
  for (size_t i = 0; i < wrt.size(); ++i) sgd(wrt[i], g[i], params);
  const Graph graph = r.take();
  Graph rewritten = graph;
  run_passes(rewritten);
  const std::string text = calls(print(rewritten));
  EXPECT_EQ(count(text, "clipped_relu"), 0) << text;
  EXPECT_EQ(count(text, " = batch_norm_relu_gradient("), 1) << text;
  EXPECT_EQ(count(text, " = batch_norm_add("), 1) << text;
  CpuBackend backend(1);
  const VariableLayout layout = PlannedRun::layout_of(graph, backend.alignment());
  EXPECT_EQ(difference(graph, two_steps(prepare_graph(graph, backend, layout)),
                       two_steps(prepare_graph(graph, backend, layout, all_passes_off()))),
            "");
}

TEST(FuseNorm, MakesNoArenaLarger) {
  CpuBackend backend(1);
  const Graph graph = Net(4, 12, 16).trace(3);
  const VariableLayout layout = PlannedRun::layout_of(graph, backend.alignment());
  auto pool_of = [&](const PassOptions& options) {
    Graph rewritten = graph;
    run_passes(rewritten, options);
    KernelBook book(backend);
    SearchMemo memo;
    return make_pool(rewritten, book, memo, layout, {});
  };
  const Pool with = pool_of({}), plain = pool_of(without("batch-norm"));
  EXPECT_LE(with.entries.front().arena, plain.entries.front().arena);
  EXPECT_LE(with.entries.back().arena, plain.entries.back().arena);
}

// What the search finds at five budgets: the same bits, in the bytes that were said, with the whole
// batch, though moving averages are updated once.
TEST(FuseNorm, GivesTheSameBitsAtFiveBudgets) {
  CpuBackend backend(1);
  Graph graph = Net(4, 10, 16).trace(3);
  const VariableLayout layout = PlannedRun::layout_of(graph, backend.alignment());
  run_passes(graph);
  KernelBook book(backend);
  SearchMemo memo;
  const Pool pool = make_pool(graph, book, memo, layout, {});
  EXPECT_NE(pool.refusal.find("bn0: batch_moments mixes the samples"), std::string::npos)
      << pool.refusal;
  const Bytes most = pool.entries.front().arena, least = pool.entries.back().arena;
  EXPECT_LT(least, most * 3 / 4);
  std::vector<std::string> expected;
  for (int i = 0; i < 5; ++i) {
    const Bytes budget = most - (most - least) * i / 4;
    const PoolEntry* chosen = nullptr;
    for (const PoolEntry& entry : pool.entries)
      if (entry.arena <= budget && (!chosen || entry.ms < chosen->ms)) chosen = &entry;
    ASSERT_NE(chosen, nullptr);
    EXPECT_EQ(chosen->split, 1);
    Prepared prepared = build(graph, *chosen, book, layout);
    EXPECT_EQ(prepared.plan.arena, chosen->arena);
    EXPECT_LE(prepared.plan.arena, budget);
    prepared.kernels = book.kernels(prepared.graph);
    const auto state = two_steps(std::move(prepared));
    if (expected.empty()) expected = state;
    EXPECT_EQ(difference(graph, state, expected), "") << "at " << budget;
  }
}

}  // namespace
}  // namespace pl::test::fuse_norm_test
