// Vision transformers: what ViT-B/16 is known to hold, and ten losses of a small one against
// PyTorch's (tests/golden/torch_vit.py made the answers).
#include <sstream>

#include "model/builtin.h"
#include "plimsoll.h"
#include "tests/counter_hash.h"
#include "tests/end_to_end/command.h"
#include "tests/places.h"

namespace pl::test::vit_test {
namespace {

using ::pl::test::hashed_integers;
using ::pl::test::hashed_reals;

constexpr uint32_t kInputSalt = 1001, kLabelSalt = 1002;

void expect_agreement(Policy dtype, double tolerance) {
  const Json answer =
      parse_json(::pl::test::read_bytes(::pl::test::golden("torch_vit.json")), "torch_vit.json");
  std::vector<int64_t> config, input;
  for (const Json& size : answer.at("config", "answer").as_array("config"))
    config.push_back(size.as_integer("size"));
  for (const Json& size : answer.at("input", "answer").as_array("input"))
    input.push_back(size.as_integer("size"));
  const int64_t classes = integer_at(answer, "classes"), batch = integer_at(answer, "batch");
  const Symbolic image = Input(Shape(input));
  Model model(image, vit({config[0], config[1], config[2], config[3], config[4]}, image, classes));
  model.compile({.optimizer = Adam({.learning_rate = 0.001}),
                 .loss = "sparse_categorical_crossentropy",
                 .dtype = dtype});
  const auto& lines = answer.at("weights", "answer").as_array("weights");
  const std::vector<WeightInfo> weights = model.weights();
  ASSERT_EQ(weights.size(), lines.size());
  Tensors values;
  for (size_t i = 0; i < lines.size(); ++i) {
    std::istringstream line(lines[i].as_string("weight"));
    std::string name, shape;
    int exponent = 0, centre = 0;
    line >> name >> shape >> exponent >> centre;
    EXPECT_EQ(weights[i].path, name);
    ASSERT_EQ(weights[i].meta.shape, ::pl::test::shape_from(shape)) << name;
    values.push_back(hashed_reals(static_cast<uint32_t>(i), weights[i].meta, exponent,
                                  static_cast<float>(centre)));
  }
  model.set_weights(values);
  const Tensor x = hashed_reals(kInputSalt, {dtype.variable, Shape(input).with_front(batch)}, 0);
  const Tensor y = hashed_integers(kLabelSalt, {batch}, static_cast<uint32_t>(classes));
  const History history = model.fit(
      x, y, {.batch_size = batch, .epochs = 10, .verbose = 0, .shuffle = false, .threads = 2});
  const auto& losses = answer.at("losses", "answer").as_array("losses");
  const std::vector<double>& ours = history.history.at("loss");
  ASSERT_EQ(ours.size(), losses.size());
  for (size_t i = 0; i < losses.size(); ++i) {
    const double theirs = losses[i].as_real("loss");
    EXPECT_NEAR(ours[i], theirs, tolerance * theirs) << "step " << i + 1;
  }
  EXPECT_LT(ours.back(), ours.front() * 0.8) << "an answer without training is none";
}

TEST(Vit, LossesAreThoseOfPyTorch) { expect_agreement(Dtype::float32, 1e-4); }
TEST(Vit, LossesAreThoseOfPyTorchInFloat64) { expect_agreement(Dtype::float64, 1e-9); }

TEST(Vit, LossesAreNearThoseOfPyTorchInMixedBfloat16) { expect_agreement(kMixedBfloat16, 2e-2); }

TEST(Vit, B16HasItsPublishedSize) {
  const BuiltinModel& model = find_builtin("vit-b16");
  const Network network = model.build(model.input, model.classes);
  EXPECT_EQ(network.parameters(), 86'567'656);
  EXPECT_EQ(network.output_shapes()[0], Shape{1000});
  for (const auto& call : network.calls())
    if (call.layer->name == "positions") {
      EXPECT_EQ(call.shape, (Shape{197, 768}));
    }
  // Fewer patches have fewer positions; nothing else depends on the size of the image.
  EXPECT_EQ(model.build({64, 32, 3}, 1000).parameters(), 86'567'656 - (196 - 8) * 768);
}

TEST(Vit, RefusesImagesThatDoNotFallIntoPatches) {
  for (const char* input : {"224x220x3", "8x8x3", "784"}) {
    const Finished done = plimsoll({"plan", "vit-b16", "--input", input});
    EXPECT_EQ(done.exit, 2) << done.err;
    EXPECT_NE(done.err.find("multiples of 16"), std::string::npos) << done.err;
  }
}

}  // namespace
}  // namespace pl::test::vit_test
