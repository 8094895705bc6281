// Steps of networks with penalties, constraints, random layers and masks in parts of the batch:
// losses and weights are those of the whole batch, and the plan is kept.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "model/layers.h"
#include "plan/passes.h"
#include "plan/split.h"
#include "tests/graph_run.h"
#include "tests/model_run.h"
#include "train/step_trace.h"

namespace pl::test::split_layers_test {
namespace {

Network images() {
  return chain(Shape{8, 9, 3},
               {Rescaling(4, -1), RandomFlip(), RandomRotation(0.1), RandomCrop(6, 7),
                Conv2D(5, 3,
                       {.kernel_regularizer = "l2:0.01",
                        .activity_regularizer = "l1:0.001",
                        .kernel_constraint = "max_norm:max_value=0.3,axis=0/1/2"}),
                GroupNormalization({.groups = 5}), SpatialDropout2D(0.3), Activation("mish"),
                Resizing(5, 4), GlobalMaxPooling2D(), GaussianNoise(0.1),
                Dense(5, {.activation = "softmax", .bias_constraint = "non_neg"})});
}

Network sequences() {
  return chain(Shape{6, 5}, {Rescaling(2, -0.5), Masking(), Dense(8, {.activation = "gelu"}),
                             GaussianDropout(0.2), RMSNormalization(),
                             GroupedQueryAttention(4, 4, 2), EinsumDense("abc,cd->abd", {0, 6}),
                             AlphaDropout(0.1), PReLU(), Conv1D(7, 4, {.padding = "same"}),
                             ActivityRegularization({.l2 = 0.01}), GlobalAveragePooling1D(),
                             Dense(5, {.activation = "softmax",
                                       .kernel_regularizer = "orthogonal_regularizer:0.1",
                                       .kernel_constraint = "unit_norm"})});
}

Network volumes() {
  return chain(Shape{5, 4, 5, 2},
               {Conv3D(4, {2, 3, 2}, {.strides = {2, 1, 1}, .padding = "same"}),
                SpatialDropout3D(0.2), LayerNormalization({.center = false}), Activation("selu"),
                GlobalAveragePooling3D(), Dense(5, {.activation = "softmax"})});
}

Graph trace(const Network& network, int64_t batch) {
  const Compiled compiled{optimizer_from_name("adam"),
                          loss_from_name("sparse_categorical_crossentropy"),
                          {"accuracy"},
                          Dtype::float64};
  Graph graph = trace_step(
      network, compiled, {StepKind::train, batch},
      {{{Dtype::uint8, network.input_shapes()[0]}}, {{Dtype::int32, Shape{}}}, 1.0 / 255, false});
  run_passes(graph);
  return graph;
}

TEST(SplitLayers, TrainAsTheWholeBatchDoes) {
  constexpr int64_t kBatch = 6;
  CpuBackend backend(2);
  size_t number = 0;
  for (const Network& network : {images(), sequences(), volumes()}) {
    SCOPED_TRACE(number++);
    const Graph graph = trace(network, kBatch);
    for (int64_t trips : {2, 3, 6}) {
      SCOPED_TRACE(trips);
      PlannedRun whole(prepare_split(graph, backend, 1)),
          parts(prepare_split(graph, backend, trips));
      for (PlannedRun* run : {&whole, &parts}) {
        fill_model(*run);
        for (int64_t step : {1, 2, 3}) {
          fill_batch(*run, kBatch, step);
          run->step_poisoned();
        }
      }
      EXPECT_LT(distance(whole, parts), 1e-9);
    }
  }
}

}  // namespace
}  // namespace pl::test::split_layers_test
