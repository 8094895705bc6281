// Each layer alone against Keras: outputs, and gradients by inputs and weights, in float64 and
// float32, through passes, plan and executor. tests/golden/keras_layers2.py made the answers and
// says what the numbers are; the networks here have its names.
#include "tests/keras_layer_case.h"

namespace pl::test::keras_layers2_test {
namespace {

constexpr const char* kFile = "keras_layers2.json";

void add_spatial(std::map<std::string, LayerCase>& cases) {
  cases["conv1d_same_even"] =
      one({7, 3}, Conv1D(4, 4, {.strides = 2, .padding = "same", .name = "c"}));
  cases["conv1d_causal"] =
      one({9, 2}, Conv1D(3, 3, {.padding = "causal", .dilation_rate = 2, .name = "c"}));
  cases["conv1d_groups"] = one(
      {8, 4}, Conv1D(6, 3, {.groups = 2, .activation = "relu", .use_bias = false, .name = "c"}));
  cases["conv2d_same_even"] =
      one({5, 7, 2}, Conv2D(3, {4, 2}, {.strides = 2, .padding = "same", .name = "c"}));
  cases["conv3d"] = one({4, 5, 6, 2}, Conv3D(3, {2, 3, 2}, {.name = "c"}));
  cases["conv3d_same_even"] = one(
      {5, 4, 3, 2}, Conv3D(4, {4, 2, 3}, {.strides = {2, 1, 2}, .padding = "same", .name = "c"}));
  cases["conv3d_dilated"] = one(
      {7, 3, 5, 2},
      Conv3D(4, {3, 2, 2}, {.strides = {1, 2, 1}, .groups = 2, .activation = "tanh", .name = "c"}));
  cases["max_pooling1d"] = one({7, 3}, MaxPooling1D(2, {.strides = 3, .padding = "same"}));
  cases["average_pooling1d"] = one({7, 3}, AveragePooling1D(4, {.strides = 2, .padding = "same"}));
  cases["global_average1d"] = one({5, 3}, GlobalAveragePooling1D());
  cases["global_max1d"] = one({5, 3}, GlobalMaxPooling1D({.keepdims = true}));
  cases["global_average2d"] = one({3, 4, 2}, GlobalAveragePooling2D({.keepdims = true}));
  cases["global_max2d"] = one({3, 4, 2}, GlobalMaxPooling2D());
  cases["global_average3d"] = one({2, 3, 4, 2}, GlobalAveragePooling3D());
  cases["global_max3d"] = one({2, 3, 4, 2}, GlobalMaxPooling3D({.keepdims = true}));
  cases["cropping1d"] = one({6, 2}, Cropping1D({1, 2}));
  cases["cropping2d"] = one({6, 5, 2}, Cropping2D({{1, 2}, {0, 1}}));
  cases["zero_padding1d"] = one({3, 2}, ZeroPadding1D({2, 1}));
  cases["up_sampling1d"] = one({3, 2}, UpSampling1D(3));
  cases["up_sampling2d"] = one({3, 5, 2}, UpSampling2D({3, 2}, {.interpolation = "bilinear"}));
  cases["resizing_up"] = one({3, 5, 2}, Resizing(7, 8));
  cases["resizing_down"] = one({7, 9, 2}, Resizing(3, 4));
  cases["resizing_nearest"] = one({5, 7, 2}, Resizing(8, 3, {.interpolation = "nearest"}));
  cases["resizing_crop"] = one({5, 9, 1}, Resizing(4, 3, {.crop_to_aspect_ratio = true}));
  cases["resizing_pad"] = one({4, 9, 1}, Resizing(6, 5, {.pad_to_aspect_ratio = true}));
}

void add_pointwise(std::map<std::string, LayerCase>& cases) {
  for (const char* name :
       {"linear",      "relu",        "relu6",        "leaky_relu",     "elu",
        "celu",        "selu",        "silu",         "softmax",        "log_softmax",
        "sigmoid",     "log_sigmoid", "hard_sigmoid", "sparse_sigmoid", "hard_silu",
        "hard_tanh",   "tanh_shrink", "soft_shrink",  "hard_shrink",    "softplus",
        "sparse_plus", "squareplus",  "softsign",     "mish",           "gelu",
        "exponential", "glu"})
    cases["activation/" + std::string(name)] = one({4, 6}, Activation(name), 2);
  cases["activation/tanh"] = one({4, 6}, Activation("tanh"), 2);
  cases["softmax_axis"] = one({4, 5}, Softmax(1));
  cases["elu_layer"] = one({7}, ELU(0.3));
  cases["leaky_relu_layer"] = one({7}, LeakyReLU());
  cases["relu_all"] = one({17}, ReLU({.max_value = 1.5, .negative_slope = 0.1, .threshold = 0.25}));
  cases["relu_threshold"] = one({17}, ReLU({.threshold = 0.5}));
  cases["threshold"] = one({17}, Activation("threshold:threshold=0.5,value=-0.25"));
  cases["prelu"] = one({3, 4}, PReLU({.name = "p"}));
  cases["prelu_shared"] = one({3, 4, 2}, PReLU({.shared_axes = {1, 2}, .name = "p"}));
  cases["permute"] = one({2, 3, 4}, Permute({3, 1, 2}));
  cases["repeat_vector"] = one({4}, RepeatVector(3));
  cases["identity"] = one({4}, Identity());
  cases["rescaling"] = one({4}, Rescaling(0.5, -1));
  cases["normalization"] =
      one({2, 3}, Normalization({.mean = {0.5, -1, 2}, .variance = {1, 4, 0.25}}));
  cases["normalization_all"] =
      one({2, 3}, Normalization({.axis = {}, .mean = {0.5}, .variance = {2}}));
  cases["normalization_invert"] = one(
      {2, 3}, Normalization({.axis = {1}, .mean = {0.5, -1}, .variance = {1, 4}, .invert = true}));
  cases["add_broadcast"] = merged({{4, 1, 3}, {4, 2, 1}}, Add());
  cases["subtract"] = merged({{4}, {4}}, Subtract());
  cases["multiply"] = merged({{4, 3}, {4, 3}, {4, 1}}, Multiply());
  cases["average"] = merged({{4}, {4}, {4}}, Average());
  cases["maximum"] = merged({{4}, {4}, {4}}, Maximum());
  cases["minimum"] = merged({{4}, {4}}, Minimum());
}

void add_products(std::map<std::string, LayerCase>& cases) {
  cases["group_norm"] = in_float32(one({3, 4, 6}, GroupNormalization({.groups = 2, .name = "n"})));
  cases["instance_norm"] =
      in_float32(one({5, 4}, GroupNormalization({.groups = -1, .epsilon = 1e-2, .name = "n"})));
  cases["group_norm_axis"] = in_float32(
      one({6, 3}, GroupNormalization({.groups = 3, .axis = 1, .center = false, .name = "n"})));
  cases["rms_norm"] = in_float32(one({4, 7}, RMSNormalization({.name = "n"})));
  cases["unit_norm"] = one({4, 3}, UnitNormalization());
  cases["layer_norm"] = in_float32(one({4, 5}, LayerNormalization({.name = "n"})));
  cases["einsum"] = one({5}, EinsumDense("ab,bc->ac", {4}, {.bias_axes = "c", .name = "e"}));
  cases["einsum_heads"] =
      one({3, 5}, EinsumDense("abc,cde->abde", {0, 2, 4}, {.bias_axes = "de", .name = "e"}));
  cases["einsum_shared"] =
      one({3, 2, 4}, EinsumDense("bthd,hde->bhte", {2, 3, 5}, {.activation = "tanh", .name = "e"}));
  cases["einsum_ellipsis"] =
      one({2, 3, 4}, EinsumDense("...x,xy->...y", {5}, {.bias_axes = "y", .name = "e"}));
  cases["einsum_right"] =
      one({3, 2, 2}, EinsumDense("ab...,bc->ac...", {4}, {.bias_axes = "c", .name = "e"}));
  cases["dot"] = merged({{4}, {4}}, Dot(1));
  cases["dot_axes"] = merged({{3, 4}, {4, 5}}, Dot({2, 1}));
  cases["dot_normalized"] = merged({{3, 4}, {5, 4}}, Dot(-1, {.normalize = true}));
  cases["dot_mixed"] = merged({{3, 4}, {3}}, Dot(1));
  for (bool causal : {false, true}) {
    const LayerRef gqa = GroupedQueryAttention(3, 4, 2, {.use_causal_mask = causal, .name = "gqa"});
    LayerCase& c = cases[causal ? "grouped_query_causal" : "grouped_query"];
    c = network({5, 6}, [gqa](const std::vector<Symbolic>& x) {
      return gqa(std::vector<Symbolic>{x[0], x[0]});
    });
    c.least = 0.1;  // the key bias has slopes of 0, rounded among numbers near 1
  }
  cases["masking"] = one({6, 2}, Masking(), -30);
  cases["masked_mean"] = network(
      {6, 3},
      [](const std::vector<Symbolic>& x) {
        return GlobalAveragePooling1D()(Dense(4, {.name = "d"})(Masking()(x[0])));
      },
      -30);
  cases["masked_attention"] = network(
      {5, 4},
      [](const std::vector<Symbolic>& x) {
        const Symbolic m = Masking(0, "mask")(x[0]);
        // As in Keras where scores are asked for; without dropout they are not.
        return MultiHeadAttention(2, 3,
                                  {.dropout = 0.1, .name = "mha"})(std::vector<Symbolic>{m, m});
      },
      -30);
}

void add_padding(std::map<std::string, LayerCase>& cases) {
  cases["conv1d_same_dilated"] =
      one({9, 3}, Conv1D(4, 4, {.padding = "same", .dilation_rate = 2, .name = "c"}));
  cases["conv2d_same_dilated"] =
      one({9, 7, 2}, Conv2D(3, {2, 4}, {.padding = "same", .dilation_rate = {2, 1}, .name = "c"}));
  cases["conv2d_groups"] =
      one({7, 5, 4}, Conv2D(6, 3, {.strides = {2, 3}, .groups = 2, .name = "c"}));
  cases["depthwise_same_even"] =
      one({5, 7, 3},
          DepthwiseConv2D({4, 2},
                          {.strides = 2, .padding = "same", .depth_multiplier = 2, .name = "c"}));
  cases["depthwise_valid"] = one({7, 5, 3}, DepthwiseConv2D(3, {.use_bias = false, .name = "c"}));
  cases["separable_same_even"] =
      one({5, 7, 3},
          SeparableConv2D(4, {2, 4},
                          {.strides = 2, .padding = "same", .depth_multiplier = 2, .name = "c"}));
  cases["transpose_same_even"] =
      one({3, 5, 2}, Conv2DTranspose(3, 4, {.strides = 2, .padding = "same", .name = "c"}));
  cases["transpose_same_odd"] = one(
      {3, 4, 2}, Conv2DTranspose(3, {3, 2}, {.strides = {3, 2}, .padding = "same", .name = "c"}));
  cases["transpose_valid"] =
      one({4, 3, 2}, Conv2DTranspose(3, {2, 3}, {.strides = {3, 1}, .name = "c"}));
  cases["max_pooling2d_same_even"] =
      one({5, 7, 2}, MaxPooling2D({4, 2}, {.strides = 3, .padding = "same"}));
  cases["max_pooling2d_odd"] = one({5, 7, 2}, MaxPooling2D(2));
  cases["average_pooling2d_same_even"] =
      one({5, 7, 2}, AveragePooling2D({2, 4}, {.strides = {3, 1}, .padding = "same"}));
  cases["average_pooling2d_odd"] = one({7, 5, 2}, AveragePooling2D({3, 2}));
  const Shape volume{5, 4, 7, 2};
  const Pooling3DOptions uneven{.strides = {2, 1, 3}, .padding = "same"};
  cases["max_pooling3d"] = one(volume, MaxPooling3D());
  cases["max_pooling3d_same_even"] = one(volume, MaxPooling3D({4, 3, 2}, uneven));
  cases["average_pooling3d"] = one(volume, AveragePooling3D({2, 3, 2}, {.strides = 1}));
  cases["average_pooling3d_same_even"] = one(volume, AveragePooling3D({4, 3, 2}, uneven));
  cases["max_pooling1d_odd"] = one({7, 3}, MaxPooling1D(2));
  cases["average_pooling1d_valid"] = one({8, 3}, AveragePooling1D(3, {.strides = 2}));
  cases["up_sampling2d_nearest"] = one({3, 5, 2}, UpSampling2D({2, 3}));
  cases["zero_padding2d"] = one({3, 5, 2}, ZeroPadding2D({{1, 0}, {2, 3}}));
}

void add_plain(std::map<std::string, LayerCase>& cases) {
  cases["dense"] = one({5}, Dense(4, {.activation = "relu", .name = "d"}));
  cases["dense_positions"] = one({3, 5}, Dense(4, {.use_bias = false, .name = "d"}));
  cases["flatten"] = one({3, 4, 2}, Flatten());
  cases["reshape"] = one({3, 4}, Reshape({2, -1}));
  cases["concatenate"] = merged({{3, 4}, {3, 2}}, Concatenate());
  cases["concatenate_positions"] = merged({{3, 4}, {2, 4}}, Concatenate(1));
  cases["batch_norm"] = in_float32(one({5, 4}, BatchNormalization({.name = "n"})));
  cases["batch_norm_plain"] = in_float32(
      one({3, 4, 2},
          BatchNormalization({.epsilon = 1e-2, .center = false, .scale = false, .name = "n"})));
  cases["layer_norm_plain"] = in_float32(
      one({4, 5}, LayerNormalization({.epsilon = 1e-5, .center = false, .scale = false})));
  cases["dropout"] = one({4}, Dropout(0.5));
  cases["spatial_dropout"] = one({3, 4}, SpatialDropout1D(0.5));
  cases["gaussian_noise"] = one({4}, GaussianNoise(0.5));
  cases["gaussian_dropout"] = one({4}, GaussianDropout(0.5));
  cases["alpha_dropout"] = one({4}, AlphaDropout(0.5));
  cases["activity"] = one({4}, ActivityRegularization({.l2 = 0.5}));
  for (bool causal : {false, true}) {
    const LayerRef mha = MultiHeadAttention(2, 3, {.use_causal_mask = causal, .name = "mha"});
    LayerCase& c = cases[causal ? "attention_causal" : "attention"];
    c = network({5, 6}, [mha](const std::vector<Symbolic>& x) {
      return mha(std::vector<Symbolic>{x[0], x[0]});
    });
    c.least = 0.1;  // of the key bias
  }
}

std::map<std::string, LayerCase> all_cases() {
  std::map<std::string, LayerCase> cases;
  add_spatial(cases);
  add_pointwise(cases);
  add_products(cases);
  add_padding(cases);
  add_plain(cases);
  return cases;
}

void expect_all(Dtype dtype) { expect_cases(kFile, "cases", all_cases(), dtype); }

TEST(KerasLayers2, OutputsAndGradientsInFloat64) { expect_all(Dtype::float64); }
TEST(KerasLayers2, OutputsAndGradientsInFloat32) { expect_all(Dtype::float32); }

// While training, with what it does to moving averages.
TEST(KerasLayers2, LayersWhileTraining) {
  std::map<std::string, LayerCase> cases;
  cases["batch_norm"] = one({5, 4}, BatchNormalization({.name = "n"}));
  cases["batch_norm_images"] =
      one({3, 5, 2}, BatchNormalization({.momentum = 0.7, .epsilon = 1e-2, .name = "n"}));
  cases["batch_norm_plain"] =
      one({4}, BatchNormalization({.center = false, .scale = false, .name = "n"}));
  cases["layer_norm"] = one({3, 5}, LayerNormalization({.name = "n"}));
  cases["no_noise"] = network({4}, [](const std::vector<Symbolic>& x) {
    return AlphaDropout(0)(GaussianNoise(0)(Dropout(0)(x[0])));
  });
  for (auto& [name, c] : cases) {
    if (name != "no_noise") c = in_float32(c);
    c.training = true;
  }
  for (Dtype dtype : {Dtype::float64, Dtype::float32})
    expect_cases(kFile, "training", cases, dtype);
}

DenseOptions trained_options(const std::string& name) {
  namespace r = regularizers;
  namespace c = constraints;
  DenseOptions o{.name = "d"};
  if (name == "l1") o.kernel_regularizer = r::L1(0.02), o.bias_regularizer = "l2";
  if (name == "l2") o.kernel_regularizer = r::L2(0.05), o.activity_regularizer = r::L2(0.1);
  if (name == "l1l2") o.kernel_regularizer = r::L1L2({.l1 = 0.01, .l2 = 0.02});
  if (name == "orthogonal") o.kernel_regularizer = r::OrthogonalRegularizer({.factor = 0.5});
  if (name == "orthogonal_columns")
    o.kernel_regularizer = r::OrthogonalRegularizer({.factor = 0.5, .mode = "columns"});
  if (name == "max_norm")
    o.kernel_constraint = c::MaxNorm({.max_value = 0.5}), o.bias_constraint = c::NonNeg();
  if (name == "non_neg") o.kernel_constraint = c::NonNeg();
  if (name == "unit_norm") o.kernel_constraint = c::UnitNorm({1});
  if (name == "min_max_norm")
    o.kernel_constraint = c::MinMaxNorm({.min_value = 0.7, .max_value = 0.8, .rate = 0.6});
  return o;
}

// Five steps of SGD with penalties and constraints.
TEST(KerasLayers2, RegularizersAndConstraintsWhileTraining) {
  const Tensor x = real(kInputSalt, {4, 5}, 0), y = real(kTargetSalt, {4, 1}, 0);
  size_t seen = 0;
  const Json all = keras_answers(kFile);
  for (const Json& answer : all.at("trained", "answers").as_array("trained")) {
    const std::string name = answer.at("name", "case").as_string("name");
    SCOPED_TRACE(name);
    const Symbolic in = Input({5});
    Model model(in, Dense(1, {.name = "head"})(Dense(4, trained_options(name))(in)));
    model.compile(
        {.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse", .dtype = Dtype::float64});
    set_weights_like_keras(model, answer.at("paths", "case"));
    const History history = model.fit(
        x, y, {.batch_size = 4, .epochs = 5, .verbose = 0, .shuffle = false, .threads = 1});
    const auto& losses = answer.at("losses", "case").as_array("losses");
    for (size_t i = 0; i < losses.size(); ++i) {
      const double theirs = losses[i].as_real("loss");
      // Keras's running mean of losses is float32.
      EXPECT_NEAR(history.history.at("loss")[i], theirs, 2e-7 * theirs) << "step " << i + 1;
    }
    EXPECT_NEAR(model.evaluate(x, y)["loss"], answer.at("evaluated", "case").as_real("loss"), 1e-6);
    const Tensors weights = model.get_weights();
    for (size_t w = 0; w < weights.size(); ++w) {
      const std::string path = model.weights()[w].path;
      const auto& wanted = answer.at("weights", "case").at(path, "weights").as_array("weights");
      for (size_t i = 0; i < wanted.size(); ++i)
        EXPECT_NEAR(weights[w].data_as<double>()[i], wanted[i].as_real("weight"), 1e-8)
            << path << " " << i;
    }
    ++seen;
  }
  EXPECT_EQ(seen, 9u);
}

}  // namespace
}  // namespace pl::test::keras_layers2_test
