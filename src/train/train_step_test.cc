// train_step and test_step of models derived from Model: what fit() makes of them.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "plimsoll.h"
#include "tests/own_process.h"
#include "tests/patterns.h"

namespace pl::train_step_test {
namespace {

using test::pattern;

Tensor classes(Dim count) {
  Tensor y({Dtype::int32, {count}});
  for (Dim i = 0; i < count; ++i) y.data_as<int32_t>()[i] = static_cast<int32_t>(i * 7 % 3);
  return y;
}

void expect_same_bits(const Tensors& a, const Tensors& b) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    ASSERT_EQ(a[i].meta(), b[i].meta());
    EXPECT_EQ(std::memcmp(a[i].data(), b[i].data(), static_cast<size_t>(a[i].meta().bytes())), 0)
        << "tensor " << i;
  }
}

std::string message(const std::function<void()>& call) {
  try {
    call();
  } catch (const Error& error) {
    return error.what();
  }
  return "nothing thrown";
}

std::vector<LayerRef> stack() {
  return {Dense(16, {.activation = "tanh", .kernel_regularizer = "l2"}), BatchNormalization(),
          Dropout(0.25), Dense(3, {.activation = "softmax"})};
}

// Keras's own example of a train_step: the default one, written out.
class WrittenOut : public Sequential {
 public:
  WrittenOut() : Sequential(Shape{8}, stack()) {}
  TensorLogs train_step(const StepData& data) override {
    ++traced;
    GradientTape tape;
    const Tensor y_pred = (*this)(data.x(), true);
    const Tensor loss = compute_loss(data, y_pred);
    const std::vector<Variable> weights = trainable_variables();
    const Tensors gradients = tape.gradient(optimizer().scale_loss(loss), weights);
    optimizer().apply_gradients(zip(gradients, weights));
    TensorLogs logs = compute_metrics(data, y_pred);
    logs["loss"] = loss;
    return logs;
  }
  int traced = 0;
};

CompileOptions compile_options(OptimizerRef optimizer = Adam({.learning_rate = 0.01})) {
  return {.optimizer = std::move(optimizer),
          .loss = "sparse_categorical_crossentropy",
          .metrics = {"accuracy"}};
}

FitOptions fit_options() {
  FitOptions options{.batch_size = 16, .epochs = 2, .verbose = 0, .threads = 1};
  options.validation_split = 0.25;
  return options;
}

void expect_equal_runs(Model& a, Model& b, const CompileOptions& compile, const FitOptions& fit) {
  const Tensor x = pattern({72, 8}, 1), y = classes(72);  // a last batch of 6
  a.compile(compile);
  CompileOptions other = compile;
  b.compile(other);
  b.set_weights(a.get_weights());
  const History one = a.fit(x, y, fit), two = b.fit(x, y, fit);
  EXPECT_EQ(one.history, two.history);
  EXPECT_EQ(one.planned_arena, two.planned_arena);
  EXPECT_EQ(two.planned_arena, two.used_arena);
  expect_same_bits(a.get_weights(), b.get_weights());
}

TEST(TrainStep, WrittenOutIsTheDefaultBitForBit) {
  Sequential plain(Shape{8}, stack());
  WrittenOut own;
  expect_equal_runs(plain, own, compile_options(), fit_options());
  // Once for what its optimiser keeps, then once for each batch size.
  EXPECT_EQ(own.traced, 3);
}

TEST(TrainStep, InheritedIsTheDefaultBitForBit) {
  struct Inherited : Sequential {
    Inherited() : Sequential(Shape{8}, stack()) {}
    TensorLogs train_step(const StepData& data) override { return Sequential::train_step(data); }
  };
  Sequential plain(Shape{8}, stack());
  Inherited own;
  FitOptions options = fit_options();
  options.class_weight = {{0, 2.0}, {2, 0.5}};
  expect_equal_runs(plain, own, compile_options(), options);
}

TEST(TrainStep, ScalesTheLossAndAccumulates) {
  Sequential plain(Shape{8}, stack());
  WrittenOut own;
  CompileOptions options = compile_options(LossScaleOptimizer(
      SGD({.learning_rate = 0.05, .momentum = 0.9, .gradient_accumulation_steps = 2})));
  Sequential second(Shape{8}, stack());
  // One optimiser each: they count for themselves.
  const Tensor x = pattern({64, 8}, 1), y = classes(64);
  plain.compile(options);
  CompileOptions other = compile_options(LossScaleOptimizer(
      SGD({.learning_rate = 0.05, .momentum = 0.9, .gradient_accumulation_steps = 2})));
  own.compile(other);
  own.set_weights(plain.get_weights());
  FitOptions fit = fit_options();
  const History one = plain.fit(x, y, fit), two = own.fit(x, y, fit);
  EXPECT_EQ(one.history, two.history);
  expect_same_bits(plain.get_weights(), own.get_weights());
}

TEST(TrainStep, GoesOnFromACheckpoint) {
  const Tensor x = pattern({64, 8}, 1), y = classes(64);
  const std::string folder = testing::TempDir() + "plimsoll_train_step_checkpoint";
  FitOptions fit = fit_options();
  WrittenOut whole, parts, resumed;
  for (WrittenOut* model : {&whole, &parts, &resumed}) model->compile(compile_options());
  parts.set_weights(whole.get_weights());
  whole.fit(x, y, fit);
  whole.fit(x, y, fit);
  parts.fit(x, y, fit);
  parts.save_checkpoint(folder);
  resumed.load_checkpoint(folder);
  resumed.fit(x, y, fit);
  expect_same_bits(whole.get_weights(), resumed.get_weights());
}

TEST(TrainStep, StaysWithinTheBudget) {
  if (test::ran_in_own_process()) return;
  struct Wide : Sequential {
    Wide()
        : Sequential(Shape{64}, {Dense(512, {.activation = "gelu"}),
                                 Dense(512, {.activation = "gelu"}), Dense(3)}) {}
    TensorLogs train_step(const StepData& data) override {
      GradientTape tape;
      const Tensor loss = compute_loss(data, (*this)(data.x(), true));
      const std::vector<Variable> weights = trainable_variables();
      optimizer().apply_gradients(zip(tape.gradient(loss, weights), weights));
      return {{"loss", loss}};
    }
  };
  const Tensor x = pattern({4096, 64}, 1), y = classes(4096);
  const CompileOptions compile{.optimizer = SGD(),
                               .loss = Loss{"sparse_categorical_crossentropy", true}};
  const FitOptions options{.batch_size = 4096, .verbose = 0, .threads = 1};
  Wide free, tight;
  free.compile(compile);
  tight.compile(compile);
  tight.set_weights(free.get_weights());
  const PlanReport report = free.plan(x, y, options);
  ASSERT_LT(report.minimum, report.process);
  FitOptions within = options;
  // The other model, the data and the test itself are in this process too.
  const Bytes budget = report.minimum + 8 * kMiB;
  ASSERT_LT(budget, report.process);
  within.memory = budget;
  const History a = free.fit(x, y, options), b = tight.fit(x, y, within);
  EXPECT_LE(b.planned_process, budget);
  EXPECT_LT(b.planned_arena, a.planned_arena);
  EXPECT_EQ(b.planned_arena, b.used_arena);
  EXPECT_NEAR(a.history.at("loss")[0], b.history.at("loss")[0], 1e-5);
}

// Gradients of the input in the loss: a second derivative.
class Penalized : public Sequential {
 public:
  Penalized() : Sequential(Shape{8}, {Dense(16, {.activation = "tanh"}), Dense(1)}) {}
  TensorLogs train_step(const StepData& data) override {
    const std::vector<Variable> weights = trainable_variables();
    GradientTape outer;
    Tensor y_pred, slope;
    {
      GradientTape inner;
      inner.watch(data.x());
      y_pred = (*this)(data.x(), true);
      slope = inner.gradient(y_pred, {data.x()})[0];
    }
    const Tensor fit = compute_loss(data, y_pred);
    const Tensor penalty = reduce_mean(reduce_sum(square(slope), {1}));
    const Tensor loss = pl::add(fit, scale(penalty, weight));
    optimizer().apply_gradients(zip(outer.gradient(loss, weights), weights));
    return {{"loss", loss}, {"penalty", penalty}};
  }
  double weight = 0;
};

TEST(TrainStep, TakesASecondDerivative) {
  const Tensor x = pattern({64, 8}, 1), y = pattern({64, 1}, 2);
  double penalty[2] = {};
  for (int strong : {0, 1}) {
    Penalized model;
    model.weight = strong;
    model.compile({.optimizer = Adam({.learning_rate = 0.01}), .loss = "mse"});
    const History history =
        model.fit(x, y, {.batch_size = 32, .epochs = 30, .verbose = 0, .threads = 1});
    ASSERT_EQ(history.history.at("penalty").size(), 30u);
    EXPECT_EQ(history.planned_arena, history.used_arena);
    EXPECT_LT(history.history.at("loss").back(), history.history.at("loss").front());
    penalty[strong] = history.history.at("penalty").back();
    // The default test_step has figures of its own.
    EXPECT_EQ(model.evaluate(x, y, {.threads = 1}).size(), 1u);
  }
  EXPECT_LT(penalty[1], 0.5 * penalty[0]);
}

TEST(TrainStep, IsSplitWhereThatIsSound) {
  const Tensor x = pattern({32, 8}, 1), y = pattern({32, 1}, 2);
  std::vector<double> loss[2];
  for (int parts : {1, 4}) {
    Penalized model;
    model.weight = 1;
    model.compile({.optimizer = Adam({.learning_rate = 0.01}), .loss = "mse"});
    const History history = model.fit(
        x, y, {.batch_size = 32, .epochs = 3, .verbose = 0, .split = parts, .threads = 1});
    EXPECT_EQ(history.planned_arena, history.used_arena);
    loss[parts > 1] = history.history.at("loss");
  }
  for (size_t i = 0; i < 3; ++i) EXPECT_NEAR(loss[0][i], loss[1][i], 1e-6);
}

// Two models with an optimiser each. What one step leaves behind is what the other one sees.
class Gan : public Model {
 public:
  Tensor call(const Tensor& z, bool training) override {
    return discriminator(generator(z, training), training);
  }
  TensorLogs train_step(const StepData& data) override {
    const Tensor real = data.x(), noise = data.y();
    Tensor d_loss, g_loss;
    {
      GradientTape tape;
      const Tensor fake = generator(noise, true);
      d_loss = add(distance(discriminator(real, true), 1), distance(discriminator(fake, true), 0));
      const std::vector<Variable> own = weights_of("discriminator");
      d_optimizer->apply_gradients(zip(tape.gradient(d_loss, own), own));
    }
    {
      GradientTape tape;
      g_loss = distance(discriminator(generator(noise, true), true), 1);
      const std::vector<Variable> own = weights_of("generator");
      optimizer().apply_gradients(zip(tape.gradient(g_loss, own), own));
    }
    return {{"d_loss", d_loss}, {"g_loss", g_loss}};
  }
  TensorLogs test_step(const StepData& data) override {
    return {{"g_loss", distance(discriminator(generator(data.y(), false), false), 1)}};
  }

  Sequential generator{{Dense(16, {.activation = "tanh"}), Dense(4)}};
  Sequential discriminator{{Dense(16, {.activation = "tanh"}), Dense(1)}};
  OptimizerRef d_optimizer = Adam({.learning_rate = 0.01, .beta_1 = 0.5});

 private:
  static Tensor distance(const Tensor& score, double target) {
    return reduce_mean(square(subtract(score, fill(score.shape(), target))));
  }
  std::vector<Variable> weights_of(const std::string& part) {
    std::vector<Variable> list;
    for (const Variable& variable : trainable_variables())
      if (variable.name().find("/" + part + "/") != std::string::npos) list.push_back(variable);
    return list;
  }
};

TEST(TrainStep, HasTwoModelsAndTwoOptimizers) {
  Gan gan;
  gan.generator.set_name("generator");
  gan.discriminator.set_name("discriminator");
  gan.compile({.optimizer = Adam({.learning_rate = 0.01})});
  Tensor real = pattern({64, 4}, 1), noise = pattern({64, 4}, 2);
  for (int64_t i = 0; i < 256; ++i) real.data_as<float>()[i] = real.data_as<float>()[i] * 0.3f + 1;
  const FitOptions options{.batch_size = 32, .epochs = 1, .verbose = 0, .threads = 1};
  const Results before = gan.evaluate(real, noise, {.threads = 1});
  const Tensors start = gan.get_weights();
  const History history = gan.fit(real, noise, options);
  EXPECT_EQ(history.planned_arena, history.used_arena);
  ASSERT_EQ(start.size(), 8u);
  const Tensors now = gan.get_weights();
  for (size_t w = 0; w < now.size(); ++w)
    EXPECT_NE(
        std::memcmp(start[w].data(), now[w].data(), static_cast<size_t>(start[w].meta().bytes())),
        0)
        << gan.weights()[w].path;
  // Without a loss of its own it is that of all parts.
  const auto& logs = history.history;
  EXPECT_NEAR(logs.at("loss")[0], logs.at("d_loss")[0] + logs.at("g_loss")[0], 1e-5);
  FitOptions more = options;
  more.epochs = 100;
  gan.fit(real, noise, more);
  // The generator has found where real samples are.
  EXPECT_NE(before.at("g_loss"), gan.evaluate(real, noise, {.threads = 1}).at("g_loss"));

  // The same in eager code: one step, from the same weights, gives the same ones.
  Runtime runtime({.memory = "64MiB", .threads = 1});
  EXPECT_EQ(gan.weights()[0].path, "model/generator/dense/kernel");
}

TEST(TrainStep, WhatCannotBeSplitSaysSo) {
  Gan gan;
  gan.generator.set_name("generator");
  gan.discriminator.set_name("discriminator");
  gan.compile({.optimizer = Adam({.learning_rate = 0.01})});
  const std::string text = message([&] {
    gan.fit(pattern({32, 4}, 1), pattern({32, 4}, 2),
            {.batch_size = 32, .verbose = 0, .split = 2, .threads = 1});
  });
  EXPECT_NE(text.find("[split] "), std::string::npos) << text;
  EXPECT_NE(text.find("the batch cannot be split"), std::string::npos) << text;
}

TEST(TrainStep, OfTwoOptimizersIsThatOfEagerCode) {
  const Tensor real = pattern({32, 4}, 1), noise = pattern({32, 4}, 2);
  Gan gan;
  gan.generator.set_name("generator");
  gan.discriminator.set_name("discriminator");
  gan.compile({.optimizer = Adam({.learning_rate = 0.01})});
  gan.predict(noise, {.threads = 1});
  Runtime runtime({.memory = "64MiB", .threads = 1});
  Sequential generator(Shape{4}, {Dense(16, {.activation = "tanh"}), Dense(4)});
  Sequential discriminator(Shape{4}, {Dense(16, {.activation = "tanh"}), Dense(1)});
  const Tensors all = gan.get_weights();
  generator.set_weights(Tensors(all.begin(), all.begin() + 4));
  discriminator.set_weights(Tensors(all.begin() + 4, all.end()));
  const OptimizerRef d = Adam({.learning_rate = 0.01, .beta_1 = 0.5}),
                     g = Adam({.learning_rate = 0.01});
  auto distance = [](const Tensor& score, double target) {
    return reduce_mean(square(subtract(score, fill(score.shape(), target))));
  };
  for (int step = 0; step < 3; ++step) {
    {
      GradientTape tape;
      const Tensor fake = generator(noise, true);
      const Tensor loss =
          add(distance(discriminator(real, true), 1), distance(discriminator(fake, true), 0));
      const std::vector<Variable> own = discriminator.trainable_variables();
      d->apply_gradients(zip(tape.gradient(loss, own), own));
    }
    GradientTape tape;
    const Tensor loss = distance(discriminator(generator(noise, true), true), 1);
    const std::vector<Variable> own = generator.trainable_variables();
    g->apply_gradients(zip(tape.gradient(loss, own), own));
  }
  gan.fit(real, noise,
          {.batch_size = 32, .epochs = 3, .verbose = 0, .shuffle = false, .threads = 1});
  Tensors expected = generator.get_weights();
  for (const Tensor& weight : discriminator.get_weights()) expected.push_back(weight);
  const Tensors got = gan.get_weights();
  for (size_t w = 0; w < got.size(); ++w)
    for (int64_t i = 0; i < got[w].meta().elements(); ++i)
      ASSERT_NEAR(got[w].data_as<float>()[i], expected[w].data_as<float>()[i], 2e-6)
          << w << "[" << i << "]";
}

TEST(TrainStep, MisuseIsNamed) {
  struct Own : Sequential {
    Own() : Sequential(Shape{8}, {Dense(3, {.activation = "softmax"})}) {}
    TensorLogs train_step(const StepData& data) override { return body(*this, data); }
    Tensor loss(const StepData& data) { return compute_loss(data, (*this)(data.x(), true)); }
    std::function<TensorLogs(Own&, const StepData&)> body;
  };
  const Tensor x = pattern({8, 8}, 1), y = classes(8);
  auto fit = [&](auto body) {
    return message([&] {
      Own model;
      model.body = body;
      model.compile({.loss = "sparse_categorical_crossentropy"});
      model.fit(x, y, {.verbose = 0, .threads = 1});
    });
  };
  EXPECT_EQ(fit([](Own&, const StepData&) { return TensorLogs{}; }),
            "[train_step] expected 'loss', or names that end in '_loss', among the results, "
            "received none; it is watched for NaN and shown");
  EXPECT_EQ(fit([](Own& own, const StepData& data) {
              return TensorLogs{{"loss", own.loss(data)}, {"p", own(data.x(), true)}};
            }),
            "[train_step] p: expected one number, the step's mean, received float32 (8, 3); take "
            "reduce_mean of it");
  const Variable other(x, {.name = "other"});
  EXPECT_EQ(fit([&](Own&, const StepData&) {
              return TensorLogs{{"loss", reduce_mean(other.value())}};
            }),
            "[train_step] other: expected a weight of the model, received another variable; make "
            "it a weight of one of its layers, or train in a pl::function");
  EXPECT_EQ(fit([&](Own&, const StepData&) {
              return TensorLogs{{"loss", pattern({1}, 1)}};
            }),
            "[train_step] loss: expected a figure computed in the step, received float32 (1,) from "
            "elsewhere");
}

}  // namespace
}  // namespace pl::train_step_test
