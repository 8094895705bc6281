// Each layer alone against Keras: outputs, and gradients by inputs and weights, in float64 and
// float32, through passes, plan and executor. tests/golden/keras_layers2.py made the answers and
// says what the numbers are; the networks here have its names.
#include <gtest/gtest.h>

#include <map>

#include "backend/cpu/cpu_backend.h"
#include "base/json.h"
#include "model/network.h"
#include "plimsoll.h"
#include "tests/graph_run.h"
#include "tests/keras_answers.h"
#include "tests/places.h"
#include "trace/gradient.h"

namespace pl::test {
namespace {

constexpr uint32_t kSeedSalt = 3003, kTargetSalt = 2002;

using Build = std::function<Symbolic(const std::vector<Symbolic>&)>;
struct LayerCase {
  std::vector<Shape> shapes;  // of one sample of each input
  Build build;
  int exponent = 1;
  double tolerance = 1e-10;  // in float64
};

LayerCase one(Shape shape, LayerRef layer, int exponent = 1) {
  return {{std::move(shape)},
          [layer](const std::vector<Symbolic>& x) { return layer(x[0]); },
          exponent};
}
LayerCase merged(std::vector<Shape> shapes, LayerRef layer) {
  return {std::move(shapes), [layer](const std::vector<Symbolic>& x) { return layer(x); }};
}
LayerCase network(Shape shape, Build build, int exponent = 1) {
  return {{std::move(shape)}, std::move(build), exponent};
}
// Keras with JAX computes means, norms and tanh in float32 whatever the dtype is; the ops have
// float64 answers of their own.
LayerCase in_float32(LayerCase c) {
  c.tolerance = 2e-6;
  return c;
}

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
  cases["conv3d_dilated"] = in_float32(
      one({7, 3, 5, 2},
          Conv3D(4, {3, 2, 2},
                 {.strides = {1, 2, 1}, .groups = 2, .activation = "tanh", .name = "c"})));
  cases["max_pooling1d"] = one({7, 3}, MaxPooling1D(2, {.strides = 3, .padding = "same"}));
  cases["average_pooling1d"] = one({7, 3}, AveragePooling1D(4, {.strides = 2, .padding = "same"}));
  cases["global_average1d"] = in_float32(one({5, 3}, GlobalAveragePooling1D()));
  cases["global_max1d"] = one({5, 3}, GlobalMaxPooling1D({.keepdims = true}));
  cases["global_average2d"] =
      in_float32(one({3, 4, 2}, GlobalAveragePooling2D({.keepdims = true})));
  cases["global_max2d"] = one({3, 4, 2}, GlobalMaxPooling2D());
  cases["global_average3d"] = in_float32(one({2, 3, 4, 2}, GlobalAveragePooling3D()));
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
  cases["activation/tanh"] = in_float32(one({4, 6}, Activation("tanh"), 2));
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
  cases["einsum_shared"] = in_float32(one(
      {3, 2, 4}, EinsumDense("bthd,hde->bhte", {2, 3, 5}, {.activation = "tanh", .name = "e"})));
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
    cases[causal ? "grouped_query_causal" : "grouped_query"] =
        network({5, 6}, [gqa](const std::vector<Symbolic>& x) {
          return gqa(std::vector<Symbolic>{x[0], x[0]});
        });
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
        return MultiHeadAttention(2, 3, {.name = "mha"})(std::vector<Symbolic>{m, m});
      },
      -30);
}

std::map<std::string, LayerCase> all_cases() {
  std::map<std::string, LayerCase> cases;
  add_spatial(cases);
  add_pointwise(cases);
  add_products(cases);
  return cases;
}

// As input_values() of the script.
Tensor input_values(uint32_t index, const Shape& sample, int exponent) {
  const Shape shape = sample.with_front(kBatch);
  if (exponent != -30) return real(kInputSalt + index, shape, exponent);
  Tensor x = real(kInputSalt + index, shape, 1);
  const Tensor first = real(kTargetSalt + 1, Shape{kBatch, sample[1]}, 1);
  const Dim features = sample[1];
  for (Dim p = 0; p < kBatch * sample[0]; ++p)
    for (Dim f = 0; f < features; ++f) {
      double& value = x.data_as<double>()[p * features + f];
      value *= hashed(kTargetSalt, p) % 2;
      if (p % sample[0] == 0) value = first.data_as<double>()[p / sample[0] * features + f];
    }
  return x;
}

void copy_to(const Tensor& from, Dtype dtype, void* to) {
  for (int64_t i = 0; i < from.meta().elements(); ++i) {
    const double value = from.data_as<double>()[i];
    if (dtype == Dtype::float64)
      static_cast<double*>(to)[i] = value;
    else
      static_cast<float*>(to)[i] = static_cast<float>(value);
  }
}

// Some slopes are 0 but for rounding, among numbers near 1: those of attention's key bias.
constexpr double kLeast = 0.1;

void expect_close(const Json& answer, const void* ours, Dtype dtype, double tolerance,
                  const std::string& what) {
  const auto& values = answer.at("values", "answer").as_array("values");
  const double rms = answer.at("rms", "answer").as_real("rms");
  const auto stride = answer.at("stride", "answer").as_integer("stride");
  for (size_t i = 0; i < values.size(); ++i) {
    const double theirs = values[i].as_real("value");
    const int64_t at = static_cast<int64_t>(i) * stride;
    const double mine = dtype == Dtype::float64
                            ? static_cast<const double*>(ours)[at]
                            : static_cast<double>(static_cast<const float*>(ours)[at]);
    EXPECT_NEAR(mine, theirs, tolerance * std::max({std::fabs(theirs), rms, kLeast}))
        << what << " " << at;
  }
}

void expect_case(const Json& answer, const LayerCase& c, Dtype dtype) {
  std::vector<Symbolic> inputs;
  for (const Shape& shape : c.shapes) inputs.push_back(Input(shape));
  const Network network(inputs, {c.build(inputs)});
  std::vector<std::string> paths;
  for (const Json& path : answer.at("paths", "case").as_array("paths"))
    paths.push_back(path.as_string("path"));
  Recorder recorder;
  RecorderScope scope(recorder);
  Tensors weights, x;
  for (const NetworkWeight& weight : network.weights())
    weights.push_back(recorder.variable(weight.path, {dtype, weight.shape}, Category::parameters));
  for (const Shape& shape : c.shapes)
    x.push_back(recorder.input("x", {dtype, shape.with_front(kBatch)}, true));
  const Tensor params = recorder.input("params", step_params_meta(), false);
  const Tensor y = network.call(x, weights, false, params, dtype)[0];
  const Tensor seed = recorder.input("seed", {dtype, y.shape()}, true);
  Tensors wrt;
  for (size_t w = 0; w < weights.size(); ++w)
    if (network.weights()[w].trainable) wrt.push_back(weights[w]);
  const size_t trainable = wrt.size();
  wrt.insert(wrt.end(), x.begin(), x.end());
  const Tensors slopes = gradients(y, wrt, seed);
  recorder.keep(y, "y");
  for (const Tensor& slope : slopes) {
    ASSERT_TRUE(slope.defined());
    recorder.keep(slope, "slope");
  }
  CpuBackend backend(1);
  PlannedRun run(recorder.take(), backend);
  for (size_t i = 0; i < x.size(); ++i)
    copy_to(input_values(static_cast<uint32_t>(i), c.shapes[i], c.exponent), dtype, run.input(i));
  std::memset(run.input(x.size()), 0, 64);
  copy_to(real(kSeedSalt, y.shape(), 0), dtype, run.input(x.size() + 1));
  size_t normalization = 0;
  for (size_t w = 0; w < weights.size(); ++w) {
    const NetworkWeight& weight = network.weights()[w];
    const auto at = std::find(paths.begin(), paths.end(), weight.path);
    if (at == paths.end()) {  // Keras has the numbers of Normalization as constants
      ASSERT_FALSE(weight.trainable) << weight.path;
      initialize(weight.initializer, {dtype, weight.shape}, 0, weight.path, run.variable(w));
      ++normalization;
      continue;
    }
    const bool scales = weight.path.ends_with("gamma") || weight.path.ends_with("scale");
    copy_to(real(static_cast<uint32_t>(at - paths.begin()), weight.shape, -1, scales ? 1 : 0),
            dtype, run.variable(w));
  }
  ASSERT_EQ(weights.size(), paths.size() + normalization);
  run.step_poisoned();
  const double tolerance = dtype == Dtype::float32 ? 1e-5 : c.tolerance;
  EXPECT_EQ(answer.at("y", "case").at("size", "y").as_integer("size"), y.shape().elements());
  expect_close(answer.at("y", "case"), run.kept(0), dtype, tolerance, "y");
  size_t next = 1;
  for (size_t w = 0; w < weights.size(); ++w)
    if (network.weights()[w].trainable)
      expect_close(answer.at("dw", "case").at(network.weights()[w].path, "dw"), run.kept(next++),
                   dtype, tolerance, network.weights()[w].path);
  ASSERT_EQ(next, 1 + trainable);
  for (size_t i = 0; i < x.size(); ++i)
    expect_close(answer.at("dx", "case").as_array("dx")[i], run.kept(next++), dtype, tolerance,
                 "dx" + std::to_string(i));
}

const Json& answers() {
  static const Json all = parse_json(
      ::pl::testing::read_bytes(::pl::test::golden("keras_layers2.json")), "keras_layers2.json");
  return all;
}

void expect_all(Dtype dtype) {
  const auto cases = all_cases();
  size_t seen = 0;
  for (const Json& answer : answers().at("cases", "answers").as_array("cases")) {
    const std::string name = answer.at("name", "case").as_string("name");
    SCOPED_TRACE(name);
    const auto found = cases.find(name);
    ASSERT_NE(found, cases.end());
    expect_case(answer, found->second, dtype);
    ++seen;
  }
  EXPECT_EQ(seen, cases.size());
}

TEST(KerasLayers2, OutputsAndGradientsInFloat64) { expect_all(Dtype::float64); }
TEST(KerasLayers2, OutputsAndGradientsInFloat32) { expect_all(Dtype::float32); }

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
  for (const Json& answer : answers().at("trained", "answers").as_array("trained")) {
    const std::string name = answer.at("name", "case").as_string("name");
    SCOPED_TRACE(name);
    const Symbolic in = Input({5});
    Model model(in, Dense(1, {.name = "head"})(Dense(4, trained_options(name))(in)));
    model.compile(
        {.optimizer = SGD({.learning_rate = 0.1}), .loss = "mse", .dtype = Dtype::float64});
    set_weights_like_keras(model, answer.at("paths", "case"));
    const History history = model.fit(
        x, y, {.batch_size = 4, .epochs = 5, .shuffle = false, .verbose = 0, .threads = 1});
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
}  // namespace pl::test
