// What people who come from Keras write, in their words: operators on symbols, values and variables
// in losses and layers, layers made of layers, feature extractors, trackers.
#include <gtest/gtest.h>

#include <cmath>
#include <filesystem>

#include "plimsoll.h"
#include "tests/messages.h"
#include "tests/patterns.h"

namespace pl::keras_user_test {
namespace {

using test::message_of;
using test::pattern;
using test::same_bits;

const FitOptions kFit{.batch_size = 8, .epochs = 3, .verbose = 0, .shuffle = false, .threads = 1};

Sequential regressor() {
  return Sequential(Shape{4}, {Dense(6, {.activation = "tanh"}), Dense(2)});
}

void expect_same_weights(Model& a, Model& b) {
  const Tensors x = a.get_weights(), y = b.get_weights();
  ASSERT_EQ(x.size(), y.size());
  for (size_t i = 0; i < x.size(); ++i) EXPECT_TRUE(same_bits(x[i], y[i])) << i;
}

TEST(KerasUser, AFunctionalModelIsWrittenWithOperators) {
  const Symbolic x = Input({4}), h = Dense(4, {.activation = "tanh"})(x);
  const Symbolic gate = ops::sigmoid(2.0 * h - 1);
  Model model(x, Dense(2)((x * gate + h / 2) * constant({1, 2, 3, 4})));
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor data = pattern({24, 4}, 1), target = pattern({24, 2}, 2);
  const History history = model.fit(data, target, kFit);
  EXPECT_LT(history.history.at("loss").back(), history.history.at("loss").front());
  // The same with layers and a Lambda.
  const Symbolic y = Input({4}), g = Dense(4, {.activation = "tanh"})(y);
  const auto rest = Lambda([](const Tensors& in) {
    const Tensor sum = add(multiply(in[0], sigmoid(scale(in[1], 2, -1))), scale(in[1], 0.5));
    return multiply(sum, constant({1, 2, 3, 4}));
  });
  Model other(y, Dense(2)(rest({y, g})));
  other.compile({.optimizer = "sgd", .loss = "mse"});
  other.fit(data, target, kFit);
  expect_same_weights(model, other);
  EXPECT_EQ(model.get_layer("multiply_1")->kind(), std::string("Multiply"));
}

// Weights of classes in a loss, a threshold in a metric: values from outside.
TEST(KerasUser, LossesAndMetricsMayUseValuesFromOutside) {
  const Tensor scales = constant({1, 3});
  const Variable limit(constant(0.5), {.name = "limit", .trainable = false});
  auto weighted = [=](const Tensor& y_true, const Tensor& y_pred) {
    return ops::mean(ops::square(y_true - y_pred) * scales, -1);
  };
  const Metric within(
      "within",
      [=](const Tensor& y_true, const Tensor& y_pred, const Tensor&) {
        const Tensor near = ops::abs(y_true - y_pred) < limit;
        return Tensors{ops::sum(ops::cast(near, Dtype::float32))};
      },
      [](std::span<const double> state) { return state[1] / (2 * state[0]); });
  Sequential model = regressor();
  model.compile({.optimizer = "sgd", .loss = weighted, .metrics = {within}});
  const Tensor x = pattern({20, 4}, 1), y = pattern({20, 2}, 2);
  model.fit(x, y, kFit);
  // As written out in ops alone.
  Sequential other = regressor();
  other.compile({.optimizer = "sgd", .loss = [](const Tensor& y_true, const Tensor& y_pred) {
                   const Tensor d = subtract(y_true, y_pred);
                   const Tensor w = concatenate({fill({1}, 1), fill({1}, 3)}, 0);
                   return reduce_mean(multiply(multiply(d, d), w), {-1});
                 }});
  other.fit(x, y, kFit);
  expect_same_weights(model, other);
  // A variable is read anew: all are within a limit that is large enough.
  const Runtime runtime({.memory = "16MiB", .threads = 1});
  limit.assign(constant(100.0));
  EXPECT_EQ(model.evaluate(x, y)["within"], 1);
  limit.assign(constant(0.0));
  EXPECT_EQ(model.evaluate(x, y)["within"], 0);
}

// The model's own weights in its loss have a gradient there.
TEST(KerasUser, ALossMayReadTheModelsWeights) {
  Sequential model = regressor(), other(Shape{4}, {Dense(6, {.activation = "tanh"}),
                                                   Dense(2, {.kernel_regularizer = "l2:0.1"})});
  const std::vector<Variable> weights = model.variables();
  model.compile({.optimizer = "sgd", .loss = [=](const Tensor& y_true, const Tensor& y_pred) {
                   return ops::mean(ops::square(y_true - y_pred), -1) +
                          0.1 * ops::sum(ops::square(weights[2]));
                 }});
  other.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor x = pattern({16, 4}, 1), y = pattern({16, 2}, 2);
  other.set_weights(model.get_weights());
  const double ours = model.fit(x, y, kFit).history.at("loss").back();
  EXPECT_NEAR(ours, other.fit(x, y, kFit).history.at("loss").back(), 1e-5);
}

TEST(KerasUser, AVariableThatTrainingWouldLeaveIsRefusedInLayers) {
  const Variable w(constant({1, 2, 3, 4}), {.name = "temperature"});
  const std::string text =
      "temperature: expected weights in call(), received a trainable variable that is none, which "
      "training would leave as it is; make it a weight with add_weight, or {.trainable = false}";
  EXPECT_EQ(message_of([&] {
              Sequential(Shape{4}, {Lambda([w](const Tensors& in) { return in[0] * w; }, "heat")});
            }),
            "[build] sequential/heat: " + text);
  const Variable fixed(constant({1, 2, 3, 4}), {.name = "fixed", .trainable = false});
  Sequential model(Shape{4}, {Lambda([fixed](const Tensors& in) { return in[0] * fixed; })});
  const Tensor x = pattern({3, 4}, 1);
  const Runtime runtime({.memory = "16MiB", .threads = 1});
  const Tensor once = model.predict(x);
  EXPECT_EQ(once.data_as<float>()[3], x.data_as<float>()[3] * 4);
  fixed.assign(constant({2, 2, 2, 2}));
  EXPECT_EQ(model.predict(x).data_as<float>()[3], x.data_as<float>()[3] * 2);
}

TEST(KerasUser, ALossWithoutThePredictionIsRefused) {
  for (bool eager : {false, true}) {
    Sequential model = regressor();
    model.compile({.optimizer = "sgd",
                   .loss = [](const Tensor& y_true,
                              const Tensor&) { return ops::mean(ops::square(y_true), -1); },
                   .run_eagerly = eager});
    EXPECT_EQ(message_of([&] {
                model.fit(pattern({8, 4}, 1), pattern({8, 2}, 2), kFit);
              }),
              "[fit] loss: expected a loss that depends on the model's trainable weights, received "
              "one with no gradient for any; compute it of y_pred");
  }
}

// A residual block: layers in a layer, and a weight of its own.
class Block : public Layer {
 public:
  explicit Block(int64_t units, std::string given = "")
      : inner(Dense(units, {.activation = "tanh", .kernel_regularizer = "l2:0.01"})),
        outer(Dense(units)),
        drop(Dropout(0.25)) {
    name = std::move(given);
  }
  const char* kind() const override { return "Block"; }
  Shape build(const std::vector<Shape>& in) override {
    add_weight("gain", {in[0].back()}, "ones");
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    return call.in[0] * call.weights[0] + drop(outer(inner(call.in[0])));
  }
  LayerRef inner, outer, drop;
};
LayerRef block(int64_t units, const std::string& name = "") {
  return LayerRef(std::make_shared<Block>(units, name));
}

TEST(KerasUser, LayersMayBeMadeOfLayers) {
  Sequential model(Shape{4}, {block(4, "first"), block(4), Dense(2)});
  std::vector<std::string> paths;
  for (const WeightInfo& weight : model.weights()) paths.push_back(weight.path);
  EXPECT_EQ(paths,
            (std::vector<std::string>{
                "first/gain", "first/dense/kernel", "first/dense/bias", "first/dense_1/kernel",
                "first/dense_1/bias", "block/gain", "block/dense/kernel", "block/dense/bias",
                "block/dense_1/kernel", "block/dense_1/bias", "dense/kernel", "dense/bias"}));
  model.get_layer("first/dense")->trainable = false;
  model.compile({.optimizer = "adam", .loss = "mse"});
  const Tensors before = model.get_weights();
  const Tensor x = pattern({24, 4}, 1), y = pattern({24, 2}, 2);
  const History history = model.fit(x, y, kFit);
  const Tensors after = model.get_weights();
  for (size_t i = 0; i < after.size(); ++i)
    EXPECT_EQ(same_bits(before[i], after[i]), i == 1 || i == 2) << paths[i];
  EXPECT_EQ(history.planned_arena, history.used_arena);
  const std::string file = ::testing::TempDir() + "/made_of_layers.safetensors";
  model.save_weights(file);
  Sequential again(Shape{4}, {block(4, "first"), block(4), Dense(2)});
  again.load_weights(file);
  EXPECT_TRUE(same_bits(again.predict(x), model.predict(x)));
  std::filesystem::remove(file);
}

// The same network without a layer of one's own gives the same bits.
TEST(KerasUser, ALayerMadeOfLayersTrainsLikeThem) {
  Sequential model(Shape{4}, {block(4), Dense(2)});
  const Symbolic x = Input({4});
  const Symbolic inner = Dense(4, {.activation = "tanh", .kernel_regularizer = "l2:0.01"})(x);
  const Symbolic sum = Add()({x, Dense(4)(inner)});
  Model flat(x, Dense(2)(sum));
  Tensors weights = model.get_weights();
  weights.erase(weights.begin());
  flat.set_weights(weights);
  for (Model* one : {static_cast<Model*>(&model), &flat})
    one->compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor data = pattern({16, 4}, 1), y = pattern({16, 2}, 2);
  EXPECT_NEAR(model.evaluate(data, y)["loss"], flat.evaluate(data, y)["loss"], 1e-6);
  // A subclassed model and a second call see the same layers.
  class Net : public Model {
   public:
    Tensor call(const Tensor& in, bool) override { return head(body(body(in))); }
    LayerRef body = block(4, "body"), head = Dense(2, {.name = "head"});
  };
  Net net;
  net.compile({.optimizer = "adam", .loss = "mse"});
  net.fit(data, y, kFit);
  EXPECT_EQ(net.weights().size(), 7u);
  EXPECT_EQ(net.weights()[1].path, "model/body/dense/kernel");
}

TEST(KerasUser, OutputsOfLayersMakeOtherModels) {
  Sequential base(Shape{4}, {Dense(6, {.activation = "tanh", .name = "features"}), Dense(2)});
  Model extractor(base.inputs(), {base.get_layer("features").output()});
  const Tensor x = pattern({5, 4}, 1);
  EXPECT_EQ(extractor.predict(x).shape(), (Shape{5, 6}));
  EXPECT_EQ(base.layers().size(), 2u);
  EXPECT_EQ(base.outputs().size(), 1u);
  base.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor before = extractor.predict(x);
  base.fit(x, pattern({5, 2}, 2), kFit);
  EXPECT_FALSE(same_bits(before, extractor.predict(x)));  // one set of weights
  EXPECT_EQ(message_of([] { Dense(3, {.name = "lonely"}).output(); }).substr(0, 16),
            "[output] lonely:");
}

TEST(KerasUser, FrozenByAnOption) {
  Sequential model(Shape{4}, {Dense(6, {.trainable = false}), Dense(2)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensors before = model.get_weights();
  model.fit(pattern({8, 4}, 1), pattern({8, 2}, 2), kFit);
  EXPECT_TRUE(same_bits(before[0], model.get_weights()[0]));
  EXPECT_FALSE(same_bits(before[2], model.get_weights()[2]));
}

TEST(KerasUser, MetricsOfEachOutputInOrder) {
  const Symbolic x = Input({4});
  auto results = [&](MetricChoices metrics) {
    Model model({x}, {Dense(2, {.name = "a"})(x), Dense(2, {.name = "b"})(x)});
    model.compile({.optimizer = "sgd", .loss = "mse", .metrics = std::move(metrics)});
    std::string names;
    for (const auto& [name, value] :
         model.evaluate(pattern({8, 4}, 1), {pattern({8, 2}, 2), pattern({8, 2}, 3)}))
      names += name + " ";
    return names;
  };
  EXPECT_EQ(results({{"mae", "mse"}, {"mape"}}), "a_loss a_mae a_mse b_loss b_mape loss ");
  EXPECT_EQ(results({"mae", "mape"}), "a_loss a_mae b_loss b_mape loss ");
  EXPECT_EQ(results({{"mae"}, {"mape"}}), "a_loss a_mae b_loss b_mape loss ");
}

TEST(KerasUser, TheOptimizerCountsWhatFitDid) {
  Sequential model = regressor();
  model.compile({.optimizer = Adam(), .loss = "mse"});
  model.fit(pattern({20, 4}, 1), pattern({20, 2}, 2), kFit);
  EXPECT_EQ(model.iterations(), 9);
  EXPECT_EQ(model.optimizer().iterations(), 9);
  model.fit(pattern({20, 4}, 1), pattern({20, 2}, 2), kFit);
  EXPECT_EQ(model.optimizer().iterations(), 18);
  model.compile({.optimizer = Adam(), .loss = "mse"});
  EXPECT_EQ(model.optimizer().iterations(), 0);
}

TEST(KerasUser, ACallbackMayNotStartAnotherFit) {
  Sequential model = regressor();
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor x = pattern({8, 4}, 1), y = pattern({8, 2}, 2);
  std::string fit, compile;
  FitOptions options = kFit;
  options.callbacks = {LambdaCallback({.on_epoch_end = [&](int64_t, Logs&) {
    fit = message_of([&] { model.fit(x, y, kFit); });
    compile = message_of([&] { model.compile({.loss = "mse"}); });
  }})};
  model.fit(x, y, options);
  EXPECT_EQ(fit,
            "[fit] expected to be called between two calls of fit(), received a call from a "
            "callback of one that runs; stop it with model->stop_training = true, and call fit() "
            "behind it");
  EXPECT_EQ(compile.substr(0, 9), "[compile]");
  model.fit(x, y, kFit);  // and behind it it may
}

// Keras's trackers: a mean over steps whatever their sizes, a sum; and what regularizers add.
class Tracked : public Sequential {
 public:
  Tracked() : Sequential(Shape{4}, {Dense(3, {.kernel_regularizer = "l2:0.5"}), Dense(2)}) {}
  TensorLogs train_step(const StepData& data) override {
    const std::vector<Variable> weights = trainable_variables();
    GradientTape tape;
    const Tensor y_pred = (*this)(data.x(), true);
    Tensor loss = ops::mean(ops::square(data.y() - y_pred));
    for (const Tensor& penalty : losses()) loss += penalty;
    const Tensors gradients = tape.gradient(loss, weights);
    GradientsAndVariables list;
    for (size_t i = 0; i < weights.size(); ++i) list.emplace_back(gradients[i], weights[i]);
    optimizer().apply_gradients(list);
    mean_.update_state(loss);
    sum_.update_state(ops::ones_like(data.y()));
    return {{"loss", loss}, {"mean", mean_.result()}, {"numbers", sum_.result()}};
  }
  metrics::Mean mean_{"mean"};
  metrics::Sum sum_{"numbers"};
};

TEST(KerasUser, TrackersOfAStep) {
  const Tensor x = pattern({12, 4}, 1), y = pattern({12, 2}, 2);
  std::vector<double> by_step;
  const auto note = LambdaCallback({.on_train_batch_end = [&](int64_t, const Logs& logs) {
    by_step.push_back(logs.at("loss"));
  }});
  for (bool eager : {false, true}) {
    by_step.clear();
    Tracked model;
    model.compile({.optimizer = "sgd", .run_eagerly = eager});
    const History history = model.fit(x, y,
                                      {.batch_size = 8,
                                       .epochs = 1,
                                       .verbose = 0,
                                       .callbacks = {note},
                                       .shuffle = false,
                                       .threads = 1});
    // Logs have means over samples: of 8, then of 8 and 4.
    const double first = by_step[0], second = (by_step[1] * 12 - first * 8) / 4;
    EXPECT_NEAR(history.history.at("mean")[0], (first + second) / 2, 1e-6);
    EXPECT_EQ(history.history.at("numbers")[0], 24);
  }
  // On values, in a loop of one's own.
  const Runtime runtime({.memory = "16MiB", .threads = 1});
  metrics::Mean mean;
  mean.update_state(constant({1, 2, 3}));
  mean.update_state(constant(6.0));
  EXPECT_EQ(item(mean.result()), 3);
  mean.reset_state();
  mean.update_state(constant({1, 5}), constant({3, 1}));
  EXPECT_EQ(item(mean.result()), 2);
}

TEST(KerasUser, WeightsComeFromACheckpointToo) {
  Sequential model = regressor(), other = regressor();
  model.compile({.optimizer = Adam(), .loss = "mse"});
  const Tensor x = pattern({8, 4}, 1);
  model.fit(x, pattern({8, 2}, 2), kFit);
  const std::string folder = ::testing::TempDir() + "/keras_user_checkpoint";
  model.save_checkpoint(folder);
  other.load_weights(folder);
  EXPECT_TRUE(same_bits(model.predict(x), other.predict(x)));
  std::filesystem::remove_all(folder);
}

TEST(KerasUser, DataOfUnknownNumberAreCountedFirst) {
  const Tensor x = pattern({22, 4}, 1), y = pattern({22, 2}, 2);
  const Dataset rows = Dataset::from_tensor_slices({x, y});
  const Dataset odd = rows.filter([](const Element&) { return true; }).batch(8);
  Sequential model = regressor(), other = regressor();
  for (Model* one : {&model, &other}) one->compile({.optimizer = "sgd", .loss = "mse"});
  const History history = model.fit(odd, {.epochs = 3, .verbose = 0, .threads = 1});
  EXPECT_EQ(history.steps, 9);
  other.fit(x, y, kFit);
  expect_same_weights(model, other);
  EXPECT_EQ(model.evaluate(odd), other.evaluate(x, y, {.batch_size = 8}));
  EXPECT_EQ(model.predict(odd).shape(), (Shape{22, 2}));
}

TEST(KerasUser, AnAttentionMaskIsAFourthInput) {
  const Symbolic x = Input({5, 6}, "x"), mask = Input({5, 5}, "mask");
  Model masked({x, mask}, {MultiHeadAttention(2, 3)({x, x, x, mask})});
  Model causal(x, MultiHeadAttention(2, 3, {.use_causal_mask = true})(x));
  causal.set_weights(masked.get_weights());
  const Tensor data = pattern({4, 5, 6}, 1);
  Tensor past({Dtype::float32, {4, 5, 5}});
  for (Dim i = 0; i < 100; ++i) past.data_as<float>()[i] = i % 5 <= i / 5 % 5 ? 1 : 0;
  const Tensor a = masked.predict({data, past}), b = causal.predict(data);
  for (int64_t i = 0; i < a.meta().elements(); ++i)
    EXPECT_NEAR(a.data_as<float>()[i], b.data_as<float>()[i], 1e-6) << i;
}

// Keras's verbose=2.
TEST(KerasUser, OneLineForEachEpoch) {
  Sequential model = regressor();
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor x = pattern({8, 4}, 1), y = pattern({8, 2}, 2);
  ::testing::internal::CaptureStdout();
  model.fit(x, y, {.batch_size = 8, .epochs = 2, .verbose = 2, .threads = 1});
  const std::string out = ::testing::internal::GetCapturedStdout();
  EXPECT_NE(out.find("Epoch 2/2\n1/1 - 0s - "), std::string::npos) << out;
  EXPECT_NE(out.find("/step - loss: "), std::string::npos) << out;
}

TEST(KerasUser, UnknownSizesAreRefusedWithARemedy) {
  EXPECT_EQ(message_of([] {
              Input({-1, 3});
            }),
            "[build] Input: expected positive dimensions, received (-1, 3); the batch is none of "
            "them, and what is planned has one size: pad or resize samples to it");
}

TEST(KerasUser, AScaleOfXHoldsForOneFit) {
  Sequential model(Shape{4}, {Dense(2)}), other(Shape{4}, {Dense(2)});
  for (Model* one : {&model, &other}) one->compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor x = pattern({8, 4}, 1), y = pattern({8, 2}, 2);
  FitOptions scaled = kFit;
  scaled.epochs = 0;
  scaled.x_scale = 0.5;
  model.fit(x, y, scaled);
  EXPECT_EQ(model.fit(x, y, kFit).history, other.fit(x, y, kFit).history);
}

}  // namespace
}  // namespace pl::keras_user_test
