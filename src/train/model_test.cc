#include "train/model.h"

#include <gtest/gtest.h>
#include <unistd.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "data/tensor_source.h"
#include "model/layers.h"

namespace pl::model_test {
namespace {

// Two interleaved classes of points that a small network can learn.
struct Points {
  explicit Points(int64_t count, Dtype dtype = Dtype::float32)
      : x({dtype, {count, 4}}), y({Dtype::int32, {count}}) {
    for (int64_t i = 0; i < count; ++i) {
      double sum = 0;
      for (int64_t f = 0; f < 4; ++f) {
        const double value = std::sin(static_cast<double>(7 * i + 3 * f * f + 1));
        sum += f < 2 ? value : -value;
        if (dtype == Dtype::float64) {
          x.data_as<double>()[4 * i + f] = value;
        } else {
          x.data_as<float>()[4 * i + f] = static_cast<float>(value);
        }
      }
      y.data_as<int32_t>()[i] = sum > 0 ? 1 : 0;
    }
  }
  Tensor x, y;
};

Tensor rows(const Tensor& tensor, int64_t begin, int64_t count) {
  const Meta row{tensor.dtype(), tensor.shape().without_front()};
  Tensor part({row.dtype, row.shape.with_front(count)});
  std::memcpy(part.data(), tensor.data_as<char>() + begin * row.bytes(),
              static_cast<size_t>(count * row.bytes()));
  return part;
}

Sequential classifier(CompileOptions options = {.optimizer = Adam({.learning_rate = 0.01}),
                                                .loss = "sparse_categorical_crossentropy",
                                                .metrics = {"accuracy"}}) {
  Sequential model(Shape{4}, {Dense(16, {.activation = "relu"}), Dropout(0.1),
                              Dense(2, {.activation = "softmax"})});
  model.compile(options);
  return model;
}

bool same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (a[i].meta() != b[i].meta() ||
        std::memcmp(a[i].data(), b[i].data(), static_cast<size_t>(a[i].meta().bytes())) != 0)
      return false;
  return true;
}

template <class ErrorType, class Body>
std::string message_of(const Body& body) {
  try {
    body();
  } catch (const ErrorType& error) {
    return error.what();
  }
  ADD_FAILURE() << "nothing was thrown";
  return "";
}

void expect_in(const std::string& part, const std::string& text) {
  EXPECT_NE(text.find(part), std::string::npos) << text;
}

TEST(Model, FitLowersTheLossAndReportsIt) {
  const Points data(200);
  Sequential model = classifier();
  const History history = model.fit(data.x, data.y, {.epochs = 20, .verbose = 0, .threads = 1});
  const auto& loss = history.history.at("loss");
  ASSERT_EQ(loss.size(), 20u);
  EXPECT_LT(loss.back(), loss.front() / 2);
  EXPECT_GT(history.history.at("accuracy").back(), 0.9);
  EXPECT_EQ(history.steps, 20 * 7);
  EXPECT_EQ(model.iterations(), 20 * 7);
  EXPECT_EQ(history.planned_arena, history.used_arena);
  EXPECT_GT(history.measured_process, 0);
}

TEST(Model, EvaluateAndPredictAgree) {
  const Points data(150);
  Sequential model = classifier();
  model.fit(data.x, data.y, {.epochs = 3, .verbose = 0, .threads = 1});
  const Results results = model.evaluate(data.x, data.y);
  const Tensor predicted = model.predict(data.x, {.batch_size = 64});
  ASSERT_EQ(predicted.meta(), (Meta{Dtype::float32, {150, 2}}));
  double loss = 0, right = 0;
  for (int64_t i = 0; i < 150; ++i) {
    const float* p = predicted.data_as<float>() + 2 * i;
    const int32_t label = data.y.data_as<int32_t>()[i];
    loss -= std::log(static_cast<double>(p[label]));
    right += (p[1] > p[0] ? 1 : 0) == label;
  }
  EXPECT_NEAR(results.at("loss"), loss / 150, 1e-5);
  EXPECT_NEAR(results.at("accuracy"), right / 150, 1e-9);
  // The second call takes the first one's plan and must give the same bits.
  EXPECT_TRUE(same_bits({predicted}, {model.predict(data.x, {.batch_size = 64})}));
}

TEST(Model, TwoFitsEqualOneLongerFitBitForBit) {
  const Points data(100);
  for (bool shuffle : {false, true}) {
    Sequential one = classifier(), two = classifier();
    one.fit(data.x, data.y,
            {.epochs = 4, .verbose = 0, .shuffle = shuffle, .seed = 5, .threads = 1});
    for (int part = 0; part < 2; ++part) {
      two.fit(data.x, data.y,
              {.epochs = 2, .verbose = 0, .shuffle = shuffle, .seed = 5, .threads = 1});
      two.evaluate(data.x, data.y);
      two.predict(data.x);
    }
    EXPECT_EQ(one.iterations(), two.iterations());
    EXPECT_TRUE(same_bits(one.get_weights(), two.get_weights())) << "shuffle " << shuffle;
  }
}

TEST(Model, WeightsUsedBeforeFitGiveTheSameTraining) {
  const Points data(64);
  Sequential one = classifier(), two = classifier();
  two.predict(data.x, {.threads = 1});  // makes the weights alone; fit() adds the slots in place
  for (Sequential* model : {&one, &two})
    model->fit(data.x, data.y, {.epochs = 2, .verbose = 0, .threads = 1});
  EXPECT_TRUE(same_bits(one.get_weights(), two.get_weights()));
}

TEST(Model, RecompilingKeepsWeightsAndResetsTheOptimizer) {
  const Points data(64);
  Sequential model = classifier();
  model.fit(data.x, data.y, {.epochs = 2, .verbose = 0, .threads = 1});
  const Tensors trained = model.get_weights();
  model.compile({.optimizer = "sgd", .loss = "sparse_categorical_crossentropy"});
  EXPECT_EQ(model.iterations(), 0);
  EXPECT_TRUE(same_bits(trained, model.get_weights()));
  model.fit(data.x, data.y, {.verbose = 0});
  // A fresh model with these weights and a fresh Adam goes the same way as a recompiled one.
  Sequential fresh = classifier();
  fresh.set_weights(model.get_weights());
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"}});
  for (Sequential* each : {&model, &fresh}) each->fit(data.x, data.y, {.verbose = 0, .threads = 1});
  EXPECT_TRUE(same_bits(model.get_weights(), fresh.get_weights()));
}

TEST(Model, ValidationSplitTakesTheLastSamples) {
  const Points data(100);
  Sequential split = classifier(), given = classifier();
  const History a = split.fit(data.x, data.y,
                              {.epochs = 2, .verbose = 0, .validation_split = 0.25, .threads = 1});
  const Tensor x_last = rows(data.x, 75, 25), y_last = rows(data.y, 75, 25);
  const History b =
      given.fit(rows(data.x, 0, 75), rows(data.y, 0, 75),
                {.epochs = 2, .verbose = 0, .validation_data = {x_last, y_last}, .threads = 1});
  EXPECT_EQ(a.history, b.history);
  EXPECT_TRUE(same_bits(split.get_weights(), given.get_weights()));
  EXPECT_EQ(a.history.at("val_loss").back(), split.evaluate(x_last, y_last).at("loss"));
}

TEST(Model, TakesASource) {
  const Points data(90);
  const auto source = tensor_source(data.x, data.y);
  Sequential one = classifier(), two = classifier();
  one.fit(data.x, data.y, {.verbose = 0, .threads = 1});
  two.fit(*source, {.verbose = 0, .validation_data = *source, .threads = 1});
  EXPECT_TRUE(same_bits(one.get_weights(), two.get_weights()));
  EXPECT_EQ(one.evaluate(data.x, data.y), two.evaluate(*source));
}

TEST(Model, SavedWeightsReproducePredictions) {
  const Points data(70);
  const std::string path = std::filesystem::temp_directory_path() /
                           ("plimsoll_model_" + std::to_string(getpid()) + ".safetensors");
  Sequential model = classifier();
  model.fit(data.x, data.y, {.epochs = 2, .verbose = 0, .threads = 1});
  model.save_weights(path);
  Sequential other = classifier();
  other.load_weights(path);
  EXPECT_TRUE(same_bits({model.predict(data.x)}, {other.predict(data.x)}));
  EXPECT_EQ(other.weights()[0].path, "dense/kernel");
  Sequential wider(Shape{4}, {Dense(17), Dense(2)});
  expect_in("dense/kernel: expected float32 (4, 17), received float32 (4, 16)",
            message_of<DataError>([&] { wider.load_weights(path); }));
  std::filesystem::remove(path);
}

// One step of SGD with learning rate 1 moves each weight by its gradient.
TEST(Model, SharedLayerGetsTheSumOfItsGradients) {
  Tensor x({Dtype::float64, {5, 3}}), y({Dtype::float64, {5}});  // (5,) stands for (5, 1)
  for (int i = 0; i < 15; ++i) x.data_as<double>()[i] = std::cos(i * 1.7);
  for (int i = 0; i < 5; ++i) y.data_as<double>()[i] = std::sin(i * 0.9);
  const Symbolic input = Input({3});
  const LayerRef shared = Dense(3, {.activation = "tanh", .name = "shared"});
  Model model(input, Dense(1)(shared(shared(input))));
  model.compile({.optimizer = SGD({.learning_rate = 1}), .loss = "mse", .dtype = Dtype::float64});
  ASSERT_EQ(model.weights().size(), 4u);
  EXPECT_EQ(model.weights()[0].path, "shared/kernel");
  const Tensors before = model.get_weights();
  model.fit(x, y, {.batch_size = 5, .verbose = 0, .threads = 1});
  const Tensors after = model.get_weights();
  auto loss_at = [&](size_t weight, int64_t element, double delta) {
    model.set_weights(before);
    Tensors moved = model.get_weights();
    moved[weight].data_as<double>()[element] += delta;
    model.set_weights(moved);
    return model.evaluate(x, y).at("loss");
  };
  constexpr double kDelta = 1e-6;
  for (size_t w = 0; w < before.size(); ++w)
    for (int64_t e = 0; e < before[w].meta().elements(); ++e) {
      const double gradient = before[w].data_as<double>()[e] - after[w].data_as<double>()[e];
      const double expected = (loss_at(w, e, kDelta) - loss_at(w, e, -kDelta)) / (2 * kDelta);
      EXPECT_NEAR(gradient, expected, 1e-8) << model.weights()[w].path << " " << e;
    }
}

TEST(Model, Float64TrainsInFloat64) {
  const Points data(64, Dtype::float64);
  Sequential model({Dense(8, {.activation = "tanh"}), Dense(2, {.activation = "softmax"})});
  model.compile(
      {.optimizer = "adam", .loss = "sparse_categorical_crossentropy", .dtype = Dtype::float64});
  const History history = model.fit(data.x, data.y, {.epochs = 5, .verbose = 0, .threads = 1});
  EXPECT_LT(history.history.at("loss").back(), history.history.at("loss").front());
  EXPECT_EQ(model.get_weights()[0].dtype(), Dtype::float64);
  EXPECT_EQ(model.predict(data.x).dtype(), Dtype::float64);
}

TEST(Model, BytesAreScaledAndTheScaleIsRemembered) {
  Tensor x({Dtype::uint8, {40, 3, 3}}), scaled({Dtype::float32, {40, 3, 3, 1}});
  Tensor y({Dtype::uint8, {40, 1}});
  for (int i = 0; i < 360; ++i) {
    x.data_as<uint8_t>()[i] = static_cast<uint8_t>(i * 37);
    scaled.data_as<float>()[i] = static_cast<float>(x.data_as<uint8_t>()[i]) * 0.25f;
  }
  for (int i = 0; i < 40; ++i) y.data_as<uint8_t>()[i] = static_cast<uint8_t>(i % 3);
  auto made = [] {
    Sequential model(Shape{3, 3, 1}, {Conv2D(4, 2), Flatten(), Dense(3)});
    model.compile({.optimizer = Adam(), .loss = Loss{"sparse_categorical_crossentropy", true}});
    return model;
  };
  Sequential bytes = made(), floats = made();
  // A missing last dimension of 1 is added, as Keras does.
  bytes.fit(x, y, {.verbose = 0, .threads = 1, .x_scale = 0.25});
  floats.fit(scaled, y, {.verbose = 0, .threads = 1});
  EXPECT_TRUE(same_bits(bytes.get_weights(), floats.get_weights()));
  EXPECT_EQ(bytes.evaluate(x, y), floats.evaluate(scaled, y));
}

TEST(Model, ErrorsSayWhatIsExpected) {
  const Points data(20);
  Sequential model({Dense(16, {.name = "first"}), Dense(2, {.activation = "softmax"})});
  expect_in("expected compile() before it",
            message_of<UserError>([&] { model.fit(data.x, data.y); }));
  expect_in("optimizer: expected one of adadelta, ",
            message_of<UserError>([&] { model.compile({.optimizer = "adm", .loss = "mse"}); }));
  expect_in("loss: expected one",
            message_of<UserError>([&] { model.compile({.optimizer = "sgd"}); }));
  expect_in("expected an input shape", message_of<UserError>([&] { model.get_weights(); }));
  model.compile({.optimizer = "sgd", .loss = "sparse_categorical_crossentropy"});
  model.build(Shape{4});
  Tensor wrong({Dtype::float32, {20, 5}});
  expect_in("first: expected samples of shape (4,), received (5,)",
            message_of<UserError>([&] { model.fit(wrong, data.y, {.verbose = 0}); }));
  Tensor wide({Dtype::float32, {20, 3}});
  expect_in("sparse_categorical_crossentropy: expected targets of int32 ()",
            message_of<UserError>([&] { model.fit(data.x, wide, {.verbose = 0}); }));
  Tensor few({Dtype::int32, {19}});
  std::memset(few.data(), 0, 19 * 4);
  expect_in("as many targets as samples",
            message_of<DataError>([&] { model.fit(data.x, few, {.verbose = 0}); }));
  Tensor labels = rows(data.y, 0, 20);
  labels.data_as<int32_t>()[7] = 2;
  expect_in("from 0 to 1, received 2 in sample ",
            message_of<DataError>([&] { model.fit(data.x, labels, {.verbose = 0}); }));
  EXPECT_EQ(model.iterations(), 0);
  expect_in("validation_split", message_of<UserError>([&] {
              model.fit(data.x, data.y, {.verbose = 0, .validation_split = 1.5});
            }));
  expect_in("expected a size such as 4GiB",
            message_of<UserError>([&] { model.fit(data.x, data.y, {.memory = "lots"}); }));
}

TEST(Model, StopsAtALossThatIsNotFinite) {
  const Points data(32);
  Sequential model(Shape{4}, {Dense(1)});
  model.compile({.optimizer = SGD({.learning_rate = 1e30}), .loss = "mse"});
  Tensor y({Dtype::float32, {32, 1}});
  std::memset(y.data(), 0, 32 * 4);
  const std::string text = message_of<BackendError>(
      [&] { model.fit(data.x, y, {.epochs = 50, .verbose = 0, .threads = 1}); });
  expect_in("the loss is not finite: loss is the first layer whose output has an infinity", text);
  expect_in("; lower the optimizer's learning_rate", text);
  EXPECT_GT(model.iterations(), 0);
  EXPECT_LT(model.iterations(), 50);
}

}  // namespace
}  // namespace pl::model_test
