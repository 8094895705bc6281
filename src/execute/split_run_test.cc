// Steps of real models in micro-batches: losses, weights and predictions are those of the whole
// batch, masks of dropout included.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "model/builtin.h"
#include "model/layers.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/passes.h"
#include "plan/split.h"
#include "tests/graph_run.h"
#include "tests/model_run.h"
#include "train/step_trace.h"

namespace pl::test::split_run_test {
namespace {

// Widths that are no multiple of a vector, so that samples begin anywhere.
Network mlp_with_dropout() {
  return chain(Shape{7, 3}, {Flatten(), Dense(19, {.activation = "relu"}), Dropout(0.25),
                             Dense(13, {.activation = "tanh"}), Dropout(0.5),
                             Dense(5, {.activation = "softmax"})});
}

// Padding counts neither in the loss nor in the accuracy, whose divisors are those of the batch.
Network padded_text() {
  return chain(Shape{6}, {Embedding(5, 3, {.mask_zero = true}), LSTM(4, {.return_sequences = true}),
                          Dense(5, {.activation = "softmax"})});
}

Network network_of(const std::string& name) {
  if (name == "padded_text") return padded_text();
  if (name == "mlp_with_dropout") return mlp_with_dropout();
  const BuiltinModel& model = find_builtin(name);
  return model.build(model.input, model.classes);
}

Graph trace(const std::string& name, StepKind kind, int64_t batch, Dtype dtype,
            const char* optimizer = "adam") {
  const Network network = network_of(name);
  const Compiled compiled{optimizer_from_name(optimizer),
                          loss_from_name("sparse_categorical_crossentropy"),
                          {"accuracy"},
                          dtype};
  const bool tokens = network.vocabulary() > 0;
  std::vector<Dim> positions = network.output_shapes()[0].dims();
  positions.pop_back();
  Graph graph = trace_step(network, compiled, {kind, batch},
                           {{{tokens ? Dtype::int32 : Dtype::uint8, network.input_shapes()[0]}},
                            {{Dtype::int32, Shape(std::move(positions))}},
                            tokens ? 1.0 : 1.0 / 255,
                            false});
  run_passes(graph);
  return graph;
}

struct Case {
  const char* name;
  const char* model;
  const char* optimizer;
  int64_t batch;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

class SplitTraining : public ::testing::TestWithParam<Case> {};

TEST_P(SplitTraining, IsThatOfTheWholeBatch) {
  const Case& c = GetParam();
  CpuBackend backend(2);
  const Graph graph = trace(c.model, StepKind::train, c.batch, Dtype::float64, c.optimizer);
  for (int64_t trips : {int64_t{2}, int64_t{3}, c.batch}) {
    SCOPED_TRACE(std::to_string(trips) + " parts");
    PlannedRun whole(prepare_split(graph, backend, 1)), split(prepare_split(graph, backend, trips));
    fill_model(whole);
    fill_model(split);
    for (int64_t step = 1; step <= 4; ++step) {
      fill_batch(whole, c.batch, step);
      fill_batch(split, c.batch, step);
      whole.step();
      if (step % 2)
        split.step_poisoned();
      else
        split.step();
      ASSERT_LE(distance(whole, split), 1e-10) << "step " << step;
    }
    EXPECT_EQ(split.executor().used_bytes(), split.plan().arena);
  }
}

// Kernels of float32 meet rows at addresses that are no multiple of 64.
TEST_P(SplitTraining, InFloat32IsCloseToTheWholeBatch) {
  const Case& c = GetParam();
  CpuBackend backend(2);
  const Graph graph = trace(c.model, StepKind::train, c.batch, Dtype::float32, "sgd");
  for (int64_t trips : {int64_t{2}, c.batch}) {
    SCOPED_TRACE(std::to_string(trips) + " parts");
    PlannedRun whole(prepare_split(graph, backend, 1)), split(prepare_split(graph, backend, trips));
    fill_model(whole);
    fill_model(split);
    for (int64_t step = 1; step <= 2; ++step) {
      fill_batch(whole, c.batch, step);
      fill_batch(split, c.batch, step);
      whole.step();
      split.step_poisoned();
      ASSERT_LE(distance(whole, split), 1e-4) << "step " << step;
    }
  }
}

const Case kCases[] = {{"MnistCnnSgd", "mnist-cnn", "sgd", 6},
                       {"MnistCnnAdam", "mnist-cnn", "adam", 6},
                       {"PaddedTextSgd", "padded_text", "sgd", 6},
                       {"MlpWithDropoutSgd", "mlp_with_dropout", "sgd", 12},
                       {"MlpWithDropoutAdam", "mlp_with_dropout", "adam", 6}};
INSTANTIATE_TEST_SUITE_P(Models, SplitTraining, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// Predictions are stacked, and bit-equal in float64, where a row's sums do not know their
// neighbours.
TEST(SplitRun, PredictsAndEvaluatesTheWholeBatch) {
  CpuBackend backend(2);
  for (const char* model : {"mnist-cnn", "mlp_with_dropout"})
    for (StepKind kind : {StepKind::predict, StepKind::evaluate})
      for (Dtype dtype : {Dtype::float64, Dtype::float32})
        for (int64_t trips : {2, 3, 6}) {
          SCOPED_TRACE(std::string(model) + ", " + name_of(kind) + ", " +
                       std::string(name_of(dtype)) + ", " + std::to_string(trips) + " parts");
          const Graph graph = trace(model, kind, 6, dtype);
          PlannedRun whole(prepare_split(graph, backend, 1)),
              split(prepare_split(graph, backend, trips));
          fill_model(whole);
          fill_model(split);
          fill_batch(whole, 6, 1);
          fill_batch(split, 6, 1);
          whole.step();
          split.step_poisoned();
          if (kind == StepKind::predict && dtype == Dtype::float64) {
            EXPECT_EQ(difference(graph, results(whole), results(split)), "");
          }
          EXPECT_LE(distance(whole, split), dtype == Dtype::float64 ? 1e-12 : 1e-5);
          EXPECT_EQ(split.graph().loops[0].stacked.size(), kind == StepKind::predict ? 1u : 0u);
        }
}

// One sample after another finds its own mask, also where rows count more than samples.
TEST(SplitRun, DropsTheSameElements) {
  CpuBackend backend(2);
  for (Dtype dtype : {Dtype::float64, Dtype::float32}) {
    Recorder r;
    const Tensor x = r.input("x", {dtype, Shape{6, 14}}, true);
    const Tensor params = r.input("step_params", step_params_meta(), false);
    r.keep(dropout(x, params, 0.5, 3), "rows");
    r.keep(dropout(reshape(x, {12, 7}), params, 0.25, 4), "positions");
    r.keep(dropout(reshape(x, {6, 2, 7}), params, 0.25, 5), "cubes");
    const Graph graph = r.take();
    PlannedRun whole(prepare_split(graph, backend, 1));
    fill_batch(whole, 6, 1);
    whole.step();
    for (int64_t trips : {2, 3, 6}) {
      PlannedRun split(prepare_split(graph, backend, trips));
      fill_batch(split, 6, 1);
      split.step_poisoned();
      EXPECT_EQ(difference(graph, results(whole), results(split)), "") << trips << " parts";
    }
  }
}

// Nothing to compute: a view of the batch is the answer.
TEST(SplitRun, OfAViewAlone) {
  CpuBackend backend(1);
  Recorder r;
  const Tensor x = r.input("x", {Dtype::float32, Shape{4, 6}}, true);
  r.keep(reshape(x, {4, 2, 3}), "view");
  const Graph graph = r.take();
  PlannedRun whole(prepare_split(graph, backend, 1)), split(prepare_split(graph, backend, 2));
  fill_batch(whole, 4, 1);
  fill_batch(split, 4, 1);
  whole.step();
  split.step_poisoned();
  EXPECT_EQ(difference(graph, results(whole), results(split)), "");
}

}  // namespace
}  // namespace pl::test::split_run_test
