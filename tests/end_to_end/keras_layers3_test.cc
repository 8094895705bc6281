// More layers alone against Keras: transposed and depthwise convolutions, volumes, attention, masks
// that leave out first steps. tests/golden/keras_layers3.py made the answers; the networks here
// have its names.
#include "tests/keras_layer_case.h"

namespace pl::test::keras_layers3_test {
namespace {

constexpr const char* kFile = "keras_layers3.json";

LayerCase late(std::vector<Shape> shapes, LayerRef layer) {
  return {std::move(shapes),
          [layer](const std::vector<Symbolic>& in) {
            std::vector<Symbolic> operands = in;
            operands[0] = Masking(0.0)(in[0]);
            return layer(operands);
          },
          kLate};
}
LayerCase late_pair(LayerRef layer) {
  return {{{5, 4}, {6, 4}},
          [layer](const std::vector<Symbolic>& in) {
            return layer(std::vector<Symbolic>{Masking(0.0)(in[0]), Masking(0.0)(in[1])});
          },
          kLate};
}
// Keras takes the softmax in float32, whatever the dtype is.
LayerCase heads(LayerRef layer, bool mask) {
  LayerCase c = network(
      {5, 4},
      [layer, mask](const std::vector<Symbolic>& in) {
        const Symbolic m = mask ? Masking(0.0)(in[0]) : in[0];
        return layer(std::vector<Symbolic>{m, m});
      },
      mask ? kLate : 1);
  c.least = 0.1;  // of the key bias, whose slopes are 0
  return in_float32(c);
}

LayerCase attention_mask(LayerRef layer) {
  LayerCase c{{{5, 4}, {6, 4}, {5, 6}}, [layer](const std::vector<Symbolic>& in) {
                return layer(std::vector<Symbolic>{in[0], in[1], in[1], in[2] > -1.0}) +
                       ops::mean(in[2], {1, 2}, true);
              }};
  c.least = 0.1;
  return in_float32(c);
}

void add_convolutions(std::map<std::string, LayerCase>& cases) {
  cases["conv1d_transpose_same_even"] = one(
      {5, 2},
      Conv1DTranspose(3, 4, {.strides = 2, .padding = "same", .activation = "relu", .name = "c"}));
  cases["conv1d_transpose_valid"] = one({4, 2}, Conv1DTranspose(3, 2, {.strides = 3, .name = "c"}));
  cases["depthwise1d_same_even"] = one(
      {7, 3},
      DepthwiseConv1D(4, {.strides = 2, .padding = "same", .depth_multiplier = 2, .name = "c"}));
  cases["depthwise1d_dilated"] = one({9, 3}, DepthwiseConv1D(3, {.dilation_rate = 2, .name = "c"}));
  cases["separable1d_same"] = one(
      {7, 3},
      SeparableConv1D(4, 4, {.strides = 2, .padding = "same", .depth_multiplier = 2, .name = "c"}));
  cases["separable1d_valid"] = one({7, 3}, SeparableConv1D(4, 3, {.use_bias = false, .name = "c"}));
  cases["conv3d_transpose_same"] =
      one({3, 2, 4, 2},
          Conv3DTranspose(3, {4, 2, 3}, {.strides = {2, 1, 2}, .padding = "same", .name = "c"}));
  cases["conv3d_transpose_valid"] =
      one({2, 3, 2, 2},
          Conv3DTranspose(3, {2, 3, 2}, {.strides = {3, 1, 2}, .use_bias = false, .name = "c"}));
  cases["zero_padding3d"] = one({2, 3, 4, 2}, ZeroPadding3D(Padding3D({1, 0}, {2, 1}, {0, 3})));
  cases["cropping3d"] = one({5, 4, 6, 2}, Cropping3D(Padding3D({1, 2}, {0, 1}, {2, 3})));
  cases["up_sampling3d"] = one({2, 3, 2, 2}, UpSampling3D({2, 1, 3}));
}

void add_attention(std::map<std::string, LayerCase>& cases) {
  const std::vector<Shape> pair{{5, 4}, {6, 4}};
  cases["attention"] = merged({{5, 4}, {6, 3}, {6, 4}}, Attention());
  cases["attention_scale"] = merged(pair, Attention({.use_scale = true, .name = "a"}));
  cases["attention_concat"] =
      merged(pair, Attention({.use_scale = true, .score_mode = "concat", .name = "a"}));
  cases["attention_causal"] = merged(pair, Attention({.use_causal_mask = true}));
  cases["attention_masked"] = late_pair(Attention());
  cases["attention_masked_causal"] = late_pair(Attention({.use_causal_mask = true}));
  cases["additive"] = merged(pair, AdditiveAttention({.name = "a"}));
  cases["additive_plain"] = merged(pair, AdditiveAttention({.use_scale = false}));
  // 1e9 and what is added to it leave few digits of scores in rows in which nothing counts.
  for (const char* name : {"attention_masked", "attention_masked_causal"})
    cases[name].tolerance = 1e-6;
  cases["heads_output_shape"] =
      heads(MultiHeadAttention(2, 3, {.output_shape = 7, .name = "m"}), false);
  cases["heads_masked"] = heads(MultiHeadAttention(2, 3, {.name = "m"}), true);
  cases["heads_masked_causal"] =
      heads(MultiHeadAttention(2, 3, {.use_causal_mask = true, .name = "m"}), true);
  cases["heads_masked_values"] =
      heads(MultiHeadAttention(2, 3, {.value_dim = 2, .name = "m"}), true);
  cases["heads_attention_mask"] = attention_mask(MultiHeadAttention(2, 3, {.name = "m"}));
  cases["heads_attention_mask_causal"] =
      attention_mask(MultiHeadAttention(2, 3, {.use_causal_mask = true, .name = "m"}));
  cases["grouped_attention_mask"] = attention_mask(GroupedQueryAttention(3, 4, 2, {.name = "m"}));
  cases["grouped_masked"] = heads(GroupedQueryAttention(3, 4, 2, {.name = "m"}), true);
}

void add_late(std::map<std::string, LayerCase>& cases) {
  cases["lstm_late"] = late({{6, 3}, {4}, {4}}, LSTM(4, {.return_sequences = true, .name = "r"}));
  cases["lstm_late_last"] = late({{6, 3}, {4}, {4}}, LSTM(4, {.name = "r"}));
  cases["lstm_late_backwards"] = late(
      {{6, 3}, {4}, {4}}, LSTM(4, {.return_sequences = true, .go_backwards = true, .name = "r"}));
  cases["gru_late"] = late({{6, 3}, {4}}, GRU(4, {.return_sequences = true, .name = "r"}));
  cases["simple_late"] = late({{2, 3}, {4}}, SimpleRNN(4, {.name = "r"}));
  cases["bidirectional_late"] =
      late({{6, 3}, {4}, {4}},
           Bidirectional(GRU(4, {.return_sequences = true, .name = "r"}), {.name = "b"}));
}

void add_steps(std::map<std::string, LayerCase>& cases) {
  cases["lstm_softsign"] =
      merged({{5, 3}, {4}, {4}},
             LSTM(4, {.activation = "softsign", .return_sequences = true, .name = "r"}));
  cases["lstm_selu_backwards"] = one(
      {5, 3},
      LSTM(4, {.activation = "selu", .return_sequences = true, .go_backwards = true, .name = "r"}));
  cases["gru_elu"] =
      late({{6, 3}}, GRU(4, {.activation = "elu", .return_sequences = true, .name = "r"}));
  cases["gru_elu_before"] =
      one({5, 3}, GRU(4, {.activation = "elu", .reset_after = false, .name = "r"}));
  cases["simple_softsign"] = one({5, 3}, SimpleRNN(4, {.activation = "softsign", .name = "r"}));
  cases["bidirectional_softsign"] = late(
      {{6, 3}},
      Bidirectional(SimpleRNN(4, {.activation = "softsign", .return_sequences = true, .name = "r"}),
                    {.name = "b"}));
}

void expect_all(Dtype dtype) {
  std::map<std::string, LayerCase> cases;
  add_convolutions(cases);
  add_attention(cases);
  add_late(cases);
  add_steps(cases);
  expect_cases(kFile, "cases", cases, dtype);
}

TEST(KerasLayers3, OutputsAndGradientsInFloat64) { expect_all(Dtype::float64); }
TEST(KerasLayers3, OutputsAndGradientsInFloat32) { expect_all(Dtype::float32); }

TEST(KerasLayers3, LayersWhileTraining) {
  std::map<std::string, LayerCase> cases;
  LayerCase& norm = cases["time_distributed_norm"];
  norm = in_float32(
      one({4, 3}, TimeDistributed(BatchNormalization({.momentum = 0.7, .name = "n"}), "t")));
  norm.training = true;
  for (Dtype dtype : {Dtype::float64, Dtype::float32})
    expect_cases(kFile, "training", cases, dtype);
}

TEST(KerasLayers3, MetricsOfSeveralNumbers) {
  namespace m = metrics;
  Runtime runtime({.memory = "8MiB", .threads = 1});
  const Tensor p = real(1, {8, 3}, -1, 0.5);
  Tensor y({Dtype::float64, {8, 3}});
  for (Dim i = 0; i < 24; ++i) y.data_as<double>()[i] = hashed(2, i / 3) % 3 == i % 3 ? 1 : 0;
  std::map<std::string, Metric> all{
      {"precision", m::Precision({.thresholds = {0.3, 0.6}})},
      {"recall", m::Recall({.thresholds = {0.3, 0.6}})},
      {"false_negatives", m::FalseNegatives({.thresholds = {0.3, 0.5, 0.6}})},
      {"f1", m::F1Score({.average = ""})},
      {"fbeta", m::FBetaScore({.average = "", .beta = 0.5, .threshold = 0.4})}};
  size_t seen = 0;
  const Json answers = keras_answers(kFile);
  for (const Json& answer : answers.at("metrics", "answers").as_array("metrics")) {
    const std::string name = answer.at("name", "metric").as_string("name");
    SCOPED_TRACE(name);
    MetricState state(all.at(name));
    state.update_state(y, p);
    const std::vector<double> ours = state.results();
    const auto& theirs = answer.at("values", "metric").as_array("values");
    ASSERT_EQ(ours.size(), theirs.size());
    double sum = 0;
    for (size_t i = 0; i < ours.size(); ++i) {
      EXPECT_NEAR(ours[i], theirs[i].as_real("value"), 1e-6);
      sum += ours[i];
    }
    EXPECT_NEAR(state.result(), sum / static_cast<double>(ours.size()), 1e-12);
    ++seen;
  }
  EXPECT_EQ(seen, all.size());
}

}  // namespace
}  // namespace pl::test::keras_layers3_test
