// One image within a budget that neither recomputation nor splitting the batch meets.
#include <gtest/gtest.h>

#include "data/source.h"
#include "model/layers.h"
#include "train/model.h"

namespace pl::model_bands_test {
namespace {

constexpr int64_t kSize = 320;

Model segmenter() {
  const Symbolic image = Input({kSize, kSize, 3});
  const Symbolic a = Conv2D(8, 3, {.padding = "same", .activation = "relu"})(image);
  const Symbolic b = Conv2D(16, 3, {.padding = "same", .activation = "relu"})(MaxPooling2D(2)(a));
  const Symbolic c = Concatenate()({a, Conv2DTranspose(8, 2, {.strides = 2})(b)});
  const Symbolic d = Conv2D(8, 3, {.padding = "same", .activation = "relu"})(c);
  Model model(image, Conv2D(3, 1, {.activation = "softmax"})(d));
  model.compile({.optimizer = "sgd", .loss = "sparse_categorical_crossentropy"});
  return model;
}

TEST(ModelBands, TrainsAnImageWithinLessThanItsActivations) {
  const auto images = synthetic_source(
      {.x = {Dtype::uint8, {kSize, kSize, 3}}, .y = {kSize, kSize}, .classes = 3, .samples = 2});
  Model whole = segmenter(), banded = segmenter();
  FitOptions options{.batch_size = 1, .verbose = 0, .threads = 1, .x_scale = 1.0 / 255};
  const History expected = whole.fit(*images, options);
  options.memory = kMiB;
  const PlanReport all = banded.plan(*images, options);
  options.split = 1;
  const PlanReport without = banded.plan(*images, options);
  EXPECT_FALSE(without.fits);
  ASSERT_LT(all.minimum, without.minimum);
  options.split = 0;
  options.memory = (all.minimum + without.minimum) / 2;
  const PlanReport plan = banded.plan(*images, options);
  EXPECT_TRUE(plan.fits);
  EXPECT_GT(plan.bands, 1);
  EXPECT_EQ(plan.split, plan.bands);
  // Kept out of the budget: a test program holds more than a training one.
  options.memory = {};
  options.split = plan.split;
  const History found = banded.fit(*images, options);
  EXPECT_EQ(found.planned_arena, found.used_arena);
  EXPECT_LT(found.planned_arena, expected.planned_arena);
  EXPECT_NEAR(found.history.at("loss")[0], expected.history.at("loss")[0], 1e-5);
}

}  // namespace
}  // namespace pl::model_bands_test
