// Several updates in one train_step: each is one of the optimiser's iterations, as in Keras.
#include <gtest/gtest.h>

#include <cstring>

#include "plimsoll.h"
#include "tests/messages.h"
#include "tests/patterns.h"

namespace pl::train_step_updates_test {
namespace {

using test::pattern;

constexpr Dim kBatch = 8, kBatches = 5;

Tensor classes(Dim count) {
  Tensor y({Dtype::int32, {count}});
  for (Dim i = 0; i < count; ++i) y.data_as<int32_t>()[i] = static_cast<int32_t>(i * 7 % 3);
  return y;
}

void expect_equal(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i)
    EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), static_cast<size_t>(a[i].meta().bytes())), 0)
        << "weight " << i;
}

std::vector<LayerRef> stack() {
  return {Dense(16, {.activation = "tanh", .kernel_regularizer = "l2"}),
          Dense(3, {.activation = "softmax"})};
}

// Every batch so many times.
class Repeated : public Sequential {
 public:
  explicit Repeated(int times) : Sequential(Shape{8}, stack()), times_(times) {}
  TensorLogs train_step(const StepData& data) override {
    Tensor loss;
    for (int i = 0; i < times_; ++i) {
      GradientTape tape;
      loss = compute_loss(data, (*this)(data.x(), true));
      const std::vector<Variable> weights = trainable_variables();
      Optimizer& by = other ? *other : optimizer();
      by.apply_gradients(zip(tape.gradient(loss, weights), weights));
    }
    return {{"loss", loss}};
  }
  OptimizerRef other;

 private:
  int times_;
};

OptimizerRef falling() {
  return Adam({.learning_rate = ExponentialDecay({0.05, 1, 0.8}), .clipnorm = 0.5});
}

FitOptions in_order(int64_t epochs = 1) {
  return {.batch_size = kBatch, .epochs = epochs, .verbose = 0, .shuffle = false, .threads = 1};
}

const Tensor& x() {
  static const Tensor all = pattern({kBatch * kBatches, 8}, 1);
  return all;
}
const Tensor& y() {
  static const Tensor all = classes(kBatch * kBatches);
  return all;
}

// What comes of a fit() whose data have every batch three times.
Tensors wanted() {
  Sequential model(Shape{8}, stack());
  model.compile({.optimizer = falling(), .loss = "sparse_categorical_crossentropy"});
  auto thrice = [](const Tensor& all) {
    Tensors parts;
    for (const Tensor& part : ops::split(all, kBatches)) parts.insert(parts.end(), 3, part);
    return ops::concatenate(parts, 0);
  };
  model.fit(thrice(x()), thrice(y()), in_order());
  EXPECT_EQ(model.iterations(), 3 * kBatches);
  return model.get_weights();
}

TEST(Updates, OfOneStepAreIterations) {
  for (const bool eager : {false, true}) {
    Repeated model(3);
    model.compile(
        {.optimizer = falling(), .loss = "sparse_categorical_crossentropy", .run_eagerly = eager});
    model.fit(x(), y(), in_order());
    expect_equal(model.get_weights(), wanted());
    EXPECT_EQ(model.iterations(), 3 * kBatches);
    EXPECT_EQ(model.optimizer().iterations(), 3 * kBatches);
  }
}

TEST(Updates, OfAnotherOptimizerAreIterationsOfIts) {
  for (const bool eager : {false, true}) {
    Repeated model(3);
    model.other = falling();
    model.compile(
        {.optimizer = "sgd", .loss = "sparse_categorical_crossentropy", .run_eagerly = eager});
    model.fit(x(), y(), in_order());
    expect_equal(model.get_weights(), wanted());
  }
}

TEST(Updates, GoOnInTheNextFit) {
  Repeated once(2), twice(2);
  for (Repeated* model : {&once, &twice})
    model->compile({.optimizer = falling(), .loss = "sparse_categorical_crossentropy"});
  once.fit(x(), y(), in_order(2));
  twice.fit(x(), y(), in_order());
  twice.fit(x(), y(), in_order());
  expect_equal(once.get_weights(), twice.get_weights());
}

TEST(Updates, OfWhatScalesOrAccumulatesAreOneAStep) {
  Repeated model(2);
  model.compile({.optimizer = SGD({.gradient_accumulation_steps = 2}),
                 .loss = "sparse_categorical_crossentropy"});
  EXPECT_EQ(test::message_of([&] { model.fit(x(), y(), in_order()); }),
            "[train_step] dense/kernel: expected one update by sgd in a step, as it scales the "
            "loss or accumulates gradients, received a second one; add the gradients up, or use "
            "two optimizers");
}

}  // namespace
}  // namespace pl::train_step_updates_test
