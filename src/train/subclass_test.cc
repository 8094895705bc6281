// Models by subclass, layers of one's own, and models on values: what fit() does with them, and
// that they are the same weights.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "plimsoll.h"
#include "tests/patterns.h"

namespace pl::subclass_test {
namespace {

using test::pattern;
using test::same_bits;

Tensor classes(Dim count) {
  Tensor y({Dtype::int32, {count}});
  for (Dim i = 0; i < count; ++i) y.data_as<int32_t>()[i] = static_cast<int32_t>(i % 3);
  return y;
}

// As a user would write one.
class Scaled : public Layer {
 public:
  const char* kind() const override { return "Scaled"; }
  Shape build(const std::vector<Shape>& in) override {
    if (weights().empty()) add_weight("gain", {in[0].back()}, "ones");
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    return multiply(call.in[0], call.weights[0]);
  }
};

class Residual : public Model {
 public:
  Tensor call(const Tensor& x, bool) override {
    const Tensor h = first_(x);
    return head_(add(h, relu(second_(scaled_(h)))));
  }

 private:
  LayerRef first_ = Dense(16, {.activation = "tanh"}), second_ = Dense(16),
           scaled_ = LayerRef(std::make_shared<Scaled>()),
           head_ = Dense(3, {.activation = "softmax"});
};

Model functional() {
  const Symbolic in = Input({8});
  const Symbolic h = Dense(16, {.activation = "tanh"})(in);
  const Symbolic g = Dense(16)(LayerRef(std::make_shared<Scaled>())(h));
  return Model(in, Dense(3, {.activation = "softmax"})(Add()({h, ReLU()(g)})));
}

const CompileOptions kCompile{.optimizer = "adam", .loss = "sparse_categorical_crossentropy"};
const FitOptions kFit{.batch_size = 8, .epochs = 3, .verbose = 0, .threads = 1};

TEST(Subclass, TrainsAsTheFunctionalModelDoes) {
  const Tensor x = pattern({32, 8}, 1), y = classes(32);
  Residual subclass;
  Model other = functional();
  subclass.compile(kCompile);
  other.compile(kCompile);
  subclass.predict(x, {.threads = 1});  // builds it
  // The subclass has its weights in the order of first calls: so has the functional model.
  ASSERT_EQ(subclass.weights().size(), 7u);
  EXPECT_EQ(subclass.weights()[0].path, "model/dense/kernel");
  EXPECT_EQ(subclass.weights()[2].path, "model/scaled/gain");
  other.set_weights(subclass.get_weights());
  const History a = subclass.fit(x, y, kFit), b = other.fit(x, y, kFit);
  EXPECT_EQ(a.history.at("loss"), b.history.at("loss"));
  EXPECT_LT(a.history.at("loss").back(), a.history.at("loss").front());
  EXPECT_EQ(a.planned_arena, a.used_arena);
  EXPECT_TRUE(same_bits(subclass.predict(x), other.predict(x)));
}

TEST(Subclass, MisuseIsNamed) {
  class Empty : public Model {};
  auto message = [](auto call) -> std::string {
    try {
      call();
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  Empty empty;
  EXPECT_NE(message([&] {
              empty.predict(pattern({2, 3}, 1));
            }).find("expected layers, or a class derived from Model that overrides call()"),
            std::string::npos);
  EXPECT_EQ(message([] {
              Dense(3)(pattern({2, 3}, 1));
            }),
            "[call] Dense: expected to be called on tensors in call() of a model or layer, whose "
            "weights it uses; derive from pl::Model, or call it on Input()");
}

TEST(ModelOnValues, IsThePredictionAndTakesGradients) {
  const Tensor x = pattern({32, 8}, 1), y = classes(32);
  Runtime runtime({.memory = "32MiB", .threads = 1});
  Residual model;
  const Tensor first = model(x);
  EXPECT_TRUE(same_bits(first, model.predict(x, {.threads = 1})));
  ASSERT_EQ(model.trainable_variables().size(), 7u);
  const std::vector<Variable> weights = model.trainable_variables();
  auto step = [&](const Tensor& in, const Tensor& labels) {
    GradientTape tape;
    const Tensor p = model(in, true);
    const Tensor likelihood = reduce_sum(multiply(p, one_hot(labels, 3)), {1});
    const Tensor loss = negative(reduce_mean(log(likelihood)));
    const Tensors g = tape.gradient(loss, weights);
    for (size_t i = 0; i < g.size(); ++i) weights[i].assign_sub(scale(g[i], 0.1));
    return loss;
  };
  const Tensor kernel = weights[0].value();
  const float before = step(x, y).data_as<float>()[0];
  auto traced = function(step);
  float after = 0;
  for (int i = 0; i < 20; ++i) after = traced(x, y).data_as<float>()[0];
  EXPECT_EQ(traced.traces(), 1);
  EXPECT_LT(after, before);
  EXPECT_FALSE(same_bits(kernel, weights[0].value())) << "what was read before stays";
  EXPECT_TRUE(same_bits(model.get_weights()[0], weights[0].value())) << "one copy of the weights";
  EXPECT_TRUE(same_bits(model(x), model.predict(x, {.threads = 1})));
}

// A step as fit() makes one, with an optimiser.
Tensor adam_step(Model& model, Optimizer& optimizer, const Tensor& x, const Tensor& y) {
  GradientTape tape;
  const Tensor losses = sparse_softmax_cross_entropy(model(x, true), y).loss;
  const Tensor loss = scale(reduce_sum(losses), 1.0 / static_cast<double>(x.shape()[0]));
  const std::vector<Variable> weights = model.trainable_variables();
  const Tensors gradients = tape.gradient(loss, weights);
  GradientsAndVariables list;
  for (size_t i = 0; i < weights.size(); ++i) list.emplace_back(gradients[i], weights[i]);
  optimizer.apply_gradients(list);
  return loss;
}

TEST(ApplyGradients, StepsAreThoseOfFit) {
  const Tensor x = pattern({16, 8}, 1), y = classes(16);
  auto make = [] { return Sequential(Shape{8}, {Dense(16, {.activation = "tanh"}), Dense(3)}); };
  Sequential fitted = make(), eager = make(), traced = make();
  fitted.compile({.optimizer = Adam({.learning_rate = 0.01}),
                  .loss = Loss{"sparse_categorical_crossentropy", true}});
  eager.set_weights(fitted.get_weights());
  traced.set_weights(fitted.get_weights());
  FitOptions options = kFit;
  options.batch_size = 16;
  options.shuffle = false;
  options.epochs = 5;
  fitted.fit(x, y, options);

  Runtime runtime({.memory = "32MiB", .threads = 1});
  const OptimizerRef a = Adam({.learning_rate = 0.01}), b = Adam({.learning_rate = 0.01});
  auto step = function(
      [&](const Tensor& in, const Tensor& labels) { return adam_step(traced, *b, in, labels); });
  for (int i = 0; i < 5; ++i) {
    const Tensor one = adam_step(eager, *a, x, y), two = step(x, y);
    EXPECT_NEAR(one.data_as<float>()[0], two.data_as<float>()[0], 1e-6);
  }
  EXPECT_EQ(step.traces(), 1);
  EXPECT_EQ(a->iterations(), 5);
  EXPECT_EQ(b->iterations(), 5);
  const Tensors expected = fitted.get_weights();
  for (const Tensors& got : {eager.get_weights(), traced.get_weights()})
    for (size_t w = 0; w < expected.size(); ++w)
      for (int64_t i = 0; i < expected[w].meta().elements(); ++i)
        ASSERT_NEAR(got[w].data_as<float>()[i], expected[w].data_as<float>()[i], 2e-6)
            << w << "[" << i << "]";
}

// Keras's optimizer.iterations: updates, not steps.
TEST(ApplyGradients, IterationsCountUpdates) {
  const Tensor x = pattern({16, 8}, 1), y = classes(16);
  auto make = [] { return Sequential(Shape{8}, {Dense(3)}); };
  const SGDOptions every_second{.learning_rate = 0.5, .gradient_accumulation_steps = 2};
  Sequential fitted = make(), eager = make();
  fitted.compile(
      {.optimizer = SGD(every_second), .loss = Loss{"sparse_categorical_crossentropy", true}});
  eager.set_weights(fitted.get_weights());
  int64_t seen = -1;
  FitOptions options{.batch_size = 4, .epochs = 1, .verbose = 0, .shuffle = false, .threads = 1};
  options.steps_per_epoch = 3;
  options.callbacks = {
      LambdaCallback({.on_train_batch_end = [&](int64_t, const Logs&) { ++seen; }})};
  fitted.fit(x, y, options);
  EXPECT_EQ(seen, 2) << "three batches";
  EXPECT_EQ(fitted.iterations(), 1);

  Runtime runtime({.memory = "32MiB", .threads = 1});
  const OptimizerRef optimizer = SGD(every_second);
  const Tensor before = eager.get_weights()[0];
  for (int64_t step = 0; step < 3; ++step) {
    Tensor part_x({Dtype::float32, {4, 8}}), part_y({Dtype::int32, {4}});
    std::memcpy(part_x.data(), x.data_as<float>() + step * 32, 4 * 32);
    std::memcpy(part_y.data(), y.data_as<int32_t>() + step * 4, 4 * 4);
    adam_step(eager, *optimizer, part_x, part_y);
    EXPECT_EQ(same_bits(before, eager.get_weights()[0]), step == 0);
    EXPECT_EQ(optimizer->iterations(), (step + 1) / 2);
  }
  for (int64_t i = 0; i < 24; ++i)
    EXPECT_NEAR(eager.get_weights()[0].data_as<float>()[i],
                fitted.get_weights()[0].data_as<float>()[i], 1e-6);
}

TEST(ModelOnValues, ADropoutOfEverythingLeavesNothing) {
  Runtime runtime({.memory = "8MiB", .threads = 1});
  Sequential model(Shape{4}, {Dropout(1.0)});
  const Tensor x = pattern({3, 4}, 1), gone = model(x, true);
  EXPECT_TRUE(same_bits(model(x, false), x));
  for (int64_t i = 0; i < 12; ++i) EXPECT_EQ(gone.data_as<float>()[i], 0);
}

TEST(ModelOnValues, StatisticsMoveWhileTraining) {
  Runtime runtime({.memory = "32MiB", .threads = 1});
  Sequential model(Shape{4}, {BatchNormalization(), Dense(2)});
  const Tensor x = pattern({16, 4}, 2);
  const Tensor before = model.variables()[2].value();
  model(x, false);
  EXPECT_TRUE(same_bits(before, model.variables()[2].value()));
  model(x, true);
  EXPECT_FALSE(same_bits(before, model.variables()[2].value()));
  EXPECT_EQ(before.data_as<float>()[0], 0);
  EXPECT_EQ(model.trainable_variables().size(), 4u);
}

class Masked : public Model {
 public:
  Tensor call(const Tensor& x, bool) override { return head(lstm(mask(x))); }
  LayerRef mask = Masking(), lstm = LSTM(4), head = Dense(3, {.activation = "softmax"});
};

TEST(Subclass, HandsMasksFromLayerToLayer) {
  Tensor x = pattern({6, 5, 3}, 1);
  for (int64_t i = 2 * 3; i < 5 * 3; ++i)
    x.data_as<float>()[i] = 0;  // the first sample has 2 steps
  Masked model;
  Sequential plain({Masking(), LSTM(4), Dense(3, {.activation = "softmax"})});
  const Tensor ours = model.predict(x), unset = plain.predict(x);
  EXPECT_FALSE(same_bits(ours, unset)) << "other weights";
  plain.set_weights(model.get_weights());
  EXPECT_TRUE(same_bits(ours, plain.predict(x)));
}

TEST(Subclass, FreezesLayersOneByOne) {
  Masked model;
  const Tensor x = pattern({6, 5, 3}, 2);
  model.predict(x);
  model.lstm->trainable = false;
  model.compile(
      {.optimizer = SGD({.learning_rate = 0.5}), .loss = "sparse_categorical_crossentropy"});
  const Tensors before = model.get_weights();
  model.fit(x, classes(6), {.epochs = 2, .verbose = 0, .threads = 1});
  const Tensors after = model.get_weights();
  ASSERT_EQ(before.size(), 5u);
  for (size_t w = 0; w < 5; ++w) EXPECT_EQ(same_bits(before[w], after[w]), w < 3) << w;
}

TEST(Wrappers, TakeOverWhatTheirLayerIsHeldTo) {
  const LayerRef dense = Dense(3, {.activity_regularizer = "l2"}), lstm = LSTM(3);
  lstm->trainable = false;
  const LayerRef steps = TimeDistributed(dense), both = Bidirectional(lstm);
  EXPECT_TRUE(steps->trains(0));
  dense->trainable = false;  // one layer, whoever calls it
  EXPECT_FALSE(steps->trains(0));
  EXPECT_FALSE(both->trains(0));
  EXPECT_EQ(steps->activity_regularizer, dense->activity_regularizer);
}

TEST(LayerRef, TakesLayersOfOnesOwn) {
  LayerRef scaled = std::make_shared<Scaled>();
  const std::vector<LayerRef> list{std::make_shared<Scaled>(), Dense(2)};
  Sequential model(Shape{3}, {scaled, list[0], list[1]});
  EXPECT_EQ(model.count_params(), 3 + 3 + 3 * 2 + 2);
}

}  // namespace
}  // namespace pl::subclass_test
