// The built-in image models against Keras's: every layer's kind and output, every weight's name and
// shape, ten training losses and the loss of inference after them. tests/golden/keras_models.py
// made the answers; weights and data come from the same counter hash.
#include <algorithm>
#include <map>
#include <sstream>

#include "model/builtin.h"
#include "model/densenet.h"
#include "model/mobilenet.h"
#include "model/resnet.h"
#include "model/unet.h"
#include "plimsoll.h"
#include "tests/counter_hash.h"
#include "tests/end_to_end/command.h"
#include "tests/places.h"

namespace pl::test::keras_models_test {
namespace {

using ::pl::test::hashed_integers;
using ::pl::test::hashed_reals;

constexpr uint32_t kInputSalt = 1001, kLabelSalt = 1002;

std::string golden(const char* name) { return ::pl::test::read_bytes(::pl::test::golden(name)); }

std::string dims_text(const Shape& shape) {
  std::string out;
  for (Dim dim : shape) out += (out.empty() ? "" : "x") + std::to_string(dim);
  return out;
}

// A layer's line of keras_models.txt: "conv1_conv Conv2D 112x112x64 kernel:7x7x3x64 bias:64".
std::string line_of(const Network::Call& call) {
  std::string line = call.layer->name + " " + call.layer->kind() + " " + dims_text(call.shape);
  for (const Weight& weight : call.layer->weights())
    line += " " + std::string(weight.trainable ? "" : "-") + weight.name + ":" +
            dims_text(weight.shape);
  return line;
}

TEST(KerasModels, HaveTheSameLayersAndWeights) {
  std::istringstream text(golden("keras_models.txt"));
  std::map<std::string, std::string> ours;  // of the model being read, by name
  std::string model;
  int models = 0;
  auto finish = [&] {
    for (const auto& [name, line] : ours) ADD_FAILURE() << model << " has also " << line;
  };
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    std::string first;
    words >> first;
    if (first == "#") continue;
    if (first == "model") {
      finish();
      ours.clear();
      ++models;
      std::string input;
      int64_t parameters = 0;
      words >> model >> input >> parameters;
      const BuiltinModel& builtin = find_builtin(model);
      EXPECT_EQ(builtin.input, ::pl::test::shape_from(input));
      const Network network = builtin.build(builtin.input, builtin.classes);
      EXPECT_EQ(network.parameters(), parameters) << model;
      for (const auto& call : network.calls()) ours[call.layer->name] = line_of(call);
      continue;
    }
    EXPECT_EQ(ours[first], line) << model;
    ours.erase(first);
  }
  finish();
  EXPECT_EQ(models, 5);
}

// As `initial` of keras_models.py.
Tensor initial(uint32_t salt, const WeightInfo& weight) {
  const Shape& shape = weight.meta.shape;
  if (weight.path.ends_with("kernel")) {
    const int64_t fan = shape.back() == 1 ? shape[0] * shape[1] : shape.elements() / shape.back();
    int exponent = 0;
    for (int64_t bound = 6; fan > bound; bound *= 4) --exponent;
    return hashed_reals(salt, weight.meta, exponent);
  }
  const bool one = weight.path.ends_with("gamma") || weight.path.ends_with("variance");
  return hashed_reals(salt, weight.meta, one ? -3 : -5, one ? 1 : 0);
}

void set_weights_like_keras(Model& model) {
  const std::vector<WeightInfo> weights = model.weights();
  std::vector<std::string> sorted;
  for (const WeightInfo& weight : weights) sorted.push_back(weight.path);
  std::sort(sorted.begin(), sorted.end());
  Tensors values;
  for (const WeightInfo& weight : weights) {
    const auto at = std::lower_bound(sorted.begin(), sorted.end(), weight.path);
    values.push_back(initial(static_cast<uint32_t>(at - sorted.begin()), weight));
  }
  model.set_weights(values);
}

using Build = Symbolic (*)(const Symbolic& image, int64_t classes);

void expect_agreement(const std::string& name, Build build, double tolerance,
                      Policy dtype = Dtype::float32) {
  const Json answers = parse_json(golden("keras_models.json"), "keras_models.json");
  const auto& cases = answers.at("cases", "answers").as_array("cases");
  const auto found = std::find_if(cases.begin(), cases.end(), [&](const Json& one) {
    return one.at("model", "case").as_string("model") == name;
  });
  ASSERT_NE(found, cases.end());
  const Json& answer = *found;
  std::vector<Dim> dims;
  for (const Json& size : answer.at("input", "answer").as_array("input"))
    dims.push_back(size.as_integer("size"));
  const int64_t classes = integer_at(answer, "classes"), batch = integer_at(answer, "batch");
  const Symbolic image = Input(Shape(dims));
  const Symbolic output = build(image, classes);
  Model model(image, output);
  model.compile(
      {.optimizer = Adam({.learning_rate = answer.at("learning_rate", "answer").as_real("rate")}),
       .loss = "sparse_categorical_crossentropy",
       .dtype = dtype});
  ASSERT_EQ(static_cast<int64_t>(model.weights().size()), integer_at(answer, "weights"));
  set_weights_like_keras(model);
  std::vector<Dim> labels = output.shape().with_front(batch).dims();
  labels.pop_back();
  const Tensor x = hashed_reals(kInputSalt, {dtype.variable, Shape(dims).with_front(batch)}, 0);
  const Tensor y = hashed_integers(kLabelSalt, Shape(labels), static_cast<uint32_t>(classes));
  const History history = model.fit(
      x, y, {.batch_size = batch, .epochs = 10, .verbose = 0, .shuffle = false, .threads = 2});
  const auto& losses = answer.at("losses", "answer").as_array("losses");
  const std::vector<double>& ours = history.history.at("loss");
  ASSERT_EQ(ours.size(), losses.size());
  EXPECT_LT(ours.back(), ours.front()) << "an answer without training is none";
  // Rounded to 16 bits, only the first loss is comparable: training amplifies every rounding, on
  // each processor another. Gradients of one step in 16 bits are compared in mixed_test.cc.
  const bool narrow = dtype.compute != dtype.variable;
  double worst = 0;
  for (size_t i = 0; i < (narrow ? 1 : losses.size()); ++i) {
    const double theirs = losses[i].as_real("loss");
    worst = std::max(worst, std::fabs(ours[i] / theirs - 1));
    EXPECT_NEAR(ours[i], theirs, tolerance * theirs) << "step " << i + 1;
  }
  std::printf("largest relative difference %.2g\n", worst);
  if (narrow) return;
  const double inference = answer.at("inference", "answer").as_real("inference");
  EXPECT_NEAR(model.evaluate(x, y, {.batch_size = batch})["loss"], inference,
              tolerance * inference);
}

TEST(KerasModels, LossesOfResnet18) { expect_agreement("resnet18", resnet18, 1e-4); }
TEST(KerasModels, LossesOfMobilenetV2) { expect_agreement("mobilenet-v2", mobilenet_v2, 1e-4); }
// Rounding grows through 121 layers of batch statistics, here as in Keras.
TEST(KerasModels, LossesOfDensenet121) { expect_agreement("densenet121", densenet121, 5e-4); }
TEST(KerasModels, LossesOfUnet) {
  expect_agreement(
      "unet", [](const Symbolic& image, int64_t classes) { return unet(kUnet, image, classes); },
      1e-4);
}

TEST(KerasModels, LossOfResnet18InMixedBfloat16) {
  expect_agreement("resnet18", resnet18, 5e-3, kMixedBfloat16);
}
TEST(KerasModels, LossOfMobilenetV2InMixedBfloat16) {
  expect_agreement("mobilenet-v2 128x128", mobilenet_v2, 2e-2, kMixedBfloat16);
}
TEST(KerasModels, LossOfUnetInMixedBfloat16) {
  expect_agreement(
      "unet", [](const Symbolic& image, int64_t classes) { return unet(kUnet, image, classes); },
      5e-3, kMixedBfloat16);
}

TEST(Unet, RefusesImagesThatItCannotHalveFourTimes) {
  for (const char* input : {"250x256x3", "8x8x3", "784"}) {
    const Finished done = plimsoll({"plan", "unet", "--input", input});
    EXPECT_EQ(done.exit, 2) << done.err;
    EXPECT_NE(done.err.find("multiples of 16"), std::string::npos) << done.err;
  }
}

// Every label of a sample is made and checked: one for each pixel.
TEST(Unet, TrainsOnSyntheticMasks) {
  const Finished done =
      plimsoll({"train", "unet", "--input", "32x48x3", "--batch", "2", "--steps", "3", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const Json end = done.event("end");
  EXPECT_EQ(integer_at(end, "arena_bytes_used"), integer_at(end, "arena_bytes_planned"));
  EXPECT_NEAR(end.at("loss_first", "end").as_real("loss"), std::log(3.0), 1.0);
}

}  // namespace
}  // namespace pl::test::keras_models_test
