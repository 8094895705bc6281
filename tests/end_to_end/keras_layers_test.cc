// Small networks of transformer and convolution layers through the C++ face, against Keras's
// losses, accuracy and predictions in float64. tests/golden/keras_layers.py made the answers and
// says what the networks are for; weights and inputs come from the same counter hash.
#include <gtest/gtest.h>

#include <cmath>

#include "base/json.h"
#include "plimsoll.h"
#include "tests/data_files.h"

namespace pl::test {
namespace {

constexpr Dim kBatch = 3;
constexpr uint32_t kInputSalt = 1001, kLabelSalt = 1002;

uint32_t hashed(uint32_t salt, int64_t i) {
  uint32_t x = static_cast<uint32_t>(i) + salt * 0x9E3779B1u;
  x ^= x >> 16;
  x *= 0x85EBCA6Bu;
  x ^= x >> 13;
  x *= 0xC2B2AE35u;
  return x ^ (x >> 16);
}

// uniform in [centre - 2^exponent, centre + 2^exponent)
Tensor real(uint32_t salt, Shape shape, int exponent, double centre = 0) {
  Tensor tensor({Dtype::float64, std::move(shape)});
  for (int64_t i = 0; i < tensor.meta().elements(); ++i) {
    const double whole = static_cast<double>(hashed(salt, i) >> 8) - 8388608.0;
    tensor.data_as<double>()[i] = std::ldexp(whole, exponent - 23) + centre;
  }
  return tensor;
}

Tensor integers(uint32_t salt, Shape shape, uint32_t below) {
  Tensor tensor({Dtype::int32, std::move(shape)});
  for (int64_t i = 0; i < tensor.meta().elements(); ++i)
    tensor.data_as<int32_t>()[i] = static_cast<int32_t>(hashed(salt, i) % below);
  return tensor;
}

Model tokens_network() {
  const Symbolic x = Input({5});
  const Symbolic e = Embedding(11, 8, {.name = "emb"})(x);
  const Symbolic a = MultiHeadAttention(2, 4, {.use_causal_mask = true, .name = "mha"})({e, e});
  const Symbolic n = LayerNormalization({.name = "ln"})(Add("add")({e, a}));
  const Symbolic d = Dense(6, {.activation = "gelu", .name = "dense"})(n);
  const Symbolic c = Concatenate(-1, "cat")({n, d});
  return Model(x, Dense(11, {.activation = "softmax", .name = "head"})(c));
}

Model cross_network() {
  const Symbolic x = Input({4, 6});
  const Symbolic q = Dense(8, {.activation = "tanh", .name = "q"})(x);
  const Symbolic v = Dense(5, {.name = "v"})(x), k = Dense(7, {.name = "k"})(x);
  const Symbolic a =
      MultiHeadAttention(3, 4, {.value_dim = 2, .use_bias = false, .name = "mha"})({q, v, k});
  const Symbolic n = LayerNormalization({.epsilon = 1e-5, .name = "ln"})(a);
  return Model(x, Dense(3, {.activation = "softmax", .name = "head"})(Flatten("flat")(n)));
}

Model causal_network() {
  const Symbolic x = Input({4, 6});
  const Symbolic a = MultiHeadAttention(
      2, 3, {.value_dim = 5, .use_causal_mask = true, .name = "mha"})(std::vector<Symbolic>{x, x});
  const Symbolic c = Concatenate(1, "cat")({x, a});
  return Model(x, Dense(4, {.activation = "softmax", .name = "head"})(c));
}

Model normed_network() {
  const Symbolic x = Input({5, 4, 3});
  const Symbolic c = Conv2D(7, 3, {.padding = "same", .use_bias = false, .name = "conv"})(x);
  const Symbolic b = BatchNormalization({.momentum = 0.8, .epsilon = 1e-2, .name = "bn"})(c);
  const Symbolic d =
      Conv2D(3, 1, {.use_bias = false, .name = "point"})(Activation("relu", "act")(b));
  const Symbolic e = BatchNormalization({.center = false, .scale = false, .name = "plain"})(d);
  const Symbolic s = Activation("relu", "sum")(Add("add")({e, x}));
  return Model(x, Dense(3, {.activation = "softmax", .name = "head"})(Flatten("flat")(s)));
}

void set_weights_like_keras(Model& model, const Json& paths) {
  std::vector<std::string> sorted;
  for (const Json& path : paths.as_array("paths")) sorted.push_back(path.as_string("path"));
  Tensors values;
  for (const WeightInfo& weight : model.weights()) {
    const auto at = std::find(sorted.begin(), sorted.end(), weight.path);
    ASSERT_NE(at, sorted.end()) << weight.path << " is not a weight of Keras's network";
    const bool scales = weight.path.ends_with("gamma") || weight.path.ends_with("moving_variance");
    values.push_back(
        real(static_cast<uint32_t>(at - sorted.begin()), weight.meta.shape, -1, scales ? 1 : 0));
  }
  ASSERT_EQ(values.size(), sorted.size());
  model.set_weights(values);
}

// Keras computes norms in float32 whatever the dtype is.
constexpr double kWithNorm = 1e-6, kWithoutNorm = 1e-9;

void expect_agreement(size_t index, Model model, const Tensor& x, const Tensor& y,
                      double tolerance) {
  const Json answers = parse_json(::pl::testing::read_bytes(std::string(PLIMSOLL_SOURCE_DIR) +
                                                            "/tests/golden/keras_layers.json"),
                                  "keras_layers.json");
  const Json& answer = answers.at("cases", "answers").as_array("cases")[index];
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .dtype = Dtype::float64});
  set_weights_like_keras(model, answer.at("paths", "case"));
  const History history = model.fit(
      x, y, {.batch_size = kBatch, .epochs = 10, .shuffle = false, .verbose = 0, .threads = 1});
  const auto& losses = answer.at("losses", "case").as_array("losses");
  for (size_t i = 0; i < losses.size(); ++i) {
    const double theirs = losses[i].as_real("loss");
    EXPECT_NEAR(history.history.at("loss")[i], theirs, tolerance * theirs) << "step " << i + 1;
  }
  EXPECT_NEAR(model.evaluate(x, y)["accuracy"], answer.at("accuracy", "case").as_real("accuracy"),
              1e-6);
  const Tensor predictions = model.predict(x);
  const auto& wanted = answer.at("predictions", "case").as_array("predictions");
  for (size_t i = 0; i < wanted.size(); ++i)
    EXPECT_NEAR(predictions.data_as<double>()[i], wanted[i].as_real("prediction"), 3 * tolerance)
        << i;
}

TEST(KerasLayers, EmbeddingAttentionNormalizationAddAndConcatenate) {
  expect_agreement(0, tokens_network(), integers(kInputSalt, {kBatch, 5}, 11),
                   integers(kLabelSalt, {kBatch, 5}, 11), kWithNorm);
}

TEST(KerasLayers, AttentionAcrossSequencesOfOtherSizes) {
  expect_agreement(1, cross_network(), real(kInputSalt, {kBatch, 4, 6}, 0),
                   integers(kLabelSalt, {kBatch}, 3), kWithNorm);
}

TEST(KerasLayers, CausalAttentionStepByStepAndConcatenateAlongPositions) {
  expect_agreement(2, causal_network(), real(kInputSalt, {kBatch, 4, 6}, 0),
                   integers(kLabelSalt, {kBatch, 8}, 4), kWithoutNorm);
}

TEST(KerasLayers, BatchNormalizationWhileTrainingAndByMovingAverages) {
  expect_agreement(3, normed_network(), real(kInputSalt, {kBatch, 5, 4, 3}, 0),
                   integers(kLabelSalt, {kBatch}, 3), kWithNorm);
}

}  // namespace
}  // namespace pl::test
