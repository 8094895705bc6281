// Options of layers beyond the usual ones against Keras: output_padding, filters of resizing, other
// axes, masked batch normalisation; and layers with states between batches.
// tests/golden/keras_layers4.py made the answers; the networks here have its names.
#include "tests/keras_layer_case.h"

namespace pl::test::keras_layers4_test {
namespace {

constexpr const char* kFile = "keras_layers4.json";

LayerCase behind_mask(Shape shape, std::vector<LayerRef> stack) {
  return network(
      std::move(shape),
      [stack](const std::vector<Symbolic>& in) {
        Symbolic x = Masking(0.0)(in[0]);
        for (const LayerRef& layer : stack) x = layer(x);
        return x;
      },
      kLate);
}

void add_transposed(std::map<std::string, LayerCase>& cases) {
  cases["transpose1d_more"] =
      one({4, 2}, Conv1DTranspose(3, 3, {.strides = 3, .output_padding = 2, .name = "c"}));
  cases["transpose2d_more_same"] =
      one({3, 4, 2},
          Conv2DTranspose(
              3, {3, 4},
              {.strides = {2, 3}, .padding = "same", .output_padding = Pair(0, 2), .name = "c"}));
  cases["transpose2d_more_valid"] =
      one({3, 2, 2},
          Conv2DTranspose(
              2, {2, 3},
              {.strides = {3, 2}, .output_padding = Pair(2, 0), .use_bias = false, .name = "c"}));
  cases["transpose2d_none_more"] = one(
      {3, 2, 2},
      Conv2DTranspose(2, 1, {.strides = 3, .padding = "same", .output_padding = 0, .name = "c"}));
  cases["transpose3d_more_same"] =
      one({2, 3, 2, 2},
          Conv3DTranspose(
              2, {3, 2, 3},
              {.strides = {2, 2, 3}, .padding = "same", .output_padding = Triple(1), .name = "c"}));
}

// Keras resizes in float32 whatever the dtype is.
void add_sizes(std::map<std::string, LayerCase>& cases) {
  auto resized = [&](const char* name, Shape shape, LayerRef layer) {
    cases[name] = one(std::move(shape), layer);
    cases[name].tolerance = 1e-5;
  };
  resized("resizing_bicubic_larger", {3, 4, 2}, Resizing(5, 9, {.interpolation = "bicubic"}));
  resized("resizing_bicubic_smaller", {9, 7, 2}, Resizing(4, 3, {.interpolation = "bicubic"}));
  for (const std::string kind : {"bilinear", "bicubic", "lanczos3", "lanczos5"})
    resized(("resizing_" + kind + "_filtered").c_str(), {9, 5, 2},
            Resizing(4, 7, {.interpolation = kind, .antialias = true}));
  resized("resizing_lanczos3", {5, 6, 2}, Resizing(7, 4, {.interpolation = "lanczos3"}));
  resized("resizing_padded", {4, 7, 2},
          Resizing(6, 5, {.pad_to_aspect_ratio = true, .fill_value = 1.5}));
  resized("resizing_cropped", {4, 9, 2},
          Resizing(6, 5,
                   {.interpolation = "lanczos3", .crop_to_aspect_ratio = true, .antialias = true}));
  resized("center_crop", {7, 6, 2}, CenterCrop(4, 3));
  resized("center_crop_smaller", {3, 6, 2}, CenterCrop(5, 4));
  resized("up_sampling_lanczos5", {3, 4, 2},
          UpSampling2D(Pair(2, 3), {.interpolation = "lanczos5"}));
}

// Keras normalizes in float32 whatever the dtype is.
void add_axes(std::map<std::string, LayerCase>& cases) {
  cases["layer_norm_two_axes"] =
      in_float32(one({3, 4}, LayerNormalization({.axis = {1, 2}, .name = "n"})));
  cases["layer_norm_first_axis"] =
      in_float32(one({3, 4, 2}, LayerNormalization({.axis = 1, .scale = false, .name = "n"})));
  cases["layer_norm_outer_axes"] =
      in_float32(one({3, 4, 2}, LayerNormalization({.axis = {3, 1}, .name = "n"})));
  cases["rms_two_axes"] = in_float32(one({3, 4}, RMSNormalization({.axis = {1, 2}, .name = "n"})));
  cases["unit_two_axes"] = in_float32(one({3, 4}, UnitNormalization({1, 2})));
  cases["softmax_two_axes"] = one({3, 4, 2}, Softmax({1, 3}));
  cases["batch_norm_first_axis"] =
      in_float32(one({3, 4}, BatchNormalization({.axis = 1, .name = "n"})));
  cases["spatial_dropout_masked"] =
      behind_mask({5, 3}, {SpatialDropout1D(0.5), GlobalAveragePooling1D()});
  cases["batch_norm_masked_inference"] = in_float32(
      behind_mask({5, 3}, {BatchNormalization({.name = "n"}), GlobalAveragePooling1D()}));
}

// What a mask leaves out of one input does not count in the other's product, maximum or minimum.
void add_merges(std::map<std::string, LayerCase>& cases) {
  const std::pair<std::string, LayerRef> layers[] = {
      {"multiply", Multiply()}, {"maximum", Maximum()}, {"minimum", Minimum()}};
  for (const auto& [name, layer] : layers)
    for (const bool both : {true, false})
      cases[name + (both ? "_masked" : "_one_masked")] = {
          {{5, 3}, {5, 3}},
          [layer = layer, both](const std::vector<Symbolic>& in) {
            const Symbolic second = both ? Masking(0.0)(in[1]) : in[1];
            return layer(std::vector<Symbolic>{Masking(0.0)(in[0]), second});
          },
          kLate};
}

void expect_all(Dtype dtype) {
  std::map<std::string, LayerCase> cases;
  add_transposed(cases);
  add_sizes(cases);
  add_axes(cases);
  add_merges(cases);
  expect_cases(kFile, "cases", cases, dtype);
}

TEST(KerasLayers4, OutputsAndGradientsInFloat64) { expect_all(Dtype::float64); }
TEST(KerasLayers4, OutputsAndGradientsInFloat32) { expect_all(Dtype::float32); }

TEST(KerasLayers4, LayersWhileTraining) {
  std::map<std::string, LayerCase> cases;
  cases["batch_norm_masked"] =
      behind_mask({5, 3}, {BatchNormalization({.momentum = 0.7, .name = "n"})});
  cases["batch_norm_masked_plain"] = behind_mask(
      {5, 3}, {BatchNormalization({.momentum = 0.7, .center = false, .scale = false, .name = "n"}),
               GlobalAveragePooling1D()});
  cases["batch_norm_masked_first_axis"] =
      behind_mask({5, 3}, {BatchNormalization({.axis = 1, .momentum = 0.7, .name = "n"})});
  cases["batch_norm_middle_axis"] =
      one({2, 3, 4}, BatchNormalization({.axis = 2, .momentum = 0.7, .name = "n"}));
  for (auto& [name, c] : cases) {
    c = in_float32(c);
    c.training = true;
  }
  for (Dtype dtype : {Dtype::float64, Dtype::float32})
    expect_cases(kFile, "training", cases, dtype);
}

// ---- states

std::map<std::string, std::vector<LayerRef>> stateful_networks() {
  const LSTMOptions lstm{.stateful = true, .batch_size = kBatch, .name = "r"};
  LSTMOptions sequence = lstm;
  sequence.return_sequences = true;
  return {
      {"lstm", {LSTM(4, lstm)}},
      {"lstm_masked_sequence", {Masking(0.0), LSTM(4, sequence)}},
      {"gru_backwards",
       {GRU(3, {.return_sequences = true,
                .go_backwards = true,
                .stateful = true,
                .batch_size = kBatch,
                .name = "r"})}},
      {"simple_softsign",
       {SimpleRNN(
           3, {.activation = "softsign", .stateful = true, .batch_size = kBatch, .name = "r"})}},
      {"two",
       {SimpleRNN(3,
                  {.return_sequences = true, .stateful = true, .batch_size = kBatch, .name = "r"}),
        GRU(2, {.stateful = true, .batch_size = kBatch, .name = "r2"})}},
      {"bidirectional", {Bidirectional(LSTM(2, lstm), {.name = "b"})}},
  };
}

void set_weights(Model& model, const Json& paths) {
  std::vector<std::string> sorted;
  for (const Json& path : paths.as_array("paths")) sorted.push_back(path.as_string("path"));
  Tensors values;
  size_t states = 0;
  for (const WeightInfo& weight : model.weights()) {
    const auto at = std::find(sorted.begin(), sorted.end(), weight.path);
    if (at == sorted.end()) {
      ASSERT_NE(weight.path.find("/rnn_state"), std::string::npos) << weight.path;
      Tensor zeros(weight.meta);
      std::memset(zeros.data(), 0, static_cast<size_t>(weight.meta.bytes()));
      values.push_back(zeros);
      ++states;
      continue;
    }
    values.push_back(real(static_cast<uint32_t>(at - sorted.begin()), weight.meta.shape, -1));
  }
  ASSERT_EQ(values.size(), sorted.size() + states);
  model.set_weights(values);
}

TEST(KerasLayers4, StatesGoOnFromBatchToBatch) {
  const Json all = keras_answers(kFile);
  auto networks = stateful_networks();
  const LayerCase tolerance;
  for (const Json& answer : all.at("stateful", "answers").as_array("stateful")) {
    const std::string name = answer.at("name", "case").as_string("name");
    SCOPED_TRACE(name);
    ASSERT_TRUE(networks.count(name));
    Sequential model(Shape{5, 3}, networks.at(name));
    model.compile({.optimizer = SGD({.learning_rate = 0.5}),
                   .loss = "mean_squared_error",
                   .dtype = Dtype::float64});
    set_weights(model, answer.at("paths", "case"));
    Tensors x;
    for (uint32_t i = 0; i < 4; ++i) x.push_back(input_values(i, {5, 3}, kLate));
    const PredictOptions options{.batch_size = kBatch, .threads = 1};
    auto expect_y = [&](const Json& wanted, const char* what) {
      SCOPED_TRACE(what);
      const Tensor y = model.predict(x[0], options);
      expect_close(wanted, y.data(), Dtype::float64, tolerance, "y");
    };
    Tensor y;
    for (size_t i = 0; i < 3; ++i) {
      y = model.predict(x[i], options);
      expect_close(answer.at("y", "case").as_array("y")[i], y.data(), Dtype::float64, tolerance,
                   "batch " + std::to_string(i));
    }
    const double loss =
        model.train_on_batch(x[3], real(kSeedSalt, y.shape(), 0), {.threads = 1})["loss"];
    EXPECT_NEAR(loss, answer.at("loss", "case").as_real("loss"), 1e-9);
    expect_y(answer.at("behind", "case"), "behind a step of training");
    model.reset_state();
    expect_y(answer.at("anew", "case"), "behind reset_state");
  }
}

}  // namespace
}  // namespace pl::test::keras_layers4_test
