// What ports of Keras programs meet at the edges of compile, fit and optimisers.
#include <gtest/gtest.h>

#include <cmath>

#include "plimsoll.h"
#include "tests/graph_run.h"

namespace pl::keras_edges_test {
namespace {

Tensor floats(Shape shape, double scale = 1) {
  Tensor x({Dtype::float32, shape});
  for (int64_t i = 0; i < shape.elements(); ++i)
    x.data_as<float>()[i] = static_cast<float>(scale * (i % 7 - 3));
  return x;
}
Tensor integers(Shape shape, std::vector<int32_t> values) {
  Tensor x({Dtype::int32, shape});
  std::copy(values.begin(), values.end(), x.data_as<int32_t>());
  return x;
}
std::string refusal(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "";
}

// (4,) targets against (4, 1) predictions: a mean over 4 squares, not over 16.
TEST(KerasEdges, AFunctionAsLossSeesTargetsInTheShapeOfPredictions) {
  const Tensor x = floats({4, 2}), y = floats({4}), column = floats({4, 1});
  Sequential model({Dense(1)});
  const auto squares = [](const Tensor& t, const Tensor& p) { return square(subtract(t, p)); };
  model.compile({.optimizer = "SGD", .loss = squares});
  const double own = model.evaluate(x, y, {.threads = 1})["loss"];
  EXPECT_EQ(own, (model.evaluate(x, column, {.threads = 1})["loss"]));
  const Tensor p = model.predict(x, {.threads = 1});
  double sum = 0;
  for (int i = 0; i < 4; ++i) sum += std::pow(p.data_as<float>()[i] - y.data_as<float>()[i], 2) / 4;
  EXPECT_NEAR(own, sum, 1e-5 * std::abs(sum));
  // Integers are cast.
  EXPECT_GT((model.evaluate(x, integers({4}, {0, 1, 2, 3}), {.threads = 1})["loss"]), 0);
}

TEST(KerasEdges, SparseLabelsMayBeFloats) {
  const Tensor x = floats({6, 2});
  Tensor y({Dtype::float32, {6}});
  for (int i = 0; i < 6; ++i) y.data_as<float>()[i] = static_cast<float>(i % 3);
  Sequential model({Dense(3, {.activation = "softmax"})});
  model.compile({.optimizer = "Adam", .loss = "sparse_categorical_crossentropy"});
  const double loss = model.evaluate(x, y, {.threads = 1})["loss"];
  const double same = model.evaluate(x, integers({6}, {0, 1, 2, 0, 1, 2}), {.threads = 1})["loss"];
  EXPECT_EQ(loss, same);
}

TEST(KerasEdges, ALabelOutOfRangeIsNotALossOfZero) {
  CpuBackend backend(1);
  const BackendScope scope(backend);
  Tensor p({Dtype::float32, {2, 3}});
  std::fill_n(p.data_as<float>(), 6, 1.0f / 3);
  const auto loss = losses::SparseCategoricalCrossentropy();
  EXPECT_NEAR(*loss(integers({2}, {0, 2}), p).data_as<float>(), std::log(3.0), 1e-6);
  EXPECT_TRUE(std::isnan(*loss(integers({2}, {0, 9}), p).data_as<float>()));
}

TEST(KerasEdges, OptimisersRefuseOneVariableTwiceAndNoGradientAtAll) {
  CpuBackend backend(1);
  const BackendScope scope(backend);
  const Variable w(floats({3}), {.name = "w"});
  const OptimizerRef sgd = SGD();
  EXPECT_EQ(
      refusal([&] {
        sgd->apply_gradients({{floats({3}), w}, {floats({3}), w}});
      }),
      "[apply_gradients] w: expected each variable once, received it twice; add its gradients "
      "first");
  EXPECT_EQ(refusal([&] {
              sgd->apply_gradients({{Tensor(), w}});
            }),
            "[apply_gradients] w: expected a gradient of at least one variable, received none; the "
            "loss must be made of the model's outputs, inside the tape");
}

TEST(KerasEdges, ClassNamesWorkAsNames) {
  const Tensor x = floats({4, 3});
  Sequential model({Dense(2, {.kernel_initializer = "HeNormal",
                              .kernel_regularizer = "L2",
                              .kernel_constraint = "MaxNorm"})});
  model.compile({.optimizer = "RMSprop", .loss = "MeanSquaredError"});
  EXPECT_GT((model.evaluate(x, floats({4, 2}), {.threads = 1})["loss"]), 0);
}

TEST(KerasEdges, FunctionsTakeStrings) {
  Runtime runtime({.threads = 1});
  auto scaled = function(
      [](const Tensor& x, const std::string& how) { return how == "double" ? scale(x, 2) : x; });
  EXPECT_EQ(scaled(floats({3}), "double").data_as<float>()[0], -6);
  EXPECT_EQ(scaled(floats({3}), "once").data_as<float>()[0], -3);
  EXPECT_EQ(scaled.traces(), 2);
}

class Halved final : public LearningRateSchedule {
 public:
  double at(int64_t step) const override { return step == 0 ? 0.5 : 0.25; }
};

TEST(KerasEdges, ASchedulesOwnTypeIsEnough) {
  CpuBackend backend(1);
  const BackendScope scope(backend);
  const Variable w(floats({1}), {.name = "w"});
  Tensor one({Dtype::float32, {1}});
  one.data_as<float>()[0] = 1;
  const OptimizerRef sgd = SGD({.learning_rate = std::make_shared<Halved>()});
  sgd->apply_gradients({{one, w}});
  sgd->apply_gradients({{one, w}});
  EXPECT_FLOAT_EQ(*w.value().data_as<float>(), -3.75f);
}

}  // namespace
}  // namespace pl::keras_edges_test
