// Weights, losses of the user's own, several ends, models as layers and frozen layers, through the
// C++ face.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "model/layers.h"
#include "model/losses.h"
#include "model/metrics.h"
#include "op/functions.h"
#include "tests/counter_hash.h"
#include "tests/messages.h"
#include "train/model.h"

namespace pl::heads_test {
namespace {

using test::hashed_integers;
using test::hashed_reals;

constexpr Dtype kWide = Dtype::float64;

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

struct Samples {
  explicit Samples(Dim count = 12)
      : x(hashed_reals(1, {kWide, {count, 4}}, 0)),
        numbers(hashed_reals(2, {kWide, {count, 3}}, 0)),
        labels(hashed_integers(3, {count}, 3)),
        weights(hashed_reals(4, {kWide, {count}}, -1, 0.75f)) {}
  Tensor x, numbers, labels, weights;
};

const FitOptions kFit{.batch_size = 6, .epochs = 2, .verbose = 0, .shuffle = false, .threads = 1};

Sequential network(const char* activation = "linear") {
  return Sequential(Shape{4},
                    {Dense(5, {.activation = "tanh"}), Dense(3, {.activation = activation})});
}

std::vector<double> losses_of(const LossChoices& loss, const Tensor& y, FitOptions options,
                              const char* activation = "linear") {
  const Samples data;
  Sequential model = network(activation);
  model.compile({.optimizer = SGD({.learning_rate = 0.1}), .loss = loss, .dtype = kWide});
  return model.fit(data.x, y, options).history.at("loss");
}

void expect_same(const std::vector<double>& a, const std::vector<double>& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-12 * std::fabs(b[i])) << i;
}

// What belongs to the whole batch (the sum of weights, the labels that count, whether targets are 0
// and 1) is the batch's, not a part's.
TEST(Heads, APartOfTheBatchHasTheWholeBatchsDivisor) {
  const Samples data;
  Tensor binary({kWide, {12, 3}});
  for (int i = 0; i < 36; ++i) binary.data_as<double>()[i] = i < 20 ? 1 : i % 2;
  struct Case {
    Loss loss;
    Tensor y;
    const char* activation;
  };
  const std::vector<Case> cases{
      {losses::MeanSquaredError({.reduction = "mean_with_sample_weight"}), data.numbers, "linear"},
      {losses::SparseCategoricalCrossentropy({.ignore_class = 1}), data.labels, "softmax"},
      {losses::SparseCategoricalCrossentropy(
           {.from_logits = true, .ignore_class = 2, .reduction = "mean_with_sample_weight"}),
       data.labels, "linear"},
      {losses::Hinge(), binary, "linear"},
      {losses::BinaryCrossentropy(), binary, "sigmoid"},
  };
  for (const Case& c : cases) {
    FitOptions whole = kFit, parts = kFit;
    whole.split = 1;
    parts.split = 3;
    expect_same(losses_of(c.loss, c.y, parts, c.activation),
                losses_of(c.loss, c.y, whole, c.activation));
    whole.sample_weight = parts.sample_weight = data.weights;
    expect_same(losses_of(c.loss, c.y, parts, c.activation),
                losses_of(c.loss, c.y, whole, c.activation));
  }
}

TEST(Heads, AFunctionOfTheUsersIsALoss) {
  const Samples data;
  const auto own = [](const Tensor& y, const Tensor& p) {
    return reduce_mean(square(subtract(y, p)), {-1});
  };
  expect_same(losses_of(own, data.numbers, kFit), losses_of("mse", data.numbers, kFit));
}

TEST(Heads, AWeightOfZeroLeavesASampleOut) {
  const Samples data;
  Tensor weights({kWide, {12}});
  for (int i = 0; i < 12; ++i) weights.data_as<double>()[i] = i < 6 ? 1 : 0;
  FitOptions options = kFit;
  options.batch_size = 12;
  options.sample_weight = weights;
  Sequential a = network(), b = network();
  for (Sequential* model : {&a, &b})
    model->compile({.optimizer = SGD(),
                    .loss = losses::MeanSquaredError({.reduction = "mean_with_sample_weight"}),
                    .dtype = kWide});
  a.fit(data.x, data.numbers, options);
  Tensor x({kWide, {6, 4}}), y({kWide, {6, 3}});
  std::memcpy(x.data(), data.x.data(), static_cast<size_t>(x.meta().bytes()));
  std::memcpy(y.data(), data.numbers.data(), static_cast<size_t>(y.meta().bytes()));
  b.fit(x, y, kFit);
  const Tensors left = a.get_weights(), right = b.get_weights();
  for (size_t w = 0; w < left.size(); ++w)
    for (int64_t i = 0; i < left[w].meta().elements(); ++i)
      EXPECT_NEAR(left[w].data_as<double>()[i], right[w].data_as<double>()[i], 1e-14);
}

TEST(Heads, LogsNameOutputsAndCountRepeatedMetrics) {
  const Samples data;
  const Symbolic x = Input({4});
  Model model(std::vector<Symbolic>{x},
              {Dense(3, {.name = "one"})(x), Dense(3, {.name = "two"})(x)});
  model.compile({.optimizer = SGD(),
                 .loss = "mse",
                 .metrics = {{"two", {"mae", metrics::of_loss(losses::MeanSquaredError(), "mae")}}},
                 .weighted_metrics = {{"two", {"mae"}}},
                 .dtype = kWide});
  const Results results = model.evaluate(data.x, {data.numbers, data.numbers});
  std::string names;
  for (const auto& [name, value] : results) names += name + " ";
  EXPECT_EQ(names, "loss one_loss two_loss two_mae two_mae_1 two_weighted_mae ");
  EXPECT_NEAR(results.at("loss"), results.at("one_loss") + results.at("two_loss"), 1e-12);
  EXPECT_NEAR(results.at("two_mae_1"), results.at("two_loss"), 1e-12);
  EXPECT_EQ(results.at("two_mae"), results.at("two_weighted_mae"));
  const Tensors both = model.predict_all(data.x);
  ASSERT_EQ(both.size(), 2u);
  EXPECT_EQ(both[1].meta(), (Meta{kWide, {12, 3}}));
  expect_in("predict_all", test::message_of([&] { model.predict(data.x); }));
}

// ---- models as layers

TEST(Heads, AModelIsALayerOfAnother) {
  const Samples data;
  Sequential inner(Shape{4}, {Dense(5, {.activation = "tanh"}), Dense(2)});
  inner.set_name("inner");
  inner.compile({.optimizer = SGD(), .loss = "mse", .dtype = kWide});
  const Tensors before = inner.get_weights();
  Sequential outer(Shape{4}, {inner, Dense(3)});
  outer.compile({.optimizer = SGD(), .loss = "mse", .dtype = kWide});
  std::string paths;
  for (const WeightInfo& weight : outer.weights()) paths += weight.path + " ";
  EXPECT_EQ(paths,
            "inner/dense/kernel inner/dense/bias inner/dense_1/kernel inner/dense_1/bias "
            "dense/kernel dense/bias ");
  const Tensors after = outer.get_weights();
  for (size_t w = 0; w < before.size(); ++w)
    EXPECT_EQ(std::memcmp(before[w].data(), after[w].data(),
                          static_cast<size_t>(before[w].meta().bytes())),
              0);
  EXPECT_EQ(outer.get_layer("inner/dense_1").get(), inner.get_layer("dense_1").get());
  expect_in("inner/dense, inner/dense_1, dense",
            test::message_of([&] { outer.get_layer("dense_2"); }));
  outer.fit(data.x, data.numbers, kFit);
  expect_in("inner/dense_1 (Dense)", outer.summary());
  // Functionally, twice: one set of weights.
  const Symbolic a = Input({4}), b = Input({4});
  const Model twin(std::vector<Symbolic>{a, b}, {Add()({inner(a), inner(b)})});
  EXPECT_EQ(twin.count_params(), inner.count_params());
}

TEST(Heads, AnErrorInAModelsLayerNamesItsPath) {
  Sequential stage(Shape{8, 8, 4},
                   {Conv2D(6, 3, {.name = "conv0"}), Conv2D(6, 3, {.name = "conv1"})});
  stage.set_name("stage2");
  const std::string text = test::message_of([&] {
    Sequential model(Shape{4, 4, 4}, {Activation("relu"), stage, Flatten()});
  });
  expect_in("sequential/stage2/conv1: ", text);
}

// ---- frozen layers

TEST(Heads, AFrozenLayerHasNeitherGradientsNorState) {
  auto make = [](bool frozen) {
    Sequential model(Shape{64}, {Dense(256, {.activation = "relu", .name = "base"}),
                                 Dense(4, {.activation = "softmax", .name = "head"})});
    model.get_layer("base")->trainable = !frozen;
    model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
    return model;
  };
  Sequential whole = make(false), frozen = make(true);
  const PlanReport a = whole.plan(), b = frozen.plan();
  const Bytes base = (64 * 256 + 256) * 4;
  const auto gradients = static_cast<size_t>(Category::gradients);
  EXPECT_EQ(a.persistent - b.persistent, 2 * base);  // Adam's two slots
  EXPECT_LT(b.arena + 2 * base, a.arena);
  EXPECT_LT(b.categories[gradients], a.categories[gradients]);
  const Tensor x = hashed_reals(1, {Dtype::float32, {32, 64}}, 0);
  const Tensor y = hashed_integers(2, {32}, 4);
  const Tensors before = frozen.get_weights();
  frozen.fit(x, y, {.epochs = 2, .verbose = 0, .threads = 1});
  const Tensors after = frozen.get_weights();
  auto same = [&](size_t w) {
    return std::memcmp(before[w].data(), after[w].data(),
                       static_cast<size_t>(before[w].meta().bytes())) == 0;
  };
  EXPECT_TRUE(same(0) && same(1));
  EXPECT_FALSE(same(2) || same(3));
  // It thaws when the model is compiled again, not before.
  frozen.get_layer("base")->trainable = true;
  frozen.fit(x, y, {.verbose = 0, .threads = 1});
  EXPECT_EQ(std::memcmp(before[0].data(), frozen.get_weights()[0].data(),
                        static_cast<size_t>(before[0].meta().bytes())),
            0);
  frozen.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
  frozen.fit(x, y, {.verbose = 0, .threads = 1});
  EXPECT_NE(std::memcmp(before[0].data(), frozen.get_weights()[0].data(),
                        static_cast<size_t>(before[0].meta().bytes())),
            0);
}

TEST(Heads, AFrozenBatchNormalizationRunsAsInInference) {
  const Samples data;
  Sequential model(Shape{4}, {BatchNormalization({.name = "bn"}), Dense(3)});
  model.get_layer("bn")->trainable = false;
  model.compile({.optimizer = SGD({.learning_rate = 0}), .loss = "mse", .dtype = kWide});
  const Tensors before = model.get_weights();
  const double trained = model.fit(data.x, data.numbers, kFit).history.at("loss").back();
  EXPECT_NEAR(trained, model.evaluate(data.x, data.numbers).at("loss"), 1e-12);
  const Tensors after = model.get_weights();
  for (size_t w = 0; w < 4; ++w)
    EXPECT_EQ(std::memcmp(before[w].data(), after[w].data(),
                          static_cast<size_t>(before[w].meta().bytes())),
              0)
        << w;
}

// ---- what is refused

TEST(Heads, WhatDoesNotBelongTogetherIsRefusedByName) {
  const Samples data;
  const Symbolic a = Input({4}, "a"), b = Input({4}, "b");
  Model model({a, b}, {Dense(3, {.name = "one"})(a), Dense(3, {.name = "two"})(b)});
  expect_in("metrics: expected lists by the outputs' names", test::message_of([&] {
              model.compile({.optimizer = SGD(), .loss = "mse", .metrics = {"mae"}});
            }));
  expect_in("loss: expected names of outputs (one, two), received 'three'", test::message_of([&] {
              model.compile({.optimizer = SGD(), .loss = {{"three", "mse"}}});
            }));
  expect_in("loss: expected one for each of 2 outputs, received 3", test::message_of([&] {
              model.compile({.optimizer = SGD(), .loss = {"mse", "mse", "mse"}});
            }));
  expect_in("huber: expected a reduction to one number", test::message_of([&] {
              model.compile({.optimizer = SGD(), .loss = losses::Huber({.reduction = "none"})});
            }));
  model.compile({.optimizer = SGD(), .loss = "mse", .dtype = kWide});
  expect_in("expected samples for 2 inputs, received 1", test::message_of([&] {
              model.fit(data.x, {data.numbers, data.numbers}, kFit);
            }));
  expect_in("expected targets for 2 outputs, received 1", test::message_of([&] {
              model.fit({data.x, data.x}, data.numbers, kFit);
            }));
  expect_in("x: expected values for a, b, received a, c", test::message_of([&] {
              model.fit({{"a", data.x}, {"c", data.x}}, {data.numbers, data.numbers}, kFit);
            }));
  expect_in("expected targets of float64 (3,) per sample for output two, received int32 ()",
            test::message_of([&] {
              model.fit({data.x, data.x}, {data.numbers, data.labels}, kFit);
            }));
  FitOptions options = kFit;
  options.class_weight = {{0, 2.0}};
  expect_in("class_weight: expected a model with one output", test::message_of([&] {
              model.fit({data.x, data.x}, {data.numbers, data.numbers}, options);
            }));
  options.sample_weight = data.weights;
  Sequential single = network();
  single.compile({.optimizer = SGD(), .loss = "mse", .dtype = kWide});
  expect_in("class_weight: expected samples without weights of their own",
            test::message_of([&] { single.fit(data.x, data.numbers, options); }));
}

}  // namespace
}  // namespace pl::heads_test
