// Misuse of the C++ face ends in a pl::Error with a message, never in a crash or in silence.
#include <gtest/gtest.h>

#include <cstring>
#include <functional>
#include <limits>

#include "base/error.h"
#include "data/tensor_source.h"
#include "model/layers.h"
#include "tests/messages.h"
#include "train/model.h"

namespace pl::model_misuse_test {
namespace {

struct Samples {
  Tensor x{Meta{Dtype::float32, Shape{8, 3}}};
  Tensor y{Meta{Dtype::int32, Shape{8}}};
  Samples() {
    for (int i = 0; i < 24; ++i) x.data_as<float>()[i] = static_cast<float>(i % 5) - 2;
    for (int i = 0; i < 8; ++i) y.data_as<int32_t>()[i] = i % 2;
  }
};

Sequential small() {
  Sequential model({Dense(2, {.activation = "softmax"})});
  model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
  return model;
}

TEST(Misuse, AMovedFromModelSaysSo) {
  const Samples data;
  Sequential first = small();
  Sequential second = std::move(first);
  EXPECT_THROW(first.fit(data.x, data.y, {.verbose = 0}), UserError);
  EXPECT_THROW(first.summary(), UserError);
  EXPECT_EQ(first.iterations(), 0);
  EXPECT_EQ(second.fit(data.x, data.y, {.verbose = 0, .threads = 1}).steps, 1);
}

TEST(Misuse, NullsAreRefused) {
  const Samples data;
  EXPECT_THROW(Sequential({LayerRef(nullptr)}), UserError);
  Sequential model = small();
  const char* none = nullptr;
  EXPECT_THROW(model.fit(data.x, data.y, {.memory = none}), UserError);
  EXPECT_THROW(model.compile({.optimizer = none, .loss = "mse"}), UserError);
  EXPECT_THROW(model.compile({.optimizer = Adam(), .loss = none}), UserError);
}

TEST(Misuse, ValidationDataNeedBothHalves) {
  const Samples data;
  Sequential model = small();
  const auto lone = tensor_source(data.x);
  EXPECT_THROW(model.fit(data.x, data.y, {.verbose = 0, .validation_data = *lone}), UserError);
  EXPECT_THROW(model.fit(data.x, data.y, {.verbose = 0, .validation_data = {Tensor(), data.y}}),
               Error);
}

TEST(Misuse, AnInputAmongTheOutputsIsNotTrained) {
  const Samples data;
  const Symbolic a = Input(Shape{3});
  Model model(std::vector<Symbolic>{a}, {a, Dense(2, {.activation = "softmax"})(a)});
  model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
  EXPECT_THROW(model.fit(data.x, data.y, {.verbose = 0}), UserError);
}

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Misuse, NaNInTheDataEndsTrainingAndNamesTheSample) {
  Samples data;
  data.x.data_as<float>()[4] = std::numeric_limits<float>::quiet_NaN();
  Sequential model({Dense(4, {.activation = "relu"}), Dense(2, {.activation = "softmax"})});
  model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
  EXPECT_THROW(model.fit(data.x, data.y, {.verbose = 0, .threads = 1}), BackendError);
  expect_in("[fit] step 1: the loss is not finite: x of the data is NaN in sample 1",
            test::message_of([&] { model.fit(data.x, data.y, {.verbose = 0, .threads = 1}); }));
}

TEST(Misuse, ALossThatIsNaNNamesTheStepAndTheFirstLayer) {
  const Samples data;
  Sequential model(Shape{3}, {Dense(4, {.name = "before"}), Dense(4, {.name = "overflows"}),
                              Dense(2, {.activation = "softmax", .name = "head"})});
  model.compile({.optimizer = SGD(), .loss = "sparse_categorical_crossentropy"});
  Tensors weights = model.get_weights();
  for (size_t w : {size_t{0}, size_t{2}})
    for (int64_t i = 0; i < weights[w].meta().elements(); ++i)
      weights[w].data_as<float>()[i] = (w == 0 ? 1e20f : 1e30f) * (i % 2 == 0 ? 1 : 2);
  model.set_weights(weights);
  for (int64_t split : {1, 2}) {
    const std::string text = test::message_of(
        [&] { model.fit(data.x, data.y, {.verbose = 0, .split = split, .threads = 1}); });
    expect_in("[fit] step 1: the loss is not finite: overflows is the first layer", text);
    expect_in("lower the optimizer's learning_rate", text);
  }
  // The step that failed has not touched them.
  const Tensors after = model.get_weights();
  for (size_t w = 0; w < weights.size(); ++w)
    EXPECT_EQ(std::memcmp(after[w].data(), weights[w].data(),
                          static_cast<size_t>(weights[w].meta().bytes())),
              0);
}

TEST(Misuse, ALabelOutOfRangeNamesItsSample) {
  Samples data;
  data.y.data_as<int32_t>()[5] = 7;
  Sequential model = small();
  expect_in("from 0 to 1, received 7 in sample 5; all are 0 to 7",
            test::message_of([&] { model.fit(data.x, data.y, {.verbose = 0}); }));
}

TEST(Misuse, AModelThatIsNotBuiltSaysHow) {
  Sequential model({Dense(2)});
  expect_in("[summary] sequential: expected an input shape; give it first",
            test::message_of([&] { model.summary(); }));
  expect_in("[fit] sequential: expected compile() before it",
            test::message_of([&] { model.fit(Samples().x, Samples().y); }));
}

TEST(Misuse, AWrongShapeInTheMiddleNamesTheLayersPath) {
  std::vector<LayerRef> layers;
  for (int i = 0; i < 6; ++i) layers.push_back(Activation("relu"));
  layers.push_back(Conv2D(4, 3, {.name = "stage2/conv1"}));
  for (int i = 0; i < 13; ++i) layers.push_back(Activation("relu"));
  Sequential model(layers);
  model.set_name("model");
  expect_in("[build] model/stage2/conv1: expected",
            test::message_of([&] { model.build(Shape{10}); }));
}

}  // namespace
}  // namespace pl::model_misuse_test
