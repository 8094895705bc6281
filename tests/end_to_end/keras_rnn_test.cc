// Recurrent layers and wrappers over steps against Keras: outputs and gradients in float64 and
// float32, and ten losses. tests/golden/keras_rnn.py made the answers; the networks here have its
// names.
#include "tests/keras_layer_case.h"

namespace pl::test::keras_rnn_test {
namespace {

constexpr const char* kFile = "keras_rnn.json";
constexpr int kMasked = -30;
// On TensorFlow, Keras takes Adam's 1 - beta_2 in float32, whatever the dtype is.
constexpr double kWithTheirAdam = 3e-6;

LayerCase masked(Shape shape, const std::vector<LayerRef>& layers) {
  return {{std::move(shape)},
          [layers](const std::vector<Symbolic>& x) {
            Symbolic y = Masking(0.0)(x[0]);
            for (const LayerRef& layer : layers) y = layer(y);
            return y;
          },
          kMasked};
}

void add_lstm(std::map<std::string, LayerCase>& cases) {
  cases["lstm"] = one({5, 3}, LSTM(4, {.name = "r"}));
  cases["lstm_sequences"] = one({5, 3}, LSTM(7, {.return_sequences = true, .name = "r"}));
  cases["lstm_backwards"] =
      one({5, 3}, LSTM(4, {.return_sequences = true, .go_backwards = true, .name = "r"}));
  cases["lstm_backwards_last"] = one({5, 3}, LSTM(4, {.go_backwards = true, .name = "r"}));
  cases["lstm_no_bias"] = one({5, 3}, LSTM(4, {.use_bias = false, .name = "r"}));
  cases["lstm_relu"] = one(
      {5, 3}, LSTM(4, {.activation = "relu", .recurrent_activation = "hard_sigmoid", .name = "r"}));
  cases["lstm_wide"] = one({3, 5}, LSTM(19, {.return_sequences = true, .name = "r"}));
  cases["lstm_one_step"] = one({1, 3}, LSTM(4, {.name = "r"}));
  cases["lstm_masked"] = masked({6, 3}, {LSTM(4, {.name = "r"})});
  cases["lstm_masked_sequences"] =
      masked({6, 3}, {LSTM(4, {.return_sequences = true, .name = "r"})});
  cases["lstm_masked_backwards"] =
      masked({6, 3}, {LSTM(4, {.return_sequences = true, .go_backwards = true, .name = "r"})});
  cases["lstm_state"] =
      merged({{5, 3}, {4}, {4}}, LSTM(4, {.return_sequences = true, .name = "r"}));
  cases["lstm_stack"] =
      masked({6, 3}, {LSTM(4, {.return_sequences = true, .name = "a"}), LSTM(5, {.name = "b"})});
}

void add_others(std::map<std::string, LayerCase>& cases) {
  cases["gru"] = one({5, 3}, GRU(4, {.name = "r"}));
  cases["gru_sequences"] = one({5, 3}, GRU(19, {.return_sequences = true, .name = "r"}));
  cases["gru_backwards"] =
      one({5, 3}, GRU(4, {.return_sequences = true, .go_backwards = true, .name = "r"}));
  cases["gru_no_bias"] = one({5, 3}, GRU(4, {.use_bias = false, .name = "r"}));
  cases["gru_before"] = one({5, 3}, GRU(4, {.reset_after = false, .name = "r"}));
  cases["gru_before_backwards"] = one(
      {5, 3},
      GRU(4, {.return_sequences = true, .go_backwards = true, .reset_after = false, .name = "r"}));
  cases["gru_before_masked"] =
      masked({6, 3}, {GRU(4, {.return_sequences = true, .reset_after = false, .name = "r"})});
  cases["gru_relu"] = one(
      {5, 3}, GRU(4, {.activation = "relu", .recurrent_activation = "hard_sigmoid", .name = "r"}));
  cases["gru_masked"] = masked({6, 3}, {GRU(4, {.return_sequences = true, .name = "r"})});
  cases["gru_state"] = merged({{5, 3}, {4}}, GRU(4, {.name = "r"}));
  cases["simple"] = one({5, 3}, SimpleRNN(4, {.name = "r"}));
  cases["simple_relu"] =
      one({5, 3},
          SimpleRNN(
              4, {.activation = "relu", .use_bias = false, .return_sequences = true, .name = "r"}));
  cases["simple_masked"] =
      masked({6, 3}, {SimpleRNN(4, {.return_sequences = true, .go_backwards = true, .name = "r"})});
  cases["simple_state"] = merged({{5, 3}, {4}}, SimpleRNN(4, {.name = "r"}));
}

void add_wrappers(std::map<std::string, LayerCase>& cases) {
  for (const char* mode : {"concat", "sum", "mul", "ave"})
    cases["bidirectional_" + std::string(mode)] =
        one({5, 3}, Bidirectional(LSTM(4, {.return_sequences = true, .name = "r"}),
                                  {.merge_mode = mode, .name = "b"}));
  cases["bidirectional_last"] = one({5, 3}, Bidirectional(GRU(4, {.name = "r"}), {.name = "b"}));
  cases["bidirectional_masked"] = masked(
      {6, 3}, {Bidirectional(LSTM(4, {.return_sequences = true, .name = "r"}), {.name = "b"})});
  cases["bidirectional_masked_last"] = masked(
      {6, 3}, {Bidirectional(SimpleRNN(4, {.name = "r"}), {.merge_mode = "sum", .name = "b"})});
  cases["bidirectional_pair"] =
      one({5, 3},
          Bidirectional(LSTM(4, {.return_sequences = true, .name = "r"}),
                        {.backward_layer = GRU(
                             5, {.return_sequences = true, .go_backwards = true, .name = "other"}),
                         .name = "b"}));
  cases["time_distributed"] =
      one({4, 5}, TimeDistributed(Dense(3, {.activation = "tanh", .name = "d"}), "t"));
  cases["time_distributed_images"] =
      one({3, 5, 4, 2}, TimeDistributed(Conv2D(3, 3, {.padding = "same", .name = "c"}), "t"));
}

// Everything that a layer gives for {x, states...}, side by side.
LayerCase all_of(std::vector<Shape> shapes, LayerRef layer, bool mask = false) {
  return {std::move(shapes),
          [layer, mask](const std::vector<Symbolic>& in) {
            std::vector<Symbolic> operands = in, flat;
            if (mask) operands[0] = Masking(0.0)(in[0]);
            for (const Symbolic& result : layer.all(operands)) flat.push_back(Flatten()(result));
            return Concatenate(-1, "all")(flat);
          },
          mask ? kMasked : 1};
}

Symbolic translate(const std::vector<Symbolic>& in) {
  const auto encoded =
      LSTM(4, {.return_state = true, .name = "encoder"}).all({Masking(0.0)(in[0])});
  return LSTM(4, {.return_sequences = true, .name = "decoder"})({in[1], encoded[1], encoded[2]});
}

void add_states(std::map<std::string, LayerCase>& cases) {
  const LSTMOptions lstm{.return_sequences = true, .return_state = true, .name = "r"};
  const GRUOptions gru{.return_sequences = true, .return_state = true, .name = "r"};
  const BidirectionalOptions both{.name = "b"}, apart{.merge_mode = "", .name = "b"};
  cases["lstm_return_state"] = all_of({{5, 3}}, LSTM(4, lstm));
  cases["lstm_return_state_masked"] =
      all_of({{6, 3}}, LSTM(4, {.return_state = true, .go_backwards = true, .name = "r"}), true);
  cases["gru_return_state"] = all_of({{5, 3}, {4}}, GRU(4, gru));
  cases["simple_return_state"] =
      all_of({{5, 3}}, SimpleRNN(4, {.return_state = true, .name = "r"}));
  cases["bidirectional_state"] = all_of({{5, 3}}, Bidirectional(LSTM(4, lstm), both));
  cases["bidirectional_apart"] = all_of({{6, 3}}, Bidirectional(GRU(4, gru), apart), true);
  cases["bidirectional_first_state"] =
      merged({{5, 3}, {4}, {4}, {4}, {4}},
             Bidirectional(LSTM(4, {.return_sequences = true, .name = "r"}), both));
  cases["encoder_decoder"] = {{{6, 3}, {6, 2}}, translate, kMasked};
  cases["time_distributed_masked"] =
      masked({3, 4, 2}, {TimeDistributed(LSTM(3, {.name = "r"}), "t")});
  cases["time_distributed_handed_on"] =
      masked({6, 3}, {TimeDistributed(Dense(4, {.name = "d"}), "t"), GRU(3, {.name = "r"})});
}

void expect_layers(Dtype dtype) {
  std::map<std::string, LayerCase> cases;
  add_lstm(cases);
  add_others(cases);
  add_wrappers(cases);
  add_states(cases);
  expect_cases(kFile, "layers", cases, dtype);
}

TEST(KerasRnn, OutputsAndGradientsInFloat64) { expect_layers(Dtype::float64); }
TEST(KerasRnn, OutputsAndGradientsInFloat32) { expect_layers(Dtype::float32); }

TEST(KerasRnn, TenLossesOfPaddedText) {
  const Symbolic x = Input({7});
  const Symbolic r =
      LSTM(5, {.name = "lstm"})(Embedding(11, 6, {.mask_zero = true, .name = "emb"})(x));
  expect_agreement(kFile, 0, Model(x, Dense(3, {.activation = "softmax", .name = "head"})(r)),
                   integers(kInputSalt, {kBatch, 7}, 11), integers(kLabelSalt, {kBatch}, 3),
                   kWithTheirAdam);
}

TEST(KerasRnn, TenLossesOfNextTokens) {
  const Symbolic x = Input({6});
  const Symbolic a = Bidirectional(GRU(4, {.return_sequences = true, .name = "gru"}),
                                   {.name = "both"})(Embedding(11, 6, {.name = "emb"})(x));
  const Symbolic r = LSTM(5, {.return_sequences = true, .name = "lstm"})(a);
  expect_agreement(kFile, 1, Model(x, Dense(11, {.activation = "softmax", .name = "head"})(r)),
                   integers(kInputSalt, {kBatch, 6}, 11), integers(kLabelSalt, {kBatch, 6}, 11),
                   kWithTheirAdam);
}

// Steps without a token count neither in the loss nor in the accuracy.
TEST(KerasRnn, TenLossesOfPaddedNextTokens) {
  const Symbolic x = Input({7});
  const Symbolic e = Embedding(11, 6, {.mask_zero = true, .name = "emb"})(x);
  const Symbolic r = LSTM(5, {.return_sequences = true, .name = "lstm"})(e);
  expect_agreement(kFile, 2, Model(x, Dense(11, {.activation = "softmax", .name = "head"})(r)),
                   integers(kInputSalt, {kBatch, 7}, 11), integers(kLabelSalt, {kBatch, 7}, 11),
                   kWithTheirAdam);
}

}  // namespace
}  // namespace pl::test::keras_rnn_test
