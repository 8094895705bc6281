// Fused chains in the built-in models: what is live at each step, and the bound below which no plan
// can go, never grow, and the pass is quick.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>

#include "model/builtin.h"
#include "op/fused_pointwise.h"
#include "plan/graph_problem.h"
#include "plan/passes.h"
#include "train/step_trace.h"

namespace pl::test::fuse_models_test {
namespace {

struct Figures {
  Bytes unlimited, bound;
};
Figures figures(const Graph& graph) {
  const GraphProblem made = make_problem(graph, std::vector<Facts>(graph.nodes.size()), 64);
  std::vector<int> steps(made.problem.nodes.size());
  std::iota(steps.begin(), steps.end(), 0);
  return {evaluate(made.problem, steps).peak, lower_bound(made.problem)};
}

class FuseModels : public testing::TestWithParam<const char*> {};

TEST_P(FuseModels, NeedsNoMoreMemory) {
  const BuiltinModel& model = find_builtin(GetParam());
  const bool image = model.input.rank() == 3 && model.input[0] > 28;
  const Shape input = image ? Shape{64, 64, 3} : model.input;
  Compiled compiled{
      Adam(), loss_from_name("sparse_categorical_crossentropy"), {"accuracy"}, Dtype::float32};
  compiled.loss.from_logits = model.logits;
  const Network network = model.build(input, model.classes);
  const Shape target =
      target_meta(compiled.loss, network.output_shapes()[0], Dtype::float32)->shape;
  Graph plain = trace_step(network, compiled, {StepKind::train, 2},
                           {{{network.vocabulary() > 0 ? Dtype::int32 : Dtype::uint8, input}},
                            {{Dtype::int32, target}},
                            network.vocabulary() > 0 ? 1 : 1.0 / 255,
                            false});
  Graph fused = plain;
  PassOptions options;
  options.off = {"fuse-pointwise"};
  run_passes(plain, options);
  options.off = {};
  double spent = 0;
  options.after = [&](const Pass& pass, const Graph&, double ms) {
    if (std::string_view(pass.name) == "fuse-pointwise") spent = ms;
  };
  run_passes(fused, options);
  const Figures before = figures(plain), after = figures(fused);
  EXPECT_LE(after.unlimited, before.unlimited);
  EXPECT_LE(after.bound, before.bound);
  const auto chains = std::count_if(fused.nodes.begin(), fused.nodes.end(), [](const Node& node) {
    return node.op == kFusedPointwise.name;
  });
  std::printf("%s: %zu nodes, %zu with %ld chains, %lld -> %lld bytes live, %.1f ms\n", GetParam(),
              plain.nodes.size(), fused.nodes.size(), static_cast<long>(chains),
              static_cast<long long>(before.unlimited), static_cast<long long>(after.unlimited),
              spent);
}

INSTANTIATE_TEST_SUITE_P(Builtin, FuseModels,
                         testing::Values("mlp", "mnist-cnn", "resnet18", "mobilenet-v2",
                                         "densenet121", "unet", "gpt-tiny"));

}  // namespace
}  // namespace pl::test::fuse_models_test
