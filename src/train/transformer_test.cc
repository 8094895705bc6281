// Transformer layers through the C++ face: tokens in, weights shared, and what is refused.
#include <gtest/gtest.h>

#include <cmath>

#include "model/gpt.h"
#include "plimsoll.h"
#include "tests/messages.h"

namespace pl::transformer_test {
namespace {

Tensor tokens(Shape shape, int32_t step, int32_t below) {
  Tensor tensor({Dtype::int32, std::move(shape)});
  for (int64_t i = 0; i < tensor.meta().elements(); ++i)
    tensor.data_as<int32_t>()[i] = static_cast<int32_t>(i * step % below);
  return tensor;
}

Model small_gpt(int64_t length) {
  const Symbolic in = Input({length});
  Model model(in, gpt({2, 16, 2, 12}, in));
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = Loss{"sparse_categorical_crossentropy", true},
                 .metrics = {"accuracy"}});
  return model;
}

TEST(Transformer, LearnsToCountThroughTheCppFace) {
  Model model = small_gpt(8);
  // Each token follows the one before it by one.
  Tensor x({Dtype::int32, {24, 8}}), y({Dtype::int32, {24, 8}});
  for (int64_t i = 0; i < 24 * 8; ++i) {
    x.data_as<int32_t>()[i] = static_cast<int32_t>((i / 8 + i % 8) % 12);
    y.data_as<int32_t>()[i] = static_cast<int32_t>((i / 8 + i % 8 + 1) % 12);
  }
  const History history =
      model.fit(x, y, {.batch_size = 8, .epochs = 30, .verbose = 0, .threads = 1});
  EXPECT_NEAR(history.history.at("loss")[0], std::log(12.0), 0.5);
  EXPECT_EQ(history.used_arena, history.planned_arena);
  Results results = model.evaluate(x, y);
  EXPECT_GT(results["accuracy"], 0.95);
  const Tensor logits = model.predict(x);
  ASSERT_EQ(logits.shape(), (Shape{24, 8, 12}));
  // The mean over all positions, computed by hand from the predictions.
  double loss = 0;
  for (int64_t i = 0; i < 24 * 8; ++i) {
    const float* row = logits.data_as<float>() + i * 12;
    double sum = 0;
    for (int c = 0; c < 12; ++c) sum += std::exp(static_cast<double>(row[c]));
    loss += std::log(sum) - static_cast<double>(row[y.data_as<int32_t>()[i]]);
  }
  EXPECT_NEAR(results["loss"], loss / (24 * 8), 1e-5);
}

TEST(Transformer, PredictionsDependOnEarlierTokensOnly) {
  Model model = small_gpt(8);
  Tensor a = tokens({1, 8}, 5, 12), b = tokens({1, 8}, 5, 12);
  b.data_as<int32_t>()[5] = (b.data_as<int32_t>()[5] + 1) % 12;
  const Tensor ya = model.predict(a), yb = model.predict(b);
  for (int i = 0; i < 8 * 12; ++i)
    EXPECT_EQ(ya.data_as<float>()[i] == yb.data_as<float>()[i], i / 12 < 5) << i;
}

TEST(Transformer, ATiedHeadIsOneVariable) {
  const Symbolic in = Input({3});
  const LayerRef table = Embedding(5, 4);
  Model model(in, TiedDense(table)(table(in)));
  ASSERT_EQ(model.weights().size(), 1u);
  EXPECT_EQ(model.weights()[0].path, "embedding/embeddings");
  EXPECT_EQ(model.count_params(), 20);
  // Logits are table[token] . table^T.
  Tensor weights({Dtype::float32, {5, 4}});
  for (int i = 0; i < 20; ++i) weights.data_as<float>()[i] = static_cast<float>(i % 7) - 3;
  model.set_weights({weights});
  const Tensor y = model.predict(tokens({1, 3}, 2, 5));
  const float* w = weights.data_as<float>();
  for (int t = 0; t < 3; ++t)
    for (int c = 0; c < 5; ++c) {
      float dot = 0;
      for (int d = 0; d < 4; ++d) dot += w[t * 2 % 5 * 4 + d] * w[c * 4 + d];
      EXPECT_EQ(y.data_as<float>()[t * 5 + c], dot);
    }
  model.compile({.optimizer = "adam", .loss = Loss{"sparse_categorical_crossentropy", true}});
  EXPECT_NE(model.summary().find("Total params: 20"), std::string::npos) << model.summary();
}

TEST(Transformer, ASequentialThatStartsWithAnEmbeddingReadsTokens) {
  Sequential model({Embedding(6, 4), Flatten(), Dense(2, {.activation = "softmax"})});
  model.compile({.optimizer = Adam({.learning_rate = 0.05}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"}});
  // Does the token 5 occur?
  Tensor x({Dtype::uint8, {32, 3}}), y({Dtype::int32, {32}});
  for (int i = 0; i < 32; ++i) {
    y.data_as<int32_t>()[i] = 0;
    for (int t = 0; t < 3; ++t) {
      const int token = (i * 7 + t * 5 + i / 6) % 6;
      x.data_as<uint8_t>()[i * 3 + t] = static_cast<uint8_t>(token);
      if (token == 5) y.data_as<int32_t>()[i] = 1;
    }
  }
  model.fit(x, y, {.epochs = 60, .verbose = 0, .threads = 1});
  EXPECT_GT(model.evaluate(x, y)["accuracy"], 0.95);
  x.data_as<uint8_t>()[4] = 6;
  // Bytes are not looked through beforehand; the table gives NaN for what it does not have.
  EXPECT_TRUE(std::isnan(model.predict(x).data_as<float>()[2]));
}

TEST(Transformer, SummaryGivesActivationsToLayersWithSlashesInTheirNames) {
  const std::string text = small_gpt(8).summary({.batch_size = 2});
  EXPECT_NE(text.find("block_0/attn/qkv (Dense)"), std::string::npos) << text;
  const size_t line = text.find("block_0/mlp/fc (Dense)");
  ASSERT_NE(line, std::string::npos);
  // GELU's input and output are kept: 2 samples, 8 positions, 64 features each.
  EXPECT_NE(text.substr(line, text.find('\n', line) - line).find("8.00 KiB"), std::string::npos)
      << text;
}

TEST(Transformer, AttentionWithDropoutTrains) {
  const Symbolic x = Input({4, 6});
  const Symbolic a = MultiHeadAttention(2, 3, {.dropout = 0.5, .use_causal_mask = true})(x);
  Model model(x, Dense(3, {.activation = "softmax"})(a));
  model.compile({.optimizer = "adam", .loss = "sparse_categorical_crossentropy"});
  Tensor in({Dtype::float32, {2, 4, 6}});
  for (int i = 0; i < 48; ++i) in.data_as<float>()[i] = static_cast<float>(i % 5) - 2;
  const History history = model.fit(in, tokens({2, 4}, 1, 3), {.epochs = 2, .verbose = 0});
  for (double loss : history.history.at("loss")) EXPECT_TRUE(std::isfinite(loss));
}

TEST(Transformer, RefusesWhatIsNotTokens) {
  Model model = small_gpt(4);
  const Tensor y = tokens({2, 4}, 1, 12);
  EXPECT_NE(test::message_of([&] {
              model.fit(Tensor({Dtype::float32, {2, 4}}), y, {.verbose = 0});
            }).find("wte: expected tokens, integers below 12"),
            std::string::npos);
  Tensor outside = tokens({2, 4}, 1, 12);
  outside.data_as<int32_t>()[3] = 12;
  EXPECT_NE(
      test::message_of([&] { model.fit(outside, y, {.verbose = 0}); }).find("tokens from 0 to 11"),
      std::string::npos);
  outside.data_as<int32_t>()[3] = -1;
  EXPECT_NE(test::message_of([&] { model.predict(outside); }).find("tokens from 0 to 11"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] { model.fit(y, outside, {.verbose = 0}); }).find("from 0 to 11"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] {
              model.fit(y, tokens({2}, 1, 12), {.verbose = 0});
            }).find("expected targets of int32 (4"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] { model.predict(y, {.x_scale = 0.5}); }).find("leave x_scale out"),
            std::string::npos);
  // Other integers are tokens too.
  Tensor wide({Dtype::int64, {1, 4}});
  for (int i = 0; i < 4; ++i) wide.data_as<int64_t>()[i] = i;
  EXPECT_EQ(model.predict(wide).shape(), (Shape{1, 4, 12}));
}

TEST(Transformer, RefusesLayersThatDoNotFitTogether) {
  const Symbolic in = Input({3});
  const LayerRef table = Embedding(5, 4);
  const LayerRef head = TiedDense(table);
  EXPECT_NE(test::message_of([&] {
              head(Input({3, 4}));
            }).find("Embedding to be called before it"),
            std::string::npos);
  const Symbolic e = table(in);
  EXPECT_NE(test::message_of([&] {
              head(Input({3, 5}));
            }).find("expected one input with 4 features"),
            std::string::npos);
  // The table is called, but not in this network.
  const Symbolic other = Input({3, 4});
  EXPECT_NE(test::message_of([&] { Model(other, head(other)); }).find("to be part of the network"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] { TiedDense(Dense(3)); }).find("expected an Embedding"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] {
              Add()({e, other, Input({3, 5})});
            }).find("inputs of one shape"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] { Add()(e); }).find("at least two inputs"), std::string::npos);
  EXPECT_NE(test::message_of([&] {
              Concatenate(0)({e, e});
            }).find("behind the batch"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] {
              Concatenate(1)({e, Input({3, 5})});
            }).find("alike but for the axis"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] {
              PackedAttention(4)(Input({3, 8}));
            }).find("a multiple of 4 heads"),
            std::string::npos);
  EXPECT_NE(
      test::message_of([&] { MultiHeadAttention(2, 4)(Input({3})); }).find("(positions, features)"),
      std::string::npos);
  EXPECT_NE(test::message_of([&] { MultiHeadAttention(0, 4); }).find("positive num_heads"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] { LayerNormalization({.epsilon = 0}); }).find("epsilon"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] { PositionalEmbedding()(in); }).find("(positions, features)"),
            std::string::npos);
  EXPECT_NE(test::message_of([&] {
              Dense(2, {.kernel_initializer = "random_normal:x"});
            }).find("random_normal"),
            std::string::npos);
}

}  // namespace
}  // namespace pl::transformer_test
