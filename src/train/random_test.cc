// keras.random in steps and on values, and seeds of layers and initializers.
#include "train/random.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "base/error.h"
#include "model/layers.h"
#include "op/functions.h"
#include "tests/messages.h"
#include "train/function.h"
#include "train/model.h"

namespace pl::random_test {
namespace {

std::vector<double> moments_of(const Tensor& x) {
  double sum = 0, squares = 0, least = 1e30, most = -1e30;
  for (double v : to_vector(x)) {
    sum += v, squares += v * v;
    least = std::min(least, v), most = std::max(most, v);
  }
  const auto n = static_cast<double>(x.meta().elements());
  return {sum / n, std::sqrt(squares / n - sum / n * sum / n), least, most};
}

Tensor steps_of(Shape shape) {
  Tensor x({Dtype::float32, std::move(shape)});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<float>()[i] = static_cast<float>(std::sin(0.7 * static_cast<double>(i)));
  return x;
}

bool equal_values(const Tensor& a, const Tensor& b) { return to_vector(a) == to_vector(b); }

TEST(Random, DistributionsAreKerass) {
  const auto normal = moments_of(random::normal({20000}, {.mean = 2, .stddev = 3}));
  EXPECT_NEAR(normal[0], 2, 0.1);
  EXPECT_NEAR(normal[1], 3, 0.1);
  const auto uniform = moments_of(random::uniform({20000}, {.minval = -1, .maxval = 3}));
  EXPECT_NEAR(uniform[0], 1, 0.05);
  EXPECT_GE(uniform[2], -1);
  EXPECT_LT(uniform[3], 3);
  const Tensor whole = random::randint({5000}, 3, 6);
  EXPECT_EQ(whole.dtype(), Dtype::int32);
  const auto ends = moments_of(whole);
  EXPECT_EQ(ends[2], 3);
  EXPECT_EQ(ends[3], 5);
  const Tensor classes = random::categorical(constant({{0, 0, 2}}), 9000);
  EXPECT_EQ(classes.shape(), (Shape{1, 9000}));
  double twos = 0;
  for (double c : to_vector(classes)) twos += c == 2;
  EXPECT_NEAR(twos / 9000, std::exp(2) / (2 + std::exp(2)), 0.02);
  const Tensor mixed = random::shuffle(ops::arange(50));
  EXPECT_FALSE(equal_values(mixed, ops::arange(50)));
  EXPECT_TRUE(equal_values(ops::sort(mixed), ops::arange(50)));
  EXPECT_EQ(random::normal({2}, {.dtype = Dtype::float64}).dtype(), Dtype::float64);
}

TEST(Random, SeedsAreKerass) {
  EXPECT_FALSE(equal_values(random::normal({8}), random::normal({8})));
  EXPECT_TRUE(equal_values(random::normal({8}, {.seed = 7}), random::normal({8}, {.seed = 7})));
  EXPECT_FALSE(equal_values(random::normal({8}, {.seed = 7}), random::normal({8}, {.seed = 8})));
  const random::SeedGenerator generator(7);
  EXPECT_FALSE(equal_values(random::normal({8}, {.seed = generator}),
                            random::normal({8}, {.seed = generator})));
}

TEST(Random, AFunctionDrawsAnewInEveryCall) {
  auto noise = pl::function([](const Tensor& x) { return x + random::normal({4}); });
  const Tensor zero = fill({4}, 0.0), first = noise(zero);
  EXPECT_FALSE(equal_values(first, noise(zero)));
  EXPECT_EQ(noise.traces(), 1);
  auto same = pl::function([](const Tensor& x) { return x + random::normal({4}, {.seed = 3}); });
  EXPECT_TRUE(equal_values(same(zero), same(zero)));
  EXPECT_TRUE(equal_values(same(zero), random::normal({4}, {.seed = 3})));
}

TEST(Random, MisuseIsNamed) {
  EXPECT_EQ(test::message_of([] { random::randint({2}, 3, 3); }),
            "[random::randint] expected minval below maxval, both int32, received 3 and 3");
  EXPECT_EQ(test::message_of([] { random::normal({2}, {.dtype = Dtype::int32}); }),
            "[random::normal] dtype: expected a floating one, received int32");
}

// Noise in a layer of one's own and in a step.
class Noisy : public Layer {
 public:
  const char* kind() const override { return "Noisy"; }
  Shape build(const std::vector<Shape>& in) override { return in[0]; }
  Tensor call(const LayerCall& call) const override {
    if (!call.training) return call.in[0];
    return call.in[0] + 0.5 * random::normal_like(call.in[0]);
  }
};

class Jittered : public Sequential {
 public:
  using Sequential::Sequential;
  TensorLogs train_step(const StepData& data) override {
    StepData noisy = data;
    noisy.xs[0] = data.x() + 0.1 * random::uniform_like(data.x());
    TensorLogs logs = Sequential::train_step(noisy);
    logs["drawn"] = ops::mean(random::normal({64}));
    return logs;
  }
};

History trained(Model& model, FitOptions options) {
  model.compile({.optimizer = "sgd", .loss = "mse"});
  options.verbose = 0;
  options.threads = 1;
  return model.fit(steps_of({24, 3}), steps_of({24, 2}), options);
}

TEST(Random, StepsDrawByTheirSeedAlone) {
  auto run = [](uint64_t seed, int64_t split) {
    Jittered model(Shape{3},
                   {LayerRef(std::make_shared<Noisy>()),
                    Dense(2, {.kernel_initializer = initializers::GlorotUniform({.seed = 1})})});
    return trained(model, {.batch_size = 8, .epochs = 3, .split = split, .seed = seed}).history;
  };
  const auto first = run(1, 1);
  EXPECT_EQ(first, run(1, 1));
  EXPECT_NE(first.at("loss"), run(2, 1).at("loss"));
  const auto& drawn = first.at("drawn");
  EXPECT_NE(drawn[0], drawn[1]);
  // Rows have their own numbers, so that a batch in parts is the same batch.
  const auto parts = run(1, 2);
  for (size_t e = 0; e < 3; ++e) EXPECT_NEAR(first.at("loss")[e], parts.at("loss")[e], 1e-6);
}

// The same seed gives the same masks, in layers of other names and models.
TEST(Seeds, OfLayersNameTheirNumbers) {
  auto run = [](std::vector<LayerRef> layers) {
    layers.push_back(Flatten());
    layers.push_back(
        Dense(2, {.kernel_initializer = initializers::HeNormal({.seed = 1}), .name = "head"}));
    Sequential model(Shape{4, 4, 2}, layers);
    model.compile({.optimizer = SGD({.learning_rate = 0}), .loss = "mse"});
    return model
        .fit(steps_of({16, 4, 4, 2}), steps_of({16, 2}),
             {.batch_size = 16, .verbose = 0, .shuffle = false, .threads = 1})
        .history.at("loss")[0];
  };
  using Make = std::function<LayerRef(std::optional<uint64_t> seed, std::string name)>;
  const std::vector<std::pair<const char*, Make>> kinds = {
      {"Dropout", [](auto s, auto n) { return Dropout(0.5, {.seed = s, .name = n}); }},
      {"SpatialDropout2D",
       [](auto s, auto n) { return SpatialDropout2D(0.5, {.seed = s, .name = n}); }},
      {"GaussianNoise", [](auto s, auto n) { return GaussianNoise(0.5, {.seed = s, .name = n}); }},
      {"GaussianDropout",
       [](auto s, auto n) { return GaussianDropout(0.5, {.seed = s, .name = n}); }},
      {"AlphaDropout", [](auto s, auto n) { return AlphaDropout(0.5, {.seed = s, .name = n}); }},
      {"RandomFlip", [](auto s, auto n) { return RandomFlip("vertical", {.seed = s, .name = n}); }},
      {"RandomRotation",
       [](auto s, auto n) { return RandomRotation(0.4, {.seed = s, .name = n}); }},
      {"RandomCrop", [](auto s, auto n) { return RandomCrop(2, 2, {.seed = s, .name = n}); }},
      {"RandomTranslation",
       [](auto s, auto n) { return RandomTranslation(0.4, 0.4, {.seed = s, .name = n}); }},
      {"RandomZoom", [](auto s, auto n) { return RandomZoom(0.4, {}, {.seed = s, .name = n}); }},
  };
  for (const auto& [kind, make] : kinds) {
    const double a = run({make(5, "a")});
    EXPECT_EQ(a, run({make(5, "other")})) << kind;
    EXPECT_EQ(a, run({Activation("linear"), make(5, "third")})) << kind;
    EXPECT_NE(a, run({make(6, "a")})) << kind;
    EXPECT_NE(run({make({}, "a")}), run({make({}, "b")})) << kind;
  }
}

// Dropout inside of attention and recurrent layers. Their weights are the same by seeds too.
TEST(Seeds, OfAttentionAndRecurrentLayersNameTheirNumbers) {
  const std::string weights = initializers::GlorotUniform({.seed = 2});
  using Make = std::function<Symbolic(const Symbolic& x, std::optional<uint64_t> seed,
                                      const std::string& name)>;
  auto run = [](const Make& make, std::optional<uint64_t> seed, const std::string& name) {
    const Symbolic x = Input({6, 4});
    const Symbolic flat = Flatten()(make(x, seed, name));
    Model model(x, Dense(2, {.kernel_initializer = initializers::HeNormal({.seed = 1})})(flat));
    model.compile({.optimizer = SGD({.learning_rate = 0}), .loss = "mse"});
    return model
        .fit(steps_of({16, 6, 4}), steps_of({16, 2}),
             {.batch_size = 16, .verbose = 0, .shuffle = false, .threads = 1})
        .history.at("loss")[0];
  };
  auto recurrent = [&](auto layer, double dropout, double recurrent_dropout) -> Make {
    return [=](const Symbolic& x, auto seed, const std::string& name) {
      return layer(5, {.kernel_initializer = weights,
                       .recurrent_initializer = weights,
                       .dropout = dropout,
                       .recurrent_dropout = recurrent_dropout,
                       .seed = seed,
                       .name = name})(x);
    };
  };
  auto lstm = [](int64_t units, LSTMOptions o) { return LSTM(units, std::move(o)); };
  auto gru = [](int64_t units, GRUOptions o) { return GRU(units, std::move(o)); };
  auto simple = [](int64_t units, SimpleRNNOptions o) { return SimpleRNN(units, std::move(o)); };
  const std::vector<std::pair<const char*, Make>> kinds = {
      {"MultiHeadAttention",
       [=](const Symbolic& x, auto s, const std::string& n) {
         return MultiHeadAttention(
             2, 3, {.dropout = 0.4, .kernel_initializer = weights, .seed = s, .name = n})({x, x});
       }},
      {"GroupedQueryAttention",
       [=](const Symbolic& x, auto s, const std::string& n) {
         return GroupedQueryAttention(
             3, 4, 2,
             {.dropout = 0.4, .kernel_initializer = weights, .seed = s, .name = n})({x, x});
       }},
      {"Attention",
       [](const Symbolic& x, auto s, const std::string& n) {
         return Attention({.dropout = 0.4, .seed = s, .name = n})({x, x});
       }},
      {"AdditiveAttention",
       [](const Symbolic& x, auto s, const std::string& n) {
         return AdditiveAttention({.use_scale = false, .dropout = 0.4, .seed = s, .name = n})(
             {x, x});
       }},
      {"LSTM dropout", recurrent(lstm, 0.4, 0)},
      {"LSTM recurrent_dropout", recurrent(lstm, 0, 0.4)},
      {"GRU dropout", recurrent(gru, 0.4, 0)},
      {"GRU recurrent_dropout", recurrent(gru, 0, 0.4)},
      {"SimpleRNN dropout", recurrent(simple, 0.4, 0)},
      {"SimpleRNN recurrent_dropout", recurrent(simple, 0, 0.4)},
      {"Bidirectional",
       [=](const Symbolic& x, auto s, const std::string& n) {
         return Bidirectional(GRU(5, {.kernel_initializer = weights,
                                      .recurrent_initializer = weights,
                                      .dropout = 0.4,
                                      .seed = s}),
                              {.name = n})(x);
       }},
  };
  for (const auto& [kind, make] : kinds) {
    const double a = run(make, 5, "a");
    EXPECT_EQ(a, run(make, 5, "other")) << kind;
    EXPECT_NE(a, run(make, 6, "a")) << kind;
    EXPECT_NE(run(make, {}, "a"), run(make, {}, "b")) << kind;
  }
}

TEST(Seeds, OfALayerThatIsCalledTwiceGiveTwoSequences) {
  const Symbolic x = Input({6});
  const LayerRef drop = Dropout(0.5, {.seed = 3});
  Model model({x}, {drop(x), drop(x)});
  const Tensors out = model(Tensors{fill({8, 6}, 1.0)}, true);
  EXPECT_FALSE(equal_values(out[0], out[1]));
  Model other({x}, {Dropout(0.5, {.seed = 3, .name = "again"})(x)});
  EXPECT_TRUE(equal_values(out[0], other(fill({8, 6}, 1.0), true)));
}

TEST(Seeds, OfInitializersNameTheirNumbers) {
  using namespace initializers;
  for (const std::string& seeded :
       {GlorotUniform({.seed = 4}), HeNormal({.seed = 4}), LecunNormal({.seed = 4}),
        RandomNormal({.seed = 4}), RandomUniform({.seed = 4}), TruncatedNormal({.seed = 4}),
        VarianceScaling({.seed = 4}), Orthogonal(1, {.seed = 4})}) {
    Sequential model(Shape{5}, {Dense(5, {.kernel_initializer = seeded}),
                                Dense(5, {.kernel_initializer = seeded})});
    const Tensors weights = model.get_weights();
    EXPECT_TRUE(equal_values(weights[0], weights[2])) << seeded;
    EXPECT_GT(moments_of(weights[0])[1], 0.01) << seeded;
  }
  const std::string five = GlorotUniform({.seed = 5}), four = GlorotUniform({.seed = 4});
  EXPECT_EQ(five, "glorot_uniform:seed=5");
  Sequential model(
      Shape{5}, {Dense(5, {.kernel_initializer = five}), Dense(5, {.kernel_initializer = four})});
  EXPECT_FALSE(equal_values(model.get_weights()[0], model.get_weights()[2]));
  EXPECT_EQ(test::message_of([] { Dense(1, {.kernel_initializer = "he_normal:seed=x"}); }),
            "[model] initializer: expected a whole number as seed, received 'he_normal:seed=x'");
}

}  // namespace
}  // namespace pl::random_test
