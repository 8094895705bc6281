// Misuse of the C++ face ends in a pl::Error with a message, never in a crash or in silence.
#include <gtest/gtest.h>

#include "base/error.h"
#include "data/tensor_source.h"
#include "model/layers.h"
#include "train/model.h"

namespace pl {
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
  EXPECT_THROW(model.fit(data.x, data.y, {.validation_data = *lone, .verbose = 0}), UserError);
  EXPECT_THROW(model.fit(data.x, data.y, {.validation_data = {Tensor(), data.y}, .verbose = 0}),
               Error);
}

TEST(Misuse, AnInputAmongTheOutputsIsNotTrained) {
  const Samples data;
  const Symbolic a = Input(Shape{3});
  Model model(std::vector<Symbolic>{a}, {a, Dense(2, {.activation = "softmax"})(a)});
  model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
  EXPECT_THROW(model.fit(data.x, data.y, {.verbose = 0}), UserError);
}

TEST(Misuse, NaNInTheDataEndsTraining) {
  Samples data;
  data.x.data_as<float>()[4] = std::numeric_limits<float>::quiet_NaN();
  Sequential model({Dense(4, {.activation = "relu"}), Dense(2, {.activation = "softmax"})});
  model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
  EXPECT_THROW(model.fit(data.x, data.y, {.verbose = 0, .threads = 1}), BackendError);
}

}  // namespace
}  // namespace pl
