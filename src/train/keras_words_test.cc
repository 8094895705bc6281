// Words of Keras programs that people bring along: metrics that a train_step updates, weights that
// a layer writes itself, rules of weights by name, and what targets of the wrong kind are told.
#include <gtest/gtest.h>

#include "plimsoll.h"
#include "tests/messages.h"
#include "tests/patterns.h"

namespace pl::keras_words_test {
namespace {

using test::pattern;

const FitOptions kFit{.batch_size = 8, .epochs = 2, .verbose = 0, .shuffle = false, .threads = 1};

// The guide to train_step: a tracker of the loss, and a metric of Keras's.
class Guide : public Sequential {
 public:
  Guide() : Sequential(Shape{6}, {Dense(4, {.activation = "tanh"}), Dense(1)}) {}
  TensorLogs train_step(const StepData& data) override {
    GradientTape tape;
    const Tensor p = (*this)(data.x(), true);
    const Tensor loss = compute_loss(data, p);
    const std::vector<Variable> weights = trainable_variables();
    optimizer().apply_gradients(zip(tape.gradient(loss, weights), weights));
    mae_.update_state(data.y(), p);
    above_.update_state(data.y(), p);
    return {{"loss", loss}, {"mae", mae_.result()}, {"auc", above_.result()}};
  }

 private:
  metrics::Tracked mae_{metrics::MeanAbsoluteError()}, above_{metrics::AUC()};
};

TEST(KerasWords, AStepUpdatesAnyMetric) {
  const Tensor x = pattern({20, 6}, 1);
  const Tensor y = ops::cast(ops::sum(x, 1, true) > 0.0, "float32");  // (20, 1)
  Guide own;
  Sequential plain(Shape{6}, {Dense(4, {.activation = "tanh"}), Dense(1)});
  plain.set_weights(own.get_weights());
  own.compile({.optimizer = "sgd", .loss = "mse"});
  plain.compile({.optimizer = "sgd",
                 .loss = "mse",
                 .metrics = {metrics::MeanAbsoluteError("mae"), metrics::AUC()}});
  const auto a = own.fit(x, y, kFit).history, b = plain.fit(x, y, kFit).history;
  EXPECT_EQ(a.at("mae"), b.at("mae"));
  EXPECT_EQ(a.at("auc"), b.at("auc"));
  metrics::Tracked values{metrics::MeanAbsoluteError()};
  values.update_state(y, plain.predict(x));
  EXPECT_GT(item(values.result()), 0);
}

// Keras: self.avg.assign(...) in call(), with what was assigned used behind it.
class RunningMean : public Layer {
 public:
  const char* kind() const override { return "RunningMean"; }
  Shape build(const std::vector<Shape>& in) override {
    add_weight("mean", Shape{in[0].back()}, "zeros", false);
    add_weight("scale", Shape{in[0].back()},
               {.initializer = "ones", .regularizer = "l2", .constraint = "non_neg"});
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    Tensor mean = call.weights[0];
    if (call.training) mean = assign(mean, 0.9 * mean + 0.1 * ops::mean(call.in[0], 0));
    return (call.in[0] - mean) * call.weights[1];
  }
};

TEST(KerasWords, ALayerAssignsItsWeightsInCall) {
  Sequential model(Shape{6}, {Dense(4), LayerRef(std::make_shared<RunningMean>()), Dense(1)});
  model.compile({.optimizer = "sgd", .loss = "mse"});
  const Tensor x = pattern({16, 6}, 1), y = pattern({16, 1}, 2);
  const double before = item(ops::sum(ops::abs(model.get_weights()[2])));
  const auto history = model.fit(x, y, kFit).history;
  EXPECT_EQ(before, 0);
  EXPECT_GT(item(ops::sum(ops::abs(model.get_weights()[2]))), 0);
  EXPECT_LT(history.at("loss")[1], history.at("loss")[0]);
}

TEST(KerasWords, ConstraintsTakeTheirNumber) {
  EXPECT_EQ(constraints::MaxNorm(3), constraints::MaxNorm({.max_value = 3}));
  EXPECT_EQ(constraints::MaxNorm({}), constraints::MaxNorm());
}

TEST(KerasWords, TargetsOfTheOtherKindNameTheLoss) {
  auto fit = [](const char* loss, const Tensor& y) {
    return test::message_of([&] {
      Sequential model(Shape{6}, {Dense(3, {.activation = "softmax"})});
      model.compile({.loss = loss});
      model.fit(pattern({8, 6}, 1), y, kFit);
    });
  };
  const Tensor numbers = ops::arange(8) * 0;
  EXPECT_EQ(fit("categorical_crossentropy", numbers),
            "[fit] categorical_crossentropy: expected targets of float32 (3,) per sample, received "
            "int32 (); sparse_categorical_crossentropy takes class numbers");
  EXPECT_EQ(fit("sparse_categorical_crossentropy", ops::one_hot(numbers, 3)),
            "[fit] sparse_categorical_crossentropy: expected targets of int32 () per sample, "
            "received float32 (3,); categorical_crossentropy takes rows with a number for each "
            "class");
}

}  // namespace
}  // namespace pl::keras_words_test
