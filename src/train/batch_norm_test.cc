// BatchNormalization through the C++ face: its weights, what moves them, and what is refused.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "plimsoll.h"
#include "tests/patterns.h"

namespace pl::batch_norm_test {
namespace {

using test::same_bits;

Tensor numbers(Shape shape, double spread, double centre = 0) {
  Tensor tensor({Dtype::float32, std::move(shape)});
  for (int64_t i = 0; i < tensor.meta().elements(); ++i)
    tensor.data_as<float>()[i] =
        static_cast<float>(centre + spread * std::sin(static_cast<double>(i * i % 977)));
  return tensor;
}

Tensor labels(int64_t count, int32_t below) {
  Tensor tensor({Dtype::int32, {count}});
  for (int64_t i = 0; i < count; ++i)
    tensor.data_as<int32_t>()[i] = static_cast<int32_t>(i % below);
  return tensor;
}

Sequential small(BatchNormalizationOptions options = {}) {
  options.name = "bn";
  Sequential model(Shape{4, 4, 3}, {Conv2D(5, 3, {.use_bias = false, .name = "conv"}),
                                    BatchNormalization(options), Activation("relu"), Flatten(),
                                    Dense(3, {.activation = "softmax", .name = "head"})});
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"}});
  return model;
}

std::string refusal(const std::function<void()>& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

TEST(BatchNormalization, HasKerasesWeightsOfWhichTheOptimizerKnowsHalf) {
  Sequential model = small();
  std::string paths;
  for (const WeightInfo& weight : model.weights())
    paths += weight.path + (weight.trainable ? " " : "- ");
  EXPECT_EQ(paths,
            "conv/kernel bn/gamma bn/beta bn/moving_mean- bn/moving_variance- head/kernel "
            "head/bias ");
  EXPECT_EQ(model.count_params(), 3 * 3 * 3 * 5 + 4 * 5 + 2 * 2 * 5 * 3 + 3);
  const std::string summary = model.summary({.batch_size = 8, .threads = 1});
  EXPECT_NE(summary.find("Non-trainable params: 10 "), std::string::npos) << summary;
  EXPECT_NE(summary.find("Optimizer params: 416 "), std::string::npos) << summary;
}

TEST(BatchNormalization, LeavesOutGammaAndBeta) {
  Sequential model = small({.center = false, .scale = false});
  std::string paths;
  for (const WeightInfo& weight : model.weights()) paths += weight.path + " ";
  EXPECT_EQ(paths, "conv/kernel bn/moving_mean bn/moving_variance head/kernel head/bias ");
  const Tensor x = numbers({8, 4, 4, 3}, 1);
  const History history =
      model.fit(x, labels(8, 3), {.batch_size = 8, .epochs = 3, .verbose = 0, .threads = 1});
  EXPECT_LT(history.history.at("loss")[2], history.history.at("loss")[0]);
}

// After many steps on one batch without learning, the moving averages are the batch's moments, and
// both ways of normalising agree.
TEST(BatchNormalization, EvaluatesByMovingAveragesThatApproachTheBatch) {
  Sequential model = small({.momentum = 0.5});
  model.optimizer().learning_rate = 0;
  const Tensor x = numbers({16, 4, 4, 3}, 2, 1), y = labels(16, 3);
  const double before = model.evaluate(x, y)["loss"];
  const History history = model.fit(
      x, y, {.batch_size = 16, .epochs = 40, .verbose = 0, .shuffle = false, .threads = 1});
  const double training = history.history.at("loss").back();
  EXPECT_GT(std::fabs(before - training), 1e-3);
  EXPECT_NEAR(model.evaluate(x, y)["loss"], training, 1e-5);
  EXPECT_EQ(history.planned_arena, history.used_arena);
}

TEST(BatchNormalization, SavesMovingAverages) {
  const Tensor x = numbers({16, 4, 4, 3}, 2, 1), y = labels(16, 3);
  Sequential model = small(), other = small();
  model.fit(x, y, {.batch_size = 8, .epochs = 2, .verbose = 0, .threads = 1});
  const std::string path = ::testing::TempDir() + "batch_norm.safetensors";
  model.save_weights(path);
  other.load_weights(path);
  EXPECT_TRUE(same_bits(model.predict(x), other.predict(x)));
  EXPECT_NE(model.get_weights()[3].data_as<float>()[0], 0.0f);
}

// One layer, called on two values: its moving averages take in both, one after the other.
TEST(BatchNormalization, CalledTwiceMovesItsAveragesTwice) {
  const Symbolic in = Input({3});
  const LayerRef norm = BatchNormalization({.momentum = 0.5, .name = "bn"});
  const Symbolic twice = Add()({norm(in), norm(Activation("tanh")(in))});
  Model model(in, Dense(2, {.activation = "softmax"})(twice));
  model.compile(
      {.optimizer = SGD({.learning_rate = 0}), .loss = "sparse_categorical_crossentropy"});
  const Tensor x = numbers({10, 3}, 1, 0.5);
  model.fit(x, labels(10, 2), {.batch_size = 10, .verbose = 0, .threads = 1});
  for (int64_t c = 0; c < 3; ++c) {
    double first = 0, second = 0;
    for (int64_t r = 0; r < 10; ++r) {
      const double value = static_cast<double>(x.data_as<float>()[r * 3 + c]);
      first += value / 10;
      second += std::tanh(value) / 10;
    }
    EXPECT_NEAR(model.get_weights()[2].data_as<float>()[c], (first * 0.5) * 0.5 + second * 0.5,
                1e-6);
  }
}

TEST(BatchNormalization, RefusesToSplitTheBatch) {
  Sequential model = small();
  const Tensor x = numbers({8, 4, 4, 3}, 1);
  const std::string message = refusal([&] {
    model.fit(x, labels(8, 3), {.batch_size = 8, .verbose = 0, .split = 2, .threads = 1});
  });
  EXPECT_NE(message.find("bn: batch_moments mixes the samples"), std::string::npos) << message;
  EXPECT_EQ(model.iterations(), 0);
}

TEST(BatchNormalization, SaysWhatItExpects) {
  EXPECT_NE(refusal([] {
              BatchNormalization({.axis = 4})(Input({3, 4, 4}));
            }).find("expected axes behind the batch, each once, received 4"),
            std::string::npos);
  EXPECT_EQ(refusal([] { BatchNormalization({.axis = 3})(Input({4, 4, 3})); }), "");
  EXPECT_NE(refusal([] { BatchNormalization({.momentum = 1.5}); }).find("momentum: expected"),
            std::string::npos);
  EXPECT_NE(refusal([] { BatchNormalization({.epsilon = 0}); }).find("epsilon: expected"),
            std::string::npos);
  EXPECT_NE(refusal([] { BatchNormalization({.gamma_initializer = "many"}); }).find("many"),
            std::string::npos);
  const LayerRef norm = BatchNormalization();
  norm(Input({4, 3}));
  EXPECT_NE(refusal([&] { norm(Input({4, 5})); }).find("expected 3 channels"), std::string::npos);
}

}  // namespace
}  // namespace pl::batch_norm_test
