// The image captioning program of keras.io, against what Keras shows for it
// (tests/golden/keras_programs.py, captioning): an encoder and a decoder made of layers, masks that
// the program makes itself, a loss without a reduction, and as many updates in a train_step as an
// image has captions.
#include <gtest/gtest.h>

#include <cmath>
#include <map>

#include "base/json.h"
#include "plimsoll.h"
#include "tests/keras_program.h"

namespace pl::test::keras_captions_test {
namespace {

class EncoderBlock : public Layer {
 public:
  explicit EncoderBlock(int64_t embed)
      : dense_(Dense(embed, {.activation = "relu"})), attention_(MultiHeadAttention(1, embed)) {}
  const char* kind() const override { return "EncoderBlock"; }
  Shape build(const std::vector<Shape>& in) override { return {in[0][0], dense_units()}; }
  Tensor call(const LayerCall& call) const override {
    const Tensor x = dense_(norm_1_(call.in[0]));
    const Tensor attended = attention_({x, x, x});
    return norm_2_(x + attended);
  }

 private:
  int64_t dense_units() const { return 8; }
  LayerRef norm_1_ = LayerNormalization(), dense_, attention_, norm_2_ = LayerNormalization();
};

class PositionalEmbedding : public Layer {
 public:
  PositionalEmbedding(int64_t length, int64_t words, int64_t embed)
      : tokens_(Embedding(words, embed)), positions_(Embedding(length, embed)), embed_(embed) {}
  const char* kind() const override { return "PositionalEmbedding"; }
  Shape build(const std::vector<Shape>& in) override { return {in[0][0], embed_}; }
  Tensor call(const LayerCall& call) const override {
    const Tensor tokens = tokens_(call.in[0]) * std::sqrt(static_cast<double>(embed_));
    return tokens + positions_(ops::arange(call.in[0].shape().back()));
  }
  Tensor compute_mask(const LayerCall& call) const override {
    return ops::not_equal(call.in[0], 0);
  }

 private:
  LayerRef tokens_, positions_;
  int64_t embed_;
};

class DecoderBlock : public Layer {
 public:
  DecoderBlock(int64_t embed, int64_t ff, int64_t heads, int64_t length, int64_t words)
      : embedding_(std::make_shared<PositionalEmbedding>(length, words, embed)),
        attention_1_(MultiHeadAttention(heads, embed)),
        attention_2_(MultiHeadAttention(heads, embed)),
        ffn_1_(Dense(ff, {.activation = "relu"})),
        ffn_2_(Dense(embed)),
        out_(Dense(words, {.activation = "softmax"})),
        words_(words) {}
  const char* kind() const override { return "DecoderBlock"; }
  Shape build(const std::vector<Shape>& in) override { return {in[0][0], words_}; }
  Tensor call(const LayerCall& call) const override {
    const Tensor &encoded = call.in[1], &mask = call.in[2];
    Tensor x = embedding_(call.in[0]);
    const Tensor i = ops::arange(x.shape()[1]);
    const Tensor causal = ops::cast(ops::expand_dims(i, 1) >= i, "int32");
    const Tensor padding = ops::cast(ops::expand_dims(mask, 2), "int32");
    const Tensor combined = ops::minimum(ops::cast(ops::expand_dims(mask, 1), "int32"), causal);
    Tensor attended = attention_1_({x, x, x, combined});
    x = norm_1_(x + attended);
    attended = attention_2_({x, encoded, encoded, padding});
    x = norm_2_(x + attended);
    return out_(norm_3_(ffn_2_(ffn_1_(x)) + x));
  }

 private:
  LayerRef embedding_, attention_1_, norm_1_ = LayerNormalization(), attention_2_,
                                     norm_2_ = LayerNormalization(), ffn_1_, ffn_2_,
                                     norm_3_ = LayerNormalization(), out_;
  int64_t words_;
};

class Captioning : public Model {
 public:
  Captioning(Model& cnn, LayerRef encoder, LayerRef decoder, int64_t captions)
      : cnn_(cnn),
        encoder_(std::move(encoder)),
        decoder_(std::move(decoder)),
        captions_(captions) {}

  TensorLogs train_step(const StepData& data) override { return step(data, true); }
  TensorLogs test_step(const StepData& data) override { return step(data, false); }

 private:
  std::pair<Tensor, Tensor> loss_and_accuracy(const Tensor& image, const Tensor& words) {
    const Dim last = words.shape()[1] - 1;
    const Tensor encoded = encoder_(image);
    const Tensor given = ops::slice(words, {0, 0}, {words.shape()[0], last});
    const Tensor wanted = ops::slice(words, {0, 1}, {words.shape()[0], last});
    const Tensor mask = ops::not_equal(wanted, 0);
    const Tensor p = decoder_({given, encoded, mask});
    const Tensor counts = ops::cast(mask, "float32");
    const Tensor loss = loss_(wanted, p) * counts;
    const Tensor right = ops::logical_and(mask, ops::equal(wanted, ops::argmax(p, 2)));
    return {ops::sum(loss) / ops::sum(counts),
            ops::sum(ops::cast(right, "float32")) / ops::sum(counts)};
  }
  TensorLogs step(const StepData& data, bool training) {
    Tensor total, accuracy;
    const Tensor embedded = cnn_(data.x());
    for (int64_t i = 0; i < captions_; ++i) {
      GradientTape tape;
      const auto [loss, right] = loss_and_accuracy(embedded, ops::take(data.y(), i, 1));
      total = i == 0 ? loss : total + loss;
      accuracy = i == 0 ? right : accuracy + right;
      if (!training) continue;
      const auto weights = trainable_variables();
      optimizer().apply_gradients(zip(tape.gradient(loss, weights), weights));
    }
    loss_tracker_.update_state(total);
    acc_tracker_.update_state(accuracy / static_cast<double>(captions_));
    return {{"loss", loss_tracker_.result()}, {"acc", acc_tracker_.result()}};
  }

  Model& cnn_;
  LayerRef encoder_, decoder_;
  int64_t captions_;
  Loss loss_ = losses::SparseCategoricalCrossentropy({.reduction = "none"});
  metrics::Mean loss_tracker_{"loss"}, acc_tracker_{"accuracy"};
};

class WarmUp : public LearningRateSchedule {
 public:
  double at(int64_t step) const override {
    return step < 4 ? 0.1 * static_cast<double>(step) / 4 : 0.1;
  }
};

TEST(KerasPrograms, ImageCaptioning) {
  constexpr Dim kWords = 11, kLength = 7, kEmbed = 8;
  Sequential cnn(Shape{8, 8, 3},
                 {Conv2D(6, 3, {.strides = 2, .activation = "relu"}), Reshape({9, 6})});
  cnn.set_trainable(false);
  const Tensor images = wave({20, 8, 8, 3}, 0);
  Tensor captions = tokens({20, 3, kLength + 1}, kWords);
  for (Dim row = 0; row < 60; row += 3)  // padding
    for (Dim at = kLength - 2; at <= kLength; ++at)
      captions.data_as<int32_t>()[row * (kLength + 1) + at] = 0;
  Captioning model(cnn, LayerRef(std::make_shared<EncoderBlock>(kEmbed)),
                   LayerRef(std::make_shared<DecoderBlock>(kEmbed, 12, 2, kLength, kWords)), 3);
  model.compile(
      {.optimizer =
           SGD({.learning_rate = std::make_shared<WarmUp>(), .momentum = 0.9, .nesterov = true})});
  model.evaluate(images, captions, {.batch_size = 10, .threads = 1});  // makes the weights
  settle(model);
  FitOptions options = with(8, 2);
  options.validation_data = {ops::slice(images, {0, 0, 0, 0}, {10, 8, 8, 3}),
                             ops::slice(captions, {0, 0, 0}, {10, 3, kLength + 1})};
  Shown shown = model.fit(images, captions, options).history;
  const Results test = model.evaluate(images, captions, {.batch_size = 10, .threads = 1});
  shown["test"] = {test.at("loss"), test.at("acc")};
  shown["weights"] = {weight_sum(model) - weight_sum(cnn)};
  shown["iterations"] = {static_cast<double>(model.optimizer().iterations())};
  expect_shown("captioning", shown);
}

}  // namespace
}  // namespace pl::test::keras_captions_test
