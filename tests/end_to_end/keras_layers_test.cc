// Small networks of transformer and convolution layers through the C++ face, against Keras's
// losses, accuracy and predictions in float64. tests/golden/keras_layers.py made the answers and
// says what the networks are for; weights and inputs come from the same counter hash.
#include <gtest/gtest.h>

#include "plimsoll.h"
#include "tests/keras_answers.h"

namespace pl::test::keras_layers_test {
namespace {

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

constexpr const char* kAnswers = "keras_layers.json";

TEST(KerasLayers, EmbeddingAttentionNormalizationAddAndConcatenate) {
  expect_agreement(kAnswers, 0, tokens_network(), integers(kInputSalt, {kBatch, 5}, 11),
                   integers(kLabelSalt, {kBatch, 5}, 11), kWithNorm);
}

TEST(KerasLayers, AttentionAcrossSequencesOfOtherSizes) {
  expect_agreement(kAnswers, 1, cross_network(), real(kInputSalt, {kBatch, 4, 6}, 0),
                   integers(kLabelSalt, {kBatch}, 3), kWithNorm);
}

TEST(KerasLayers, CausalAttentionStepByStepAndConcatenateAlongPositions) {
  expect_agreement(kAnswers, 2, causal_network(), real(kInputSalt, {kBatch, 4, 6}, 0),
                   integers(kLabelSalt, {kBatch, 8}, 4), kWithoutNorm);
}

TEST(KerasLayers, BatchNormalizationWhileTrainingAndByMovingAverages) {
  expect_agreement(kAnswers, 3, normed_network(), real(kInputSalt, {kBatch, 5, 4, 3}, 0),
                   integers(kLabelSalt, {kBatch}, 3), kWithNorm);
}

}  // namespace
}  // namespace pl::test::keras_layers_test
