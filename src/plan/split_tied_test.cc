// Splitting a batch: equal numbers, one sum for a table with two gradients, and what is refused.
#include "plan/split.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/passes.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"

namespace pl::test::split_tied_test {
namespace {

constexpr Dim kWidth = 4;

// Tokens (8, 3) -> embedding -> relu and dropout -> the table again as the head; Adam's slots are
// left out.
Graph tied_step(Dim words, bool onto_a_constant = false) {
  Recorder r;
  RecorderScope scope(r);
  const Meta table{Dtype::float64, {words, kWidth}};
  const Tensor w = r.variable("w", table, Category::parameters);
  const Tensor k = r.variable("k", {Dtype::float64, {kWidth, kWidth}}, Category::parameters);
  const Tensor x = r.input("x", {Dtype::int32, {8, 3}}, true);
  const Tensor y = r.input("y", {Dtype::int32, {8, 3}}, true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  const Tensor embedded = embedding(w, x);
  const Tensor h = add(embedded, dropout(relu(matmul(embedded, k)), params, 0.5, 7));
  const auto [per_row, probs] =
      sparse_softmax_cross_entropy(matmul(h, w, {.transpose_b = true}), y);
  const Tensor loss = scale(reduce_sum(per_row), 1.0 / 24);
  r.keep(loss, "loss");
  r.keep(reduce_sum(sparse_categorical_accuracy(probs, y)), "accuracy");
  if (onto_a_constant) {
    r.keep(embedding_gradient(x, h, words, w), "sum");
  } else {
    const Tensors g = gradients(loss, {w, k}, fill(Shape{}, 1.0, Dtype::float64));
    sgd(w, g[0], params);
    sgd(k, g[1], params);
  }
  Graph graph = r.take();
  run_passes(graph);
  return graph;
}

// Kept values and variables after two steps.
std::vector<double> two_steps(const Graph& graph, Backend& backend, int words) {
  PlannedRun run(graph, backend, all_passes_off());
  fill_variables(run, 5);
  for (int64_t step = 1; step <= 2; ++step) {
    fill_inputs(run, static_cast<uint64_t>(step), step, words);
    run.step_poisoned();
  }
  std::vector<double> all{*static_cast<const double*>(run.kept(0)),
                          static_cast<double>(*static_cast<const float*>(run.kept(1)))};
  for (size_t v = 0; v < graph.variables.size(); ++v) {
    const double* data = static_cast<const double*>(run.variable(v));
    all.insert(all.end(), data, data + graph.variables[v].meta.elements());
  }
  return all;
}

TEST(SplitOfTiedTables, GivesTheNumbersOfTheWholeBatch) {
  CpuBackend backend(2);
  for (int words : {11, 1030}) {  // 1,030: the head is one call
    const Graph whole = tied_step(words);
    const auto expected = two_steps(whole, backend, words);
    for (int64_t trips : {2, 8}) {
      const auto split = two_steps(split_batch(whole, trips), backend, words);
      ASSERT_EQ(split.size(), expected.size());
      for (size_t i = 0; i < split.size(); ++i)
        ASSERT_NEAR(split[i], expected[i], 1e-12 * std::max(1.0, std::fabs(expected[i])))
            << words << " words, " << trips << " trips, number " << i;
    }
  }
}

// The head's gradient goes on in the embedding's within each trip; their sum alone is kept.
TEST(SplitOfTiedTables, SumsATiedTableOnce) {
  for (Dim words : {11, 1030}) {
    const Graph split = split_batch(tied_step(words), 4);
    int tables = 0;
    for (const Loop::Out& sum : split.loops[0].accumulated)
      tables += split.values[index(sum.outer)].meta.shape == Shape{words, kWidth};
    EXPECT_EQ(tables, 1) << words;
  }
}

TEST(SplitOfTiedTables, RefusesToAddEachPartToAConstant) {
  const Graph whole = tied_step(11, true);
  const std::string error = error_of<UserError>([&] { split_batch(whole, 2); });
  EXPECT_NE(error.find("embedding_gradient_onto"), std::string::npos) << error;
}

}  // namespace
}  // namespace pl::test::split_tied_test
