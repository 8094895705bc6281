// Models that share layers share weights: what one trains the other has, as in Keras.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <filesystem>

#include "plimsoll.h"
#include "tests/patterns.h"

namespace pl::shared_weights_test {
namespace {

using test::pattern;
using test::same_bits;

bool same_bits(const Tensors& a, const Tensors& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i)
    if (!same_bits(a[i], b[i])) return false;
  return true;
}

// x (B, I) times kernel (I, O) plus bias (O), by hand.
void expect_dense(const Tensor& out, const Tensor& x, const Tensor& kernel, const Tensor& bias) {
  const Dim rows = x.shape()[0], in = x.shape()[1], columns = kernel.shape()[1];
  ASSERT_EQ(out.shape(), (Shape{rows, columns}));
  for (Dim r = 0; r < rows; ++r)
    for (Dim c = 0; c < columns; ++c) {
      double sum = bias.data_as<float>()[c];
      for (Dim k = 0; k < in; ++k)
        sum += static_cast<double>(x.data_as<float>()[r * in + k]) *
               kernel.data_as<float>()[k * columns + c];
      EXPECT_NEAR(out.data_as<float>()[r * columns + c], sum, 1e-5);
    }
}

const FitOptions kFit{.batch_size = 8, .epochs = 2, .verbose = 0, .threads = 1};
const PredictOptions kPredict{.threads = 1};

TEST(SharedWeights, AnEncoderIsTrainedWithItsAutoencoder) {
  const Tensor x = pattern({16, 4}, 1);
  const Symbolic in = Input({4}), code = Dense(3)(in), out = Dense(4)(code);
  Model encoder(in, code), whole(in, out);
  const Tensor untrained = encoder.predict(x, kPredict);
  whole.compile({.optimizer = "adam", .loss = "mse"});
  whole.fit(x, x, kFit);
  const Tensors trained = whole.get_weights();
  const Tensor now = encoder.predict(x, kPredict);
  EXPECT_FALSE(same_bits(untrained, now));
  expect_dense(now, x, trained[0], trained[1]);
  EXPECT_TRUE(same_bits(encoder.get_weights(), {trained[0], trained[1]}));
  Model later(in, code);
  EXPECT_TRUE(same_bits(later.predict(x, kPredict), now));

  // The other way round: what the encoder gets the whole has, and training goes on from there.
  encoder.set_weights({pattern({4, 3}, 5), pattern({3}, 6)});
  EXPECT_TRUE(same_bits(whole.get_weights()[0], pattern({4, 3}, 5)));
  EXPECT_TRUE(same_bits(whole.get_weights()[2], trained[2]));
  expect_dense(later.predict(x, kPredict), x, pattern({4, 3}, 5), pattern({3}, 6));
  whole.fit(x, x, kFit);
  const Tensors twice = whole.get_weights();
  for (int64_t i = 0; i < 12; ++i)  // four steps of Adam with a rate of 0.001
    EXPECT_NEAR(twice[0].data_as<float>()[i], pattern({4, 3}, 5).data_as<float>()[i], 0.01);
  expect_dense(encoder.predict(x, kPredict), x, twice[0], twice[1]);
}

TEST(SharedWeights, TrainingOneIsSeenBesideIt) {
  const Tensor x = pattern({16, 4}, 1);
  const Symbolic in = Input({4}), code = Dense(3)(in), out = Dense(4)(code);
  Model encoder(in, code), whole(in, out);
  whole.compile({.optimizer = "adam", .loss = "mse"});
  Tensors seen;
  struct Look : Callback {
    explicit Look(std::function<void()> own) : run(std::move(own)) {}
    void on_epoch_end(int64_t, Logs&) override { run(); }
    std::function<void()> run;
  };
  FitOptions options = kFit;
  options.callbacks = {
      std::make_shared<Look>([&] { seen.push_back(encoder.predict(x, kPredict)); })};
  whole.fit(x, x, options);
  ASSERT_EQ(seen.size(), 2u);
  EXPECT_FALSE(same_bits(seen[0], seen[1]));
  EXPECT_TRUE(same_bits(seen[1], encoder.predict(x, kPredict)));
}

TEST(SharedWeights, OfAModelInsideAnother) {
  const Tensor x = pattern({16, 4}, 1), y = pattern({16, 1}, 2);
  Sequential inner(Shape{4}, {Dense(3, {.activation = "tanh"})});
  inner.set_name("inner");
  const Tensors before = inner.get_weights();
  Sequential outer(Shape{4}, {inner, Dense(1)});
  outer.compile({.optimizer = "sgd", .loss = "mse"});
  outer.fit(x, y, kFit);
  const Tensors inside = inner.get_weights(), all = outer.get_weights();
  EXPECT_FALSE(same_bits(before, inside));
  EXPECT_TRUE(same_bits(inside, {all[0], all[1]}));
  EXPECT_EQ(outer.weights()[0].path, "inner/dense/kernel");
  expect_dense(outer.predict(x, kPredict), inner.predict(x, kPredict), all[2], all[3]);
}

TEST(SharedWeights, OfALayerInTwoStacks) {
  const Tensor x = pattern({16, 4}, 1), y = pattern({16, 3}, 2);
  const LayerRef shared = Dense(3);
  Sequential one(Shape{4}, {shared}), two(Shape{4}, {shared, Activation("relu")});
  two.predict(x, kPredict);
  one.compile({.optimizer = "sgd", .loss = "mse"});
  one.fit(x, y, kFit);
  EXPECT_TRUE(same_bits(one.get_weights(), two.get_weights()));
  const Tensor linear = one.predict(x, kPredict), cut = two.predict(x, kPredict);
  for (int64_t i = 0; i < linear.meta().elements(); ++i)
    EXPECT_EQ(cut.data_as<float>()[i], std::max(0.0f, linear.data_as<float>()[i]));
}

struct Coder : Model {
  Tensor call(const Tensor& x, bool training) override {
    return decoder(encoder(x, training), training);
  }
  Sequential encoder{{Dense(3, {.activation = "tanh"})}}, decoder{{Dense(4)}};
};

TEST(SharedWeights, OfMembersOfAClass) {
  const Tensor x = pattern({16, 4}, 1);
  Coder model;
  model.compile({.optimizer = "adam", .loss = "mse"});
  model.fit(x, x, kFit);
  EXPECT_TRUE(same_bits(model.decoder.predict(model.encoder.predict(x, kPredict), kPredict),
                        model.predict(x, kPredict)));
  const auto path = std::filesystem::temp_directory_path() / "plimsoll_shared.safetensors";
  model.encoder.save_weights(path.string());
  Coder other;
  other.build(Shape{4});
  other.encoder.load_weights(path.string());
  std::filesystem::remove(path);
  EXPECT_TRUE(same_bits(other.get_weights()[0], model.get_weights()[0]));
  EXPECT_FALSE(same_bits(other.get_weights()[2], model.get_weights()[2]));
}

TEST(SharedWeights, ALayerOfTwoMembersHasOneVariable) {
  struct Twice : Model {
    Tensor call(const Tensor& x, bool training) override {
      return add(one(x, training), two(x, training));
    }
    LayerRef shared = Dense(4);
    Sequential one{{shared}}, two{{shared}};
  };
  const Tensor x = pattern({16, 4}, 1);
  Twice model;
  model.compile({.optimizer = "sgd", .loss = "mse"});
  model.fit(x, x, kFit);
  ASSERT_EQ(model.get_weights().size(), 2u);
  const Tensor whole = model.predict(x, kPredict), half = model.two.predict(x, kPredict);
  EXPECT_TRUE(same_bits(half, model.one.predict(x, kPredict)));
  for (int64_t i = 0; i < whole.meta().elements(); ++i)
    EXPECT_EQ(whole.data_as<float>()[i], 2 * half.data_as<float>()[i]);
}

// Keras's own example: no call(), members with an optimiser each.
struct Gan : Model {
  TensorLogs train_step(const StepData& data) override {
    const Tensor noise = negative(data.x());
    Tensor d_loss, g_loss;
    {
      GradientTape tape;
      const Tensor fake = generator(noise, true);
      d_loss =
          add(distance(discriminator(data.x(), true), 1), distance(discriminator(fake, true), 0));
      const auto own = discriminator.trainable_variables();
      if (trains_discriminator) d_optimizer->apply_gradients(zip(tape.gradient(d_loss, own), own));
    }
    {
      GradientTape tape;
      g_loss = distance(discriminator(generator(noise, true), true), 1);
      const auto own = generator.trainable_variables();
      g_optimizer->apply_gradients(zip(tape.gradient(g_loss, own), own));
    }
    return {{"d_loss", d_loss}, {"g_loss", g_loss}};
  }
  static Tensor distance(const Tensor& score, double target) {
    return reduce_mean(square(subtract(score, fill(score.shape(), target))));
  }
  Sequential generator{{Dense(6, {.activation = "tanh"}), Dense(4)}};
  Sequential discriminator{{Dense(6, {.activation = "tanh"}), Dense(1)}};
  OptimizerRef g_optimizer = Adam({.learning_rate = 0.01}),
               d_optimizer = Adam({.learning_rate = 0.02});
  bool trains_discriminator = true;
};

TEST(SharedWeights, AGanTrainsItsMembers) {
  const Tensor x = pattern({32, 4}, 1);
  for (const bool both : {true, false}) {
    Gan gan;
    gan.trains_discriminator = both;
    gan.generator.build(Shape{4});
    gan.discriminator.build(Shape{4});
    const Tensors g = gan.generator.get_weights(), d = gan.discriminator.get_weights();
    gan.compile({});
    const History history = gan.fit(x, {}, kFit);
    EXPECT_EQ(history.planned_arena, history.used_arena);
    ASSERT_EQ(gan.get_weights().size(), 8u);
    const Tensors g_now = gan.generator.get_weights(), d_now = gan.discriminator.get_weights();
    for (size_t w = 0; w < 4; ++w) {
      EXPECT_FALSE(same_bits(g[w], g_now[w])) << w;
      EXPECT_EQ(same_bits(d[w], d_now[w]), !both) << w;
    }
    EXPECT_TRUE(same_bits(gan.generator.predict(x, kPredict), gan.generator.predict(x, kPredict)));
  }
}

TEST(SharedWeights, FreezingTakesEffectAtOnceInALoopOfOnesOwn) {
  Runtime runtime({.memory = "64MiB", .threads = 1});
  const Tensor x = pattern({8, 4}, 1), y = pattern({8, 1}, 2);
  Sequential model(Shape{4},
                   {Dense(3, {.name = "base"}), BatchNormalization(), Dense(1, {.name = "head"})});
  ASSERT_EQ(model.trainable_variables().size(), 6u);
  model.get_layer("base")->trainable = false;
  model.get_layer("batch_normalization")->trainable = false;
  const Tensors before = model.get_weights();
  const OptimizerRef optimizer = SGD({.learning_rate = 0.1});
  for (int step = 0; step < 2; ++step) {
    GradientTape tape;
    const Tensor loss = reduce_mean(square(subtract(model(x, true), y)));
    const auto own = model.trainable_variables();
    ASSERT_EQ(own.size(), 2u);
    EXPECT_EQ(own[0].name(), "head/kernel");
    optimizer->apply_gradients(zip(tape.gradient(loss, own), own));
  }
  const Tensors after = model.get_weights();
  for (size_t w = 0; w < after.size(); ++w)
    EXPECT_EQ(same_bits(before[w], after[w]), w < 6) << model.weights()[w].path;
  model.get_layer("base")->trainable = true;
  EXPECT_EQ(model.trainable_variables().size(), 4u);
}

TEST(SharedWeights, VariablesAreTheSameOnesInEveryModel) {
  Runtime runtime({.memory = "64MiB", .threads = 1});
  const Tensor x = pattern({8, 4}, 1);
  const Symbolic in = Input({4}), code = Dense(3)(in), out = Dense(4)(code);
  Model encoder(in, code), whole(in, out);
  const Variable kernel = encoder.variables()[0];
  EXPECT_EQ(kernel.state(), whole.variables()[0].state());
  const Tensor start = kernel.value(), kept = encoder.get_weights()[0];
  whole.compile({.optimizer = "sgd", .loss = "mse"});
  whole.fit(x, x, kFit);
  EXPECT_TRUE(same_bits(start, kept)) << "what was read stays";
  EXPECT_TRUE(same_bits(kernel.value(), whole.get_weights()[0]));
  kernel.assign(pattern({4, 3}, 9));
  EXPECT_TRUE(same_bits(whole.get_weights()[0], pattern({4, 3}, 9)));
  expect_dense(encoder.predict(x, kPredict), x, pattern({4, 3}, 9), whole.get_weights()[1]);
  GradientTape tape;
  const Tensor loss = reduce_mean(square(whole(x)));
  const Tensors gradients = tape.gradient(loss, encoder.trainable_variables());
  EXPECT_TRUE(gradients[0].defined()) << "a tape sees the other model's variables";
}

TEST(SharedWeights, OutliveTheModelThatTrainedThem) {
  const Tensor x = pattern({16, 4}, 1);
  const Symbolic in = Input({4}), code = Dense(3)(in);
  Tensors trained;
  {
    Model whole(in, Dense(4)(code));
    whole.compile({.optimizer = "adam", .loss = "mse"});
    whole.fit(x, x, kFit);
    trained = whole.get_weights();
  }
  Model encoder(in, code);
  expect_dense(encoder.predict(x, kPredict), x, trained[0], trained[1]);
}

TEST(SharedWeights, AnotherDtypeIsTakenOverOrNamed) {
  const Tensor x = pattern({16, 4}, 1);
  const Symbolic in = Input({4}), code = Dense(3)(in), out = Dense(4)(code);
  Model whole(in, out), encoder(in, code);
  whole.compile({.loss = "mse", .dtype = Dtype::float64});
  whole.fit(x, x, kFit);
  EXPECT_EQ(encoder.predict(x, kPredict).dtype(), Dtype::float64);
  EXPECT_THROW(encoder.compile({.loss = "mse"}), UserError);
}

TEST(SharedWeights, ModelsInsideAreBuiltByWhatTheyGet) {
  const Tensor x = pattern({16, 4}, 1), y = pattern({16, 1}, 2);
  Sequential first({Dense(3)}), second({Dense(2)});
  Coder coder;
  Sequential outer({first, coder, second, Dense(1)});
  EXPECT_THROW(outer.fit(x, y, kFit), UserError);  // not compiled
  outer.compile({.optimizer = "sgd", .loss = "mse"});
  outer.fit(x, y, kFit);
  EXPECT_EQ(outer.weights().size(), 10u);
  EXPECT_EQ(outer.weights()[0].path, "sequential/dense/kernel");
  const Tensor through =
      second.predict(coder.predict(first.predict(x, kPredict), kPredict), kPredict);
  const Tensors all = outer.get_weights();
  expect_dense(outer.predict(x, kPredict), through, all[8], all[9]);

  Sequential tail({Dense(2)});
  const Symbolic in = Input({4});
  Model functional(in, tail(in));
  EXPECT_TRUE(same_bits(functional.get_weights(), tail.get_weights()));
}

}  // namespace
}  // namespace pl::shared_weights_test
