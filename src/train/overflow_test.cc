// Overflows injected into a run under mixed_float16, against Keras's own run (tests/golden/
// keras_overflow.py): the step is left out, the scale halves, training goes on.
#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "base/json.h"
#include "model/layers.h"
#include "tensor/float16.h"
#include "tests/data_files.h"
#include "tests/messages.h"
#include "tests/places.h"
#include "train/model.h"
#include "train/session.h"

namespace pl::overflow_test {
namespace {

constexpr Dim kRows = 4, kWidth = 6, kSteps = 8;

Tensor pattern(const Shape& shape, double phase, double factor) {
  Tensor tensor({Dtype::float32, shape});
  for (Dim i = 0; i < shape.elements(); ++i)
    tensor.data_as<float>()[i] =
        static_cast<float>(factor * std::sin(12.9898 * static_cast<double>(i + 1) + phase));
  return tensor;
}

Sequential network() {
  Sequential model(Shape{kWidth}, {Dense(8, {.activation = "relu"}), Dense(1)});
  model.compile({.optimizer = Adam({.learning_rate = 0.05}),
                 .loss = "mean_squared_error",
                 .dtype = kMixedFloat16});
  Tensors weights;
  for (const WeightInfo& weight : model.weights())
    weights.push_back(pattern(weight.meta.shape, static_cast<double>(weights.size()), 0.5));
  model.set_weights(weights);
  return model;
}

// What a step left behind.
struct Watch : Callback {
  void on_train_batch_end(int64_t, const Logs& logs) override {
    losses.push_back(logs.at("loss"));
    const Variables& variables = model->variables();
    for (size_t i = 0; i < variables.layout().entries.size(); ++i)
      if (variables.layout().entries[i].path.ends_with("dynamic_scale"))
        scales.push_back(*static_cast<const double*>(variables.at(i)));
    iterations.push_back(*model->session.counted_iterations());
  }
  std::vector<double> losses, scales, iterations;
};

TEST(MixedFloat16, GoesOnBehindOverflowsAsKeras) {
  const Json answers = parse_json(test::read_bytes(test::golden("keras_overflow.json")), "json");
  const Tensor x = pattern({kSteps * kRows, kWidth}, 0.5, 1),
               y = pattern({kSteps * kRows, 1}, 0.25, 1);
  y.data_as<float>()[2 * kRows + 1] = 1e6f;  // its gradient is infinite in float16
  for (Dim i = 0; i < kWidth; ++i)           // infinite in float16 itself, and so is the loss
    x.data_as<float>()[(4 * kRows + 1) * kWidth + i] = 1e6f;

  Sequential model = network();
  const auto watch = std::make_shared<Watch>();
  const History history = model.fit(
      x, y,
      {.batch_size = kRows, .verbose = 0, .callbacks = {watch}, .shuffle = false, .threads = 1});
  EXPECT_EQ(history.steps, kSteps);
  EXPECT_FALSE(std::isfinite(history.history.at("loss")[0])) << "as Keras's mean of the epoch";
  ASSERT_EQ(watch->scales.size(), static_cast<size_t>(kSteps));
  double sum = 0;
  for (size_t step = 0; step < kSteps; ++step) {
    const auto stored = [&](const char* name) -> const Json& {
      return answers.at(name, "json").as_array(name)[step];
    };
    EXPECT_EQ(watch->scales[step], stored("scales").as_real("scale")) << "step " << step;
    EXPECT_EQ(watch->iterations[step], stored("iterations").as_real("iterations"));
    if (step >= 4) continue;  // means are not finite from there on
    sum += stored("losses").as_real("loss");
    const double mean = sum / static_cast<double>(step + 1);
    EXPECT_NEAR(watch->losses[step] / mean, 1, 2e-3) << "step " << step;
  }
  // 16-bit products are rounded differently: weights agree to float16's digits.
  const Tensors weights = model.get_weights();
  for (size_t w = 0; w < weights.size(); ++w) {
    const auto& wanted = answers.at("weights", "json").as_array("weights")[w].as_array("weights");
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(weights[w].data_as<float>()[i], wanted[i].as_real("weight"), 2e-3);
  }
}

// Trains with samples that are infinite in float16 in steps [first, last); the message, or "".
std::string trained_with(Dim steps, Dim first, Dim last, Dim& done) {
  const Tensor x = pattern({steps * kRows, kWidth}, 0.5, 1),
               y = pattern({steps * kRows, 1}, 0.25, 1);
  for (Dim i = first * kRows * kWidth; i < last * kRows * kWidth; ++i) x.data_as<float>()[i] = 1e6f;
  Sequential model = network();
  const auto watch = std::make_shared<Watch>();
  const std::string message = test::message_of([&] {
    model.fit(
        x, y,
        {.batch_size = kRows, .verbose = 0, .callbacks = {watch}, .shuffle = false, .threads = 1});
  });
  done = static_cast<Dim>(watch->losses.size());
  return message;
}

TEST(MixedFloat16, ThatDivergesEndsWithTheLayer) {
  Dim done = 0;
  for (const auto& [steps, first, last, ends] :
       {std::array<Dim, 4>{30, 2, 30, 12}, {16, 15, 16, 16}, {16, 8, 16, 16}}) {
    const std::string message = trained_with(steps, first, last, done);
    EXPECT_EQ(done, ends);
    EXPECT_NE(message.find("[fit] step " + std::to_string(ends) + ": the loss is not finite"),
              std::string::npos)
        << message;
    EXPECT_NE(message.find("is the first layer whose output has an infinity"), std::string::npos)
        << message;
  }
  EXPECT_EQ(trained_with(16, 2, 11, done), "nothing thrown")
      << "nine in a row, and then it goes on";
  EXPECT_EQ(done, 16);
}

}  // namespace
}  // namespace pl::overflow_test
