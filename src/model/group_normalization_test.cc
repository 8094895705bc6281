// GroupNormalization where samples are stored in 16 bits, and where channels are not last.
#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "model/layers.h"
#include "op/functions.h"
#include "tests/counter_hash.h"

namespace pl::group_normalization_test {
namespace {

using test::hashed_reals;

Tensor call(GroupNormalizationOptions options, const Tensor& x, const Tensors& weights) {
  const LayerRef layer = GroupNormalization(options);
  layer->build({x.shape().without_front()});
  const Tensor no_params;
  return layer->call(
      {.in = {&x, 1}, .weights = weights, .training = true, .step_params = no_params, .stream = 0});
}

std::vector<float> values(const Tensor& x) {
  const Tensor wide = cast(x, Dtype::float32);
  return {wide.data_as<float>(), wide.data_as<float>() + wide.meta().elements()};
}

class GroupNormalizationTest : public testing::Test {
 protected:
  CpuBackend backend_{2};
  BackendScope scope_{backend_};
  Tensors weights_{hashed_reals(1, {Dtype::float32, {6}}, 1),
                   hashed_reals(2, {Dtype::float32, {6}}, 1)};
};

TEST_F(GroupNormalizationTest, ComputesInFloat32WhereSamplesHave16Bits) {
  const Tensor x = hashed_reals(3, {Dtype::float32, {3, 5, 4, 6}}, 1);
  const std::vector<float> wide = values(call({.groups = 3}, x, weights_));
  for (const auto& [dtype, error] : {std::pair{Dtype::bfloat16, 0.06f}, {Dtype::float16, 0.008f}}) {
    const Tensor y = call({.groups = 3}, cast(x, dtype), weights_);
    EXPECT_EQ(y.dtype(), dtype);
    const std::vector<float> narrow = values(y);
    for (size_t i = 0; i < wide.size(); ++i) EXPECT_NEAR(narrow[i], wide[i], error) << i;
  }
}

TEST_F(GroupNormalizationTest, GivesTheSameWhereverChannelsLie) {
  const Tensor x = hashed_reals(4, {Dtype::float32, {3, 5, 4, 6}}, 1);
  const std::vector<float> last = values(call({.groups = 2}, x, weights_));
  const Tensor first = call({.groups = 2, .axis = 1}, transpose(x, {0, 3, 1, 2}), weights_);
  EXPECT_EQ(values(transpose(first, {0, 2, 3, 1})), last);
}

}  // namespace
}  // namespace pl::group_normalization_test
