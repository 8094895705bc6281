// compile({.run_eagerly = true}): op by op within the same budget, with the bits of a planned step
// whose ops were not fused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "plimsoll.h"
#include "tests/patterns.h"

namespace pl {
namespace {

using test::pattern;

Tensor whole_numbers(Shape shape, int64_t below) {
  Tensor y({Dtype::int32, std::move(shape)});
  for (int64_t i = 0; i < y.meta().elements(); ++i)
    y.data_as<int32_t>()[i] = static_cast<int32_t>(i * 7919 % below);
  return y;
}

struct Run {
  History history;
  Tensors weights, outputs;
  Results results;
};

Run run(Model model, CompileOptions compile, const Tensor& x, const Tensor& y, bool eager,
        const Tensors& start, Budget memory = {}) {
  compile.run_eagerly = eager;
  compile.fuse = false;
  model.compile(compile);
  if (!start.empty()) model.set_weights(start);
  FitOptions options{.batch_size = 8, .epochs = 2, .verbose = 0, .memory = memory, .threads = 1};
  options.validation_split = 0.25;
  Run result;
  result.history = model.fit(x, y, options);
  result.weights = model.get_weights();
  result.results = model.evaluate(x, y, {.batch_size = 8, .memory = memory, .threads = 1});
  result.outputs = model.predict_all(x, {.batch_size = 8, .memory = memory, .threads = 1});
  return result;
}

void expect_same_bits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].meta(), b[i].meta());
    EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), static_cast<size_t>(a[i].meta().bytes())), 0)
        << "tensor " << i;
  }
}

// `make` gives a new model with the same weights: they depend on seed and path alone.
template <class Make>
void expect_equal(const Make& make, const CompileOptions& compile, const Tensor& x,
                  const Tensor& y) {
  const Run planned = run(make(), compile, x, y, false, {});
  const Run eager = run(make(), compile, x, y, true, {});
  EXPECT_EQ(planned.history.history, eager.history.history);
  EXPECT_EQ(planned.results, eager.results);
  expect_same_bits(planned.weights, eager.weights);
  expect_same_bits(planned.outputs, eager.outputs);
  EXPECT_LE(eager.history.used_arena, eager.history.planned_arena);
  EXPECT_EQ(planned.history.used_arena, planned.history.planned_arena);
}

Sequential convolutional() {
  return Sequential(Shape{8, 8, 2},
                    {Conv2D(4, 3, {.padding = "same", .use_bias = false}), BatchNormalization(),
                     ReLU(), MaxPooling2D(), Dropout(0.25), Conv2D(8, 3, {.activation = "relu"}),
                     GlobalAveragePooling2D(), Dense(3, {.activation = "softmax"})});
}

TEST(RunEagerly, IsAConvolutionalModelBitForBit) {
  expect_equal(convolutional,
               {.optimizer = Adam({.learning_rate = 0.01}),
                .loss = "sparse_categorical_crossentropy",
                .metrics = {"accuracy"}},
               pattern({28, 8, 8, 2}, 1), whole_numbers({28}, 3));
}

TEST(RunEagerly, IsATransformerBitForBit) {
  const GptConfig config{.layers = 2, .width = 32, .heads = 4, .vocabulary = 48};
  expect_equal(
      [&] {
        const Symbolic tokens = Input({12});
        return Model(tokens, gpt(config, tokens));
      },
      {.optimizer = AdamW({.learning_rate = 0.01, .global_clipnorm = 1.0}),
       .loss = Loss{"sparse_categorical_crossentropy", true}},
      whole_numbers({16, 12}, 48), whole_numbers({16, 12}, 47));
}

TEST(RunEagerly, IsMixedPrecisionWithALossScaleBitForBit) {
  expect_equal(
      [] {
        return Sequential(
            Shape{8}, {Dense(16, {.activation = "tanh", .kernel_regularizer = "l2"}), Dense(1)});
      },
      {.optimizer = LossScaleOptimizer(SGD({.learning_rate = 0.05, .momentum = 0.9})),
       .loss = "mse",
       .metrics = {"mae"},
       .dtype = kMixedBfloat16},
      pattern({24, 8}, 1), pattern({24, 1}, 2));
}

// What a step of one's own prints, it prints in every step.
TEST(RunEagerly, RunsTheModelsCodeInEveryStep) {
  struct Own : Sequential {
    Own() : Sequential(Shape{4}, {Dense(1)}) {}
    TensorLogs train_step(const StepData& data) override {
      GradientTape tape;
      const Tensor loss = compute_loss(data, (*this)(data.x(), true));
      if (!loss.is_symbol()) seen.push_back(loss.data_as<float>()[0]);
      const std::vector<Variable> weights = trainable_variables();
      const Tensors gradients = tape.gradient(loss, weights);
      optimizer().apply_gradients({{gradients[0], weights[0]}, {gradients[1], weights[1]}});
      return {{"loss", loss}};
    }
    std::vector<float> seen;
  };
  const Tensor x = pattern({16, 4}, 1), y = pattern({16, 1}, 2);
  Own eager, planned;
  eager.compile({.optimizer = SGD(), .loss = "mse", .run_eagerly = true});
  planned.compile({.optimizer = SGD(), .loss = "mse", .fuse = false});
  const FitOptions options{.batch_size = 4, .epochs = 2, .verbose = 0, .threads = 1};
  const History a = eager.fit(x, y, options), b = planned.fit(x, y, options);
  EXPECT_EQ(eager.seen.size(), 8u);
  EXPECT_EQ(planned.seen.size(), 0u);
  EXPECT_EQ(a.history, b.history);
  expect_same_bits(eager.get_weights(), planned.get_weights());
}

TEST(RunEagerly, StaysWithinTheBudgetOrSaysSo) {
  auto make = [] {
    Sequential model(Shape{256}, {Dense(1024, {.activation = "gelu"}),
                                  Dense(1024, {.activation = "gelu"}), Dense(3)});
    model.compile({.optimizer = SGD(),
                   .loss = Loss{"sparse_categorical_crossentropy", true},
                   .run_eagerly = true});
    return model;
  };
  const Tensor x = pattern({256, 256}, 1), y = whole_numbers({256}, 3);
  FitOptions options{.batch_size = 256, .verbose = 0, .threads = 1};
  Sequential free = make();
  const PlanReport report = free.plan(x, y, options);
  const History history = free.fit(x, y, options);
  EXPECT_LE(history.used_arena, report.arena);
  // As much as was used is enough.
  options.memory = report.process - report.arena + history.used_arena + kMiB;
  const History tight = make().fit(x, y, options);
  EXPECT_LE(tight.used_arena, tight.planned_arena);
  EXPECT_LE(tight.planned_process, *options.memory.bytes());
  // Less than a planned step needs is refused at once, a little more in the step that has no room.
  for (const Bytes less : {report.process - report.arena + history.used_arena - 4 * kMiB,
                           report.process - report.arena + kMiB}) {
    options.memory = less;
    try {
      make().fit(x, y, options);
      ADD_FAILURE() << "it must be refused";
    } catch (const DoesNotFit& error) {
      EXPECT_NE(std::string(error.what()).find("expected"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace pl
