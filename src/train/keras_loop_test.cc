// More of what people who come from Keras write: loops of their own over model.losses and metrics,
// comparisons and choices on symbols, steps_per_execution, a loss that a step tracks itself.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>
#include <fstream>

#include "plimsoll.h"
#include "tests/messages.h"
#include "tests/patterns.h"

namespace pl::keras_loop_test {
namespace {

using test::message_of;
using test::pattern;
using test::same_bits;

Sequential penalised() {
  return Sequential(Shape{4}, {Dense(6, {.activation = "tanh", .kernel_regularizer = "l2:0.1"}),
                               ActivityRegularization({.l2 = 0.05}), Dense(2)});
}

// keras.io's "writing a training loop from scratch", without a Runtime, is what fit() does.
TEST(KerasLoop, WithTheModelsLossesIsFit) {
  const Tensor x = pattern({12, 4}, 1), y = pattern({12, 2}, 2);
  Sequential fitted = penalised(), looped = penalised();
  looped.set_weights(fitted.get_weights());
  fitted.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse", .fuse = false});
  const History history = fitted.fit(
      x, y, {.batch_size = 12, .epochs = 3, .verbose = 0, .shuffle = false, .threads = 1});

  const OptimizerRef optimizer = SGD({.learning_rate = 0.1});
  const Loss mse = losses::MeanSquaredError();
  MetricState mae("mae");
  for (size_t epoch = 0; epoch < 3; ++epoch) {
    GradientTape tape;
    const Tensor y_pred = looped(x, true);
    Tensor loss = mse(y, y_pred);
    const Tensors extra = looped.losses();
    ASSERT_EQ(extra.size(), 2u);
    for (const Tensor& one : extra) loss += one;
    const auto weights = looped.trainable_variables();
    optimizer->apply_gradients(zip(tape.gradient(loss, weights), weights));
    mae.update_state(y, y_pred);
    EXPECT_NEAR(item(loss), history.history.at("loss")[epoch], 1e-6);
  }
  EXPECT_GT(mae.result(), 0);
  const Tensors a = fitted.get_weights(), b = looped.get_weights();
  for (size_t i = 0; i < a.size(); ++i)
    for (int64_t k = 0; k < a[i].meta().elements(); ++k)
      EXPECT_NEAR(a[i].data_as<float>()[k], b[i].data_as<float>()[k], 1e-6);
}

TEST(KerasLoop, AFunctionWithANameIsAMetric) {
  auto within = [](const Tensor& y_true, const Tensor& y_pred) {
    return ops::cast(ops::abs(y_true - y_pred) < 0.5, "float32");
  };
  Sequential model({Dense(2)});
  model.build({4});
  EXPECT_EQ(model.count_params(), 10);
  model.compile({.loss = "mse", .metrics = {Metric("within", within), "mae"}});
  const Tensor x = pattern({9, 4}, 1), y = pattern({9, 2}, 2);
  double expected = 0;
  for (double error : to_vector(ops::abs(model.predict(x) - y))) expected += error < 0.5;
  EXPECT_NEAR(model.evaluate(x, y)["within"], expected / 18, 1e-6);
}

// where, argmax, cast and comparisons between layers, against the same on values.
TEST(KerasLoop, SymbolsAreComparedAndChosen) {
  const Symbolic in = Input({5});
  const Symbolic positive = ops::where(in > 0.0, in, ops::exp(in) - 1.0);
  const Symbolic place = ops::one_hot(ops::argmax(in, -1), 5);
  const Symbolic order = ops::sort(in) + ops::flip(in, 1) + ops::cast(in <= 0.5, "float32");
  const Symbolic product = ops::einsum("bi,bi->b", {in, positive});
  Model model({in}, {positive, place, order, ops::expand_dims(product, -1)});
  const Tensor x = pattern({6, 5}, 3);
  const Tensors out = model.predict_all(x);
  EXPECT_EQ(to_vector(out[0]), to_vector(ops::where(x > 0.0, x, ops::exp(x) - 1.0)));
  EXPECT_EQ(to_vector(out[1]), to_vector(ops::one_hot(ops::argmax(x, -1), 5)));
  EXPECT_EQ(to_vector(out[2]),
            to_vector(ops::sort(x) + ops::flip(x, 1) + ops::cast(x <= 0.5, "float32")));
  EXPECT_EQ(model.get_layer("argmax")->kind(), std::string("Argmax"));
}

// Keras calls the hooks of batches once for so many, with the first's and the last's number.
TEST(KerasLoop, StepsPerExecutionAreWhatCallbacksSee) {
  Sequential model(Shape{4}, {Dense(2)});
  model.compile({.optimizer = "sgd", .loss = "mse", .steps_per_execution = 3});
  std::string seen;
  const auto note = LambdaCallback({
      .on_train_batch_begin = [&](int64_t b, const Logs&) { seen += "b" + std::to_string(b); },
      .on_train_batch_end = [&](int64_t b, const Logs&) { seen += "e" + std::to_string(b) + " "; },
      .on_test_batch_begin = [&](int64_t b, const Logs&) { seen += "B" + std::to_string(b); },
      .on_test_batch_end = [&](int64_t b, const Logs&) { seen += "E" + std::to_string(b) + " "; },
      .on_predict_batch_begin = [&](int64_t b, const Logs&) { seen += "p" + std::to_string(b); },
      .on_predict_batch_end = [&](int64_t b, const Logs&) { seen += "q" + std::to_string(b); },
  });
  const Tensor x = pattern({8, 4}, 1), y = pattern({8, 2}, 2);
  const History history = model.fit(x, y,
                                    {.batch_size = 1,
                                     .verbose = 0,
                                     .callbacks = {note},
                                     .validation_data = {x, y},
                                     .validation_batch_size = 2});
  EXPECT_EQ(seen, "b0e2 b3e5 b6e7 B0E2 B3E3 ");
  EXPECT_EQ(history.steps, 8);
  seen.clear();
  model.predict(x, {.batch_size = 2, .callbacks = {note}});
  EXPECT_EQ(seen, "p0q2p3q3");
  EXPECT_EQ(message_of([&] { model.compile({.loss = "mse", .steps_per_execution = 0}); }),
            "[compile] steps_per_execution: expected 1 or more, received 0");
}

// A loss that a step tracks is shown as its tracker has it: a mean over steps, as in Keras.
class TracksItsLoss : public Sequential {
 public:
  TracksItsLoss() : Sequential(Shape{4}, {Dense(2)}) {}
  TensorLogs train_step(const StepData& data) override {
    GradientTape tape;
    const Tensor loss = compute_loss(data, (*this)(data.x(), true));
    const auto weights = trainable_variables();
    optimizer().apply_gradients(zip(tape.gradient(loss, weights), weights));
    tracker_.update_state(loss);
    return {{"loss", tracker_.result()}, {"by_samples", loss}};
  }

 private:
  metrics::Mean tracker_{"loss"};
};

TEST(KerasLoop, ATrackedLossIsTheTrackers) {
  for (bool eager : {false, true}) {
    TracksItsLoss model;
    model.compile({.optimizer = SGD({.learning_rate = 0}), .loss = "mse", .run_eagerly = eager});
    const Tensor x = pattern({12, 4}, 1), y = pattern({12, 2}, 2);
    std::vector<double> steps;
    const auto note = LambdaCallback({.on_train_batch_end = [&](int64_t, const Logs& logs) {
      steps.push_back(logs.at("by_samples"));
    }});
    const auto history = model
                             .fit(x, y,
                                  {.batch_size = 8,
                                   .verbose = 0,
                                   .callbacks = {note},
                                   .shuffle = false,
                                   .threads = 1})
                             .history;
    const double first = steps[0], second = (steps[1] * 12 - first * 8) / 4;
    EXPECT_NEAR(history.at("loss")[0], (first + second) / 2, 1e-6);
    EXPECT_NEAR(history.at("by_samples")[0], (2 * first + second) / 3, 1e-6);
    EXPECT_EQ(history.size(), 2u);
  }
}

TEST(KerasLoop, WeightsOfADamagedCheckpointAreRefused) {
  Sequential model(Shape{4}, {Dense(2)});
  model.compile({.optimizer = "adam", .loss = "mse"});
  const Tensors before = model.get_weights();
  const std::filesystem::path folder = ::testing::TempDir() + "/keras_loop_checkpoint";
  model.save_checkpoint(folder);
  for (const auto& file : std::filesystem::directory_iterator(folder)) {
    if (file.path().extension() != ".safetensors") continue;
    std::fstream bytes(file.path(), std::ios::in | std::ios::out | std::ios::binary);
    bytes.seekp(-3, std::ios::end);
    bytes.put('\x55');
  }
  const std::string text = message_of([&] { model.load_weights(folder); });
  EXPECT_NE(text.find("with hash"), std::string::npos) << text;
  const Tensors now = model.get_weights();
  for (size_t i = 0; i < now.size(); ++i) EXPECT_TRUE(same_bits(before[i], now[i]));
  std::filesystem::remove_all(folder);
}

// What call() of one's own layer gets wrong is said when it is built, with its path.
class Wrong : public Layer {
 public:
  const char* kind() const override { return "Wrong"; }
  Shape build(const std::vector<Shape>& in) override { return in[0]; }
  Tensor call(const LayerCall& call) const override { return call.in[0] + ops::ones({7, 9}); }
};

TEST(KerasLoop, AMistakeInCallIsSaidWhenTheLayerIsBuilt) {
  const std::string text = message_of([] {
    Sequential(Shape{4}, {Dense(3), LayerRef(std::make_shared<Wrong>())});
  });
  EXPECT_NE(text.find("[build] sequential/wrong: "), std::string::npos) << text;
}

}  // namespace
}  // namespace pl::keras_loop_test
