// Splitting a step over micro-batches: what becomes of its parts, and what is refused.
#include "plan/split.h"

#include <gtest/gtest.h>

#include <set>

#include "base/error.h"
#include "op/functions.h"
#include "op/layer_norm_gradients.h"
#include "op/recorder.h"
#include "tests/graph_run.h"
#include "tests/random_step.h"
#include "trace/gradient.h"

namespace pl::test::split_test {
namespace {

const Meta kRows{Dtype::float32, Shape{6, 4}};

// x (6, 4) with rows.
struct Traced {
  Recorder r;
  Tensor x = r.input("x", kRows, true);
  Graph split(int64_t trips) { return split_batch(r.take(), trips); }
  std::string refusal(int64_t trips = 2) {
    return error_of<UserError>([&] { split(trips); });
  }
};

TEST(Split, SumsGoBehindTheLoopAndRowsAreStacked) {
  Traced t;
  const Tensor w = t.r.variable("w", {Dtype::float32, Shape{4, 4}}, Category::parameters);
  const Tensor params = t.r.input("step_params", step_params_meta(), false);
  const Tensor y = matmul(t.x, tanh(w));
  t.r.keep(y, "y");
  sgd(w, matmul(t.x, y, {.transpose_a = true}), params);
  const Graph graph = t.split(3);
  EXPECT_EQ(calls(print(graph)),
            "%3 = tanh(%0)\n"
            "%5, %4 = loop(%3, %1)\n"
            "%6 = sgd(%0, %4, %2)\n");
  const Loop& loop = graph.loops[0];
  EXPECT_EQ(loop.trips, 3);
  EXPECT_EQ(loop.samples, 2);
  EXPECT_EQ(print(loop.body),
            "variable  float32 (4, 4) activations %1 -> %1\n"
            "variable  float32 (4, 4) activations %4 -> %3\n"
            "input x float32 (2, 4) %0\n"
            "%2 = matmul(%0, %1) : float32 (2, 4)\n"
            "%3 = matmul_accumulate(%4, %0, %2) {transpose_a=1} : float32 (4, 4)\n"
            "keep y %2\n");
}

TEST(Split, RefusesAnOpThatMixesSamplesAndNamesTheLayer) {
  Traced t;
  PathScope block(&t.r, "block"), norm(&t.r, "norm");
  t.r.keep(reduce_max(t.x, {0}), "max");
  EXPECT_EQ(t.refusal(),
            "[split] block/norm: reduce_max mixes the samples of the batch, so the batch cannot be "
            "split");
}

// Batch normalisation: the mean over the batch comes back to its samples.
TEST(Split, RefusesSamplesThatMeetASumOverAllOfThem) {
  Traced t;
  const Tensor w = t.r.variable("w", {Dtype::float32, Shape{4}}, Category::parameters);
  PathScope norm(&t.r, "batch_normalization");
  const Tensor x = multiply(t.x, w);
  const Tensor mean = scale(reduce_sum(x, {0}, true), 1.0 / 6);
  t.r.keep(subtract(x, mean), "y");
  const std::string message = t.refusal();
  EXPECT_NE(message.find("[split] batch_normalization: subtract works on samples with something "
                         "summed over all of them"),
            std::string::npos)
      << message;
}

// Such as the positions that a mask lets count, whose number is part of every sample's gradient.
TEST(Split, SumsThatInputsAloneDecideAreTakenBeforeTheLoop) {
  Traced t;
  const Tensor w = t.r.variable("w", {Dtype::float32, Shape{4}}, Category::parameters);
  const Tensor counts = equal_mask(t.x, tanh(t.x));
  t.r.keep(reduce_sum(divide(multiply(counts, w), reduce_sum(counts))), "y");
  const Graph graph = t.split(3);
  EXPECT_EQ(calls(print(graph)),
            "%2 = tanh(%1)\n"
            "%3 = equal_mask(%1, %2)\n"
            "%4 = reduce_sum(%3)\n"
            "%5 = loop(%0, %4, %1)\n");
  EXPECT_EQ(graph.loops[0].body.inputs.size(), 1u);
}

TEST(Split, RefusesSamplesThatMeetAnUpdatedVariable) {
  Traced t;
  const Tensor w = t.r.variable("w", {Dtype::float32, Shape{4}}, Category::parameters);
  const Tensor params = t.r.input("step_params", step_params_meta(), false);
  t.r.keep(add(t.x, sgd(w, scale(w, 0.5), params)), "y");
  EXPECT_NE(t.refusal().find("works on samples with"), std::string::npos);
}

TEST(Split, RefusesProductsOfSamplesWithEachOther) {
  Traced t;
  t.r.keep(matmul(t.x, t.x, {.transpose_b = true}), "gram");
  EXPECT_NE(t.refusal().find("matmul mixes the samples"), std::string::npos);
}

TEST(Split, RefusesAnOperandAsTallAsTheBatchThatIsNoSamples) {
  Traced t;
  const Tensor k = t.r.variable("k", kRows, Category::parameters);
  t.r.keep(add(t.x, k), "y");
  EXPECT_NE(t.refusal().find("add mixes the samples"), std::string::npos) << t.refusal();
}

// As many columns as samples: a sum over the batch that looks like the batch itself.
TEST(Split, RefusesSamplesAddedToASumOfTheirShape) {
  Traced t;
  const Tensor y = t.r.input("y", {Dtype::float32, Shape{6, 6}}, true);
  t.r.keep(add(t.x, matmul(y, t.x, {.transpose_a = true})), "sum");
  const Graph graph = t.r.take();
  for (int64_t trips : {2, 3, 6})
    EXPECT_NE(error_of<UserError>([&] { split_batch(graph, trips); }).find("[split] add"),
              std::string::npos)
        << trips;
}

TEST(Split, AddsUpSumsInsideTheLoop) {
  Traced t;
  const Tensor a = reduce_sum(t.x, {0}), b = reduce_sum(tanh(t.x), {0});
  t.r.keep(add(a, b), "sum");
  const Graph graph = t.split(3);
  EXPECT_EQ(graph.nodes.size(), 1u);
  EXPECT_EQ(graph.loops[0].accumulated.size(), 1u) << "the terms themselves stay inside";
}

// The node that makes three sums adds all of them to where they live, or none.
TEST(Split, NodesOfSeveralSumsAddThemThemselves) {
  for (const bool all : {true, false}) {
    Traced t;
    const Meta row{Dtype::float32, Shape{4}}, moment{Dtype::float32, Shape{6}};
    const Tensor gamma = t.r.variable("gamma", row, Category::parameters);
    const Tensor params = t.r.input("step_params", step_params_meta(), false);
    const Tensor mean = t.r.input("mean", moment, true), rstd = t.r.input("rstd", moment, true);
    const Tensors out =
        apply(kLayerNormGradients, {t.x, gamma, mean, rstd, t.x}, {{"sum", int64_t{1}}});
    t.r.keep(out[0], "dx");
    const Tensor w = t.r.variable("w", row, Category::parameters);
    const Tensor v = t.r.variable("v", row, Category::parameters);
    sgd(gamma, out[1], params);
    sgd(w, out[2], params);
    if (all) sgd(v, out[3], params);
    const Graph graph = t.split(3);
    const Loop& loop = graph.loops[0];
    EXPECT_EQ(loop.accumulated.size(), all ? 3u : 2u);
    const std::string body = calls(print(loop.body));
    EXPECT_EQ(body.find("layer_norm_gradients_accumulate(") != std::string::npos, all) << body;
    EXPECT_EQ(body.find(" accumulate(") == std::string::npos, all) << body;
    if (all) {
      EXPECT_EQ(loop.body.nodes.size(), 1u);
      EXPECT_EQ(loop.body.nodes[0].in.size(), 8u);
    }
  }
}

TEST(Split, SumsOverAxesAreAddedWhereTheyAreMade) {
  Traced t;
  const Tensor b = t.r.variable("b", {Dtype::float32, Shape{4}}, Category::parameters);
  const Tensor params = t.r.input("step_params", step_params_meta(), false);
  sgd(b, reduce_sum(t.x, {0}), params);
  const Graph graph = t.split(3);
  EXPECT_EQ(calls(print(graph.loops[0].body)), "%1 = reduce_sum_accumulate(%2, %0)\n");
}

TEST(Split, RefusesSumsThatAreNoNumbersWithAPoint) {
  Recorder r;
  const Tensor x = r.input("x", {Dtype::int32, Shape{6, 4}}, true);
  r.keep(reduce_sum(x, {0}), "sum");
  const Graph graph = r.take();
  EXPECT_NE(error_of<UserError>([&] { split_batch(graph, 2); }).find("sums samples in int32"),
            std::string::npos);
}

TEST(Split, RefusesViewsThatTearSamplesApart) {
  Traced t;
  t.r.keep(tanh(reshape(t.x, {4, 6})), "torn");
  EXPECT_NE(t.refusal().find("reshape mixes the samples"), std::string::npos);
}

// Two samples in a row: fine for pairs, not for one.
TEST(Split, RefusesPartsThatAreTooSmallForAView) {
  Traced t;
  t.r.keep(tanh(reshape(t.x, {3, 8})), "pairs");
  const Graph graph = t.r.take();
  EXPECT_NO_THROW(split_batch(graph, 3));
  EXPECT_NE(
      error_of<UserError>([&] { split_batch(graph, 6); }).find("holds the batch in its shape"),
      std::string::npos);
}

TEST(Split, KeptViewsFollowWhatIsStacked) {
  Traced t;
  const Tensor y = tanh(t.x);
  t.r.keep(reshape(y, {6, 2, 2}), "view");
  t.r.keep(y, "y");
  t.r.keep(reshape(t.x, {6, 2, 2}), "of the input");
  const Graph graph = t.split(2);
  EXPECT_EQ(graph.loops[0].stacked.size(), 1u);
  EXPECT_EQ(calls(print(graph)),
            "%1 = loop(%0)\n"
            "%2 = reshape(%1)\n"
            "%3 = reshape(%0)\n");
}

TEST(Split, RandomStepsSplitOrSayWhichLayerDoesNot) {
  int split = 0, refused = 0;
  for (uint64_t seed = 0; seed < 500; ++seed) {
    const Graph graph =
        RandomStep(seed, Dtype::float32, 6, 2 + static_cast<int>(seed % 12), seed % 4 ? 0 : 0.2)
            .take();
    for (int64_t trips : {2, 3, 6}) {
      const std::string message = error_of<UserError>([&] {
        const Graph cut = split_batch(graph, trips);
        ASSERT_EQ(cut.keep.size(), graph.keep.size());
        ASSERT_EQ(cut.variables.size(), graph.variables.size());
        for (size_t k = 0; k < graph.keep.size(); ++k)
          ASSERT_EQ(cut.values[index(cut.keep[k])].meta, graph.values[index(graph.keep[k])].meta);
      });
      message.empty() ? ++split : ++refused;
      if (!message.empty()) {
        ASSERT_EQ(message.find("[split] layer"), 0u) << "seed " << seed << ": " << message;
      }
    }
  }
  EXPECT_GT(split, 1000);
  EXPECT_GT(refused, 50);
}

TEST(Split, ChoicesDivideTheBatchAndEndWithIt) {
  for (int64_t batch = 1; batch <= 1024; ++batch) {
    const std::vector<int64_t> choices = split_choices(batch);
    ASSERT_EQ(choices.front(), 1) << batch;
    ASSERT_EQ(choices.back(), batch);
    ASSERT_LE(choices.size(), 16u) << batch;
    for (size_t i = 0; i < choices.size(); ++i) {
      ASSERT_EQ(batch % choices[i], 0) << batch;
      if (i > 0) {
        ASSERT_LT(choices[i - 1], choices[i]) << batch;
      }
    }
  }
}

TEST(Split, OfAStepWithoutSamplesIsNone) {
  Recorder r;
  const Tensor w = r.variable("w", kRows, Category::parameters);
  r.keep(tanh(w), "y");
  EXPECT_EQ(samples_of(r.graph()), 0);
  EXPECT_THROW(split_batch(r.graph(), 2), InternalError);
}

}  // namespace
}  // namespace pl::test::split_test
