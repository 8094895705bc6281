// Masks: who makes them, who hands them on, who reads them (docs/decisions/0014-masks.md); and what
// layers say when they are misused.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "model/layers.h"
#include "model/network.h"
#include "op/functions.h"

namespace pl::masks_test {
namespace {

// Ops on values need a backend.
class EagerTest : public ::testing::Test {
  CpuBackend backend_{1};
  BackendScope scope_{backend_};
};

// The mask of the network's output for these inputs (B, ...), as 0 and 1; nothing without a mask.
std::vector<int> mask_of(const std::vector<Symbolic>& inputs, const Symbolic& output,
                         const Tensors& values) {
  const Network network(inputs, {output});
  Tensors weights;
  for (const NetworkWeight& weight : network.weights()) weights.push_back(fill(weight.shape, 0.5));
  NetworkNotes notes;
  network.call(values, weights, false, Tensor(step_params_meta()), Dtype::float32, &notes);
  const Tensor mask = notes.masks.at(0);
  std::vector<int> out;
  if (!mask.defined()) return out;
  EXPECT_EQ(mask.dtype(), Dtype::boolean);
  for (int64_t i = 0; i < mask.meta().elements(); ++i) out.push_back(mask.data_as<uint8_t>()[i]);
  return out;
}

Tensor floats(const Shape& shape, std::vector<float> values) {
  Tensor x({Dtype::float32, shape});
  std::copy(values.begin(), values.end(), x.data_as<float>());
  return x;
}
Tensor tokens(const Shape& shape, std::vector<int32_t> values) {
  Tensor x({Dtype::int32, shape});
  std::copy(values.begin(), values.end(), x.data_as<int32_t>());
  return x;
}

class Masks : public EagerTest {};
TEST_F(Masks, ComeFromMaskingAndEmbedding) {
  const Symbolic x = Input({3, 2});
  const Tensor values = floats({2, 3, 2}, {1, 0, 0, 0, 0, 2, 0, 0, 3, 3, 0, 0});
  EXPECT_EQ(mask_of({x}, Masking()(x), {values}), (std::vector<int>{1, 0, 1, 0, 1, 0}));
  const Symbolic t = Input({4});
  const Tensor words = tokens({1, 4}, {5, 0, 2, 0});
  EXPECT_EQ(mask_of({t}, Embedding(7, 3, {.mask_zero = true})(t), {words}),
            (std::vector<int>{1, 0, 1, 0}));
  EXPECT_EQ(mask_of({t}, Embedding(7, 3)(t), {words}), std::vector<int>());
}

TEST_F(Masks, AreHandedOnOrDropped) {
  const Symbolic x = Input({3, 2});
  const Tensor values = floats({1, 3, 2}, {1, 0, 0, 0, 0, 2});
  const std::vector<int> mask{1, 0, 1};
  const Symbolic m = Masking()(x);
  for (const LayerRef& layer :
       {Dense(4), Activation("tanh"), Dropout(0.5), LayerNormalization(), Identity(),
        GroupNormalization({.groups = 1}), Rescaling(2), PReLU()})
    EXPECT_EQ(mask_of({x}, layer(m), {values}), mask) << layer->kind();
  for (const LayerRef& layer :
       {Flatten(), GlobalAveragePooling1D(), Conv1D(2, 1), RMSNormalization()})
    EXPECT_EQ(mask_of({x}, layer(m), {values}), std::vector<int>()) << layer->kind();
}

TEST_F(Masks, OfMergesAreKeras) {
  const Symbolic a = Input({3, 1}), b = Input({3, 1});
  const Tensor first = floats({1, 3, 1}, {1, 0, 0}), second = floats({1, 3, 1}, {0, 0, 2});
  const Symbolic ma = Masking()(a), mb = Masking()(b);
  const Tensors values{first, second};
  EXPECT_EQ(mask_of({a, b}, Add()({ma, mb}), values), (std::vector<int>{1, 0, 1}));
  EXPECT_EQ(mask_of({a, b}, Multiply()({ma, b}), values), std::vector<int>());
  EXPECT_EQ(mask_of({a, b}, Concatenate()({ma, mb}), values), (std::vector<int>{1, 0, 1}));
  EXPECT_EQ(mask_of({a, b}, Concatenate(1)({ma, b}), values), (std::vector<int>{1, 0, 0, 1, 1, 1}));
}

std::string words_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

class LayerMisuse : public EagerTest {};
TEST_F(LayerMisuse, NamesTheLayerAndWhatItWanted) {
  const Symbolic image = Input({6, 6, 3}), sequence = Input({6, 3});
  EXPECT_EQ(words_of([&] { Conv1D(4, 3, {.name = "model/stage2/conv1"})(image); }),
            "[build] model/stage2/conv1: expected samples (positions, channels), received (6, 6, "
            "3)");
  EXPECT_EQ(words_of([&] { Conv3D(4, 3, {.name = "model/stage2/conv1"})(image); }),
            "[build] model/stage2/conv1: expected samples (depth, height, width, channels), "
            "received (6, 6, 3)");
  EXPECT_EQ(words_of([&] {
              Dot(1, {.name = "match"})({sequence, Input({5})});
            }),
            "[build] match: expected equal sizes along the axes, received (6, 3) and (5,)");
  EXPECT_EQ(words_of([&] {
              Subtract("s")({sequence, sequence, sequence});
            }),
            "[build] s: expected a list of two inputs, received 3");
  EXPECT_EQ(words_of([&] {
              Permute({1, 3});
            }),
            "[Permute] dims: expected each of 1 to 2 once, received (1, 3)");
  EXPECT_EQ(words_of([&] { GroupNormalization({.groups = 2, .name = "g"})(sequence); }),
            "[build] g: expected channels divisible by 2 groups, received (6, 3)");
  EXPECT_EQ(words_of([&] { GroupedQueryAttention(4, 5, 2); }),
            "[GroupedQueryAttention] expected num_query_heads divisible by num_key_value_heads, "
            "received 5 and 2");
  EXPECT_EQ(words_of([&] { EinsumDense("ab,cd->ad", {3}); }),
            "[EinsumDense] equation: expected letters of the kernel among those of input or "
            "output, received 'ab,cd->ad'");
  EXPECT_EQ(words_of([&] { RandomFlip("sideways"); }),
            "[RandomFlip] mode: expected 'horizontal', 'vertical' or 'horizontal_and_vertical', "
            "received 'sideways'");
  EXPECT_EQ(words_of([&] {
              adapt(Dense(3), fill({2, 3}, 1));
            }),
            "[adapt] expected a Normalization, received a Dense");
}

class NormalizationTest : public EagerTest {};
TEST_F(NormalizationTest, LearnsMeanAndVarianceFromData) {
  const LayerRef layer = Normalization();
  adapt(layer, floats({4, 2}, {1, 10, 2, 10, 3, 30, 6, 30}));
  layer->build({Shape{2}});
  EXPECT_EQ(layer->weights()[0].initializer, initializers::Values({3, 20}));
  EXPECT_EQ(layer->weights()[1].initializer, initializers::Values({3.5, 100}));
}

class LambdaTest : public EagerTest {};
TEST_F(LambdaTest, RunsAnyFunctionThatKeepsTheBatch) {
  const Symbolic x = Input({4});
  const LayerRef twice = Lambda([](const Tensors& in) { return scale(in[0], 2); }, "twice");
  EXPECT_EQ(twice(x).shape(), Shape{4});
  EXPECT_EQ(
      words_of([&] { Lambda([](const Tensors& in) { return reduce_sum(in[0]); }, "sum")(x); }),
      "[build] sum: expected a function that keeps the batch as dimension 0, received () for "
      "a batch of 7");
}

}  // namespace
}  // namespace pl::masks_test
