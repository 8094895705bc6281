// What samples cannot show of batch_norm: hard numbers, and bits that forms and threads share.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "hwy/targets.h"
#include "op/functions.h"
#include "tests/patterns.h"

namespace pl::batch_norm_test {
namespace {

using test::same_bits;

constexpr double kEpsilon = 1e-3;

Tensor tensor(Shape shape, const std::function<double(int64_t)>& value) {
  Tensor made({Dtype::float32, std::move(shape)});
  for (int64_t i = 0; i < made.meta().elements(); ++i)
    made.data_as<float>()[i] = static_cast<float>(value(i));
  return made;
}

double noise(int64_t i) { return std::sin(static_cast<double>(i * i % 10007) * 12.9898); }

class BatchNorm : public testing::Test {
 protected:
  CpuBackend backend_{2};
  BackendScope scope_{backend_};
};

// A mean of 1e4, which float32 knows to 1e-3, and a deviation of 0.7: a sum of squares minus a
// squared sum would have no digit left.
TEST_F(BatchNorm, FindsASmallVarianceAroundALargeMean) {
  for (Dim channels : {3, 64, 1031}) {
    const Dim pixels = 3000;
    const Tensor x = tensor({pixels, channels}, [&](int64_t i) { return 1e4 + noise(i); });
    const BatchMoments moments = batch_moments(x);
    for (Dim c = 0; c < channels; ++c) {
      double sum = 0, squares = 0;
      for (Dim p = 0; p < pixels; ++p)
        sum += static_cast<double>(x.data_as<float>()[p * channels + c]);
      for (Dim p = 0; p < pixels; ++p)
        squares +=
            std::pow(static_cast<double>(x.data_as<float>()[p * channels + c]) - sum / 3000, 2);
      EXPECT_NEAR(moments.mean.data_as<float>()[c], sum / 3000, 4e-3) << c << " of " << channels;
      EXPECT_NEAR(moments.variance.data_as<float>()[c], squares / 3000, 2e-4 * squares / 3000)
          << c << " of " << channels;
    }
  }
}

TEST_F(BatchNorm, OfAConstantChannelIsBeta) {
  for (double value : {0.0, 0.1, 3e7, -1e-20, 1e18}) {
    const Tensor x = tensor({5, 97, 20}, [&](int64_t) { return value; });
    const Tensor gamma = tensor({20}, [](int64_t) { return 2; });
    const Tensor beta = tensor({20}, [](int64_t i) { return static_cast<double>(i); });
    const BatchNormResult result = batch_norm(x, gamma, beta, kEpsilon);
    for (int64_t i = 0; i < x.meta().elements(); ++i)
      ASSERT_NEAR(result.y.data_as<float>()[i], static_cast<float>(i % 20), 1e-4) << value;
  }
}

TEST_F(BatchNorm, OfOnePixelHasNoVariance) {
  const Tensor x = tensor({1, 1, 1, 5}, [](int64_t i) { return static_cast<double>(i) * 1e6; });
  const Tensor ones = tensor({5}, [](int64_t) { return 1; });
  const BatchNormResult result = batch_norm(x, ones, ones, kEpsilon);
  EXPECT_TRUE(
      same_bits(result.mean, tensor({5}, [](int64_t i) { return static_cast<double>(i) * 1e6; })));
  EXPECT_TRUE(same_bits(result.variance, tensor({5}, [](int64_t) { return 0; })));
  EXPECT_TRUE(same_bits(result.y, tensor({1, 1, 1, 5}, [](int64_t) { return 1; })));
}

// In whole rows of the folded form and behind them, in the first chunk and in a later one.
TEST_F(BatchNorm, PassesNanOnInItsChannelAlone) {
  constexpr Dim kPixels = 4099, kChannels = 3;
  const Tensor ones = tensor({kChannels}, [](int64_t) { return 1; });
  for (Dim pixel : {Dim{0}, Dim{3000}, kPixels - 1}) {
    const int64_t bad = pixel * kChannels + 1;
    const Tensor x = tensor({kPixels, kChannels}, [&](int64_t i) {
      return i == bad ? std::numeric_limits<double>::quiet_NaN() : noise(i);
    });
    const BatchNormResult result = batch_norm(x, ones, ones, kEpsilon);
    const BatchNormGradient gradient =
        batch_norm_gradient(x, result.mean, result.variance, ones, x, kEpsilon);
    for (int64_t i = 0; i < x.meta().elements(); ++i) {
      ASSERT_EQ(std::isnan(result.y.data_as<float>()[i]), i % kChannels == 1) << i;
      ASSERT_EQ(std::isnan(gradient.dx.data_as<float>()[i]), i % kChannels == 1) << i;
    }
    for (Dim c = 0; c < kChannels; ++c)
      EXPECT_EQ(std::isnan(gradient.dbeta.data_as<float>()[c]), c == 1);
    const Tensor rectified = apply(kBatchNormApply, {x, result.mean, result.variance, ones, ones},
                                   {{"epsilon", kEpsilon}, {"activation", std::string("relu")}})[0];
    EXPECT_TRUE(std::isnan(rectified.data_as<float>()[bad]));
  }
}

// Squares of 1e25 are no float32: the variance is infinite, as elsewhere, and nothing becomes NaN.
TEST_F(BatchNorm, OfHugeNumbersIsBetaAndOfTinyOnesNotZero) {
  const Tensor huge = tensor({40, 64}, [](int64_t i) { return 1e25 * noise(i); });
  const Tensor ones = tensor({64}, [](int64_t) { return 1; });
  const BatchNormResult result = batch_norm(huge, ones, ones, kEpsilon);
  for (int64_t i = 0; i < huge.meta().elements(); ++i)
    ASSERT_EQ(result.y.data_as<float>()[i], 1.0f) << i;
  const Tensor tiny = tensor({40, 64}, [](int64_t i) { return 1e-15 * noise(i); });
  const BatchNormResult small = batch_norm(tiny, ones, tensor({64}, [](int64_t) { return 0; }), 0);
  double squares = 0;
  for (int64_t i = 0; i < tiny.meta().elements(); ++i)
    squares += std::pow(static_cast<double>(small.y.data_as<float>()[i]), 2);
  EXPECT_NEAR(squares / static_cast<double>(tiny.meta().elements()), 1, 1e-3);
}

// What the graph's rewrites rely on: each form is its parts, bit for bit.
TEST_F(BatchNorm, AndItsPartsGiveTheSameBits) {
  for (const Shape& shape : {Shape{6, 5, 5, 64}, Shape{7, 9, 20}, Shape{3, 1031}, Shape{2, 3}}) {
    const Shape channels{shape.back()};
    auto random = [&](const Shape& of, int64_t salt) {
      return tensor(of, [=](int64_t i) { return noise(i + salt * 7919); });
    };
    const Tensor x = random(shape, 1), dy = random(shape, 2), more = random(shape, 3);
    const Tensor gamma = random(channels, 4), beta = random(channels, 5);
    const BatchNormResult whole = batch_norm(x, gamma, beta, kEpsilon);
    const BatchMoments moments = batch_moments(x);
    EXPECT_TRUE(same_bits(moments.mean, whole.mean));
    EXPECT_TRUE(same_bits(moments.variance, whole.variance));
    const Tensors operands{x, whole.mean, whole.variance, gamma, beta};
    EXPECT_TRUE(
        same_bits(batch_norm_apply(x, whole.mean, whole.variance, gamma, beta, kEpsilon), whole.y));
    const Attrs plain{{"epsilon", kEpsilon}};
    Attrs rectified = plain;
    rectified.set("activation", std::string("relu"));
    const Tensor y = relu(whole.y);
    EXPECT_TRUE(same_bits(apply(kBatchNormApply, operands, rectified)[0], y));
    Tensors with_more = operands;
    with_more.push_back(more);
    const Tensor sum = add(whole.y, more), sum_y = relu(sum);
    EXPECT_TRUE(same_bits(apply(kBatchNormAdd, with_more, plain)[0], sum));
    EXPECT_TRUE(same_bits(apply(kBatchNormAdd, with_more, rectified)[0], sum_y));

    auto expect_same = [&](const Op& op, const Tensor& last, const Tensor& masked) {
      const Tensors fused = apply(op, {x, whole.mean, whole.variance, gamma, dy, last}, plain);
      const auto parts =
          batch_norm_gradient(x, whole.mean, whole.variance, gamma, masked, kEpsilon);
      EXPECT_TRUE(same_bits(fused[0], parts.dx)) << op.name << shape.text();
      EXPECT_TRUE(same_bits(fused[1], parts.dgamma)) << op.name << shape.text();
      EXPECT_TRUE(same_bits(fused[2], parts.dbeta)) << op.name << shape.text();
      if (fused.size() > 3) {
        EXPECT_TRUE(same_bits(fused[3], masked)) << op.name << shape.text();
      }
    };
    expect_same(kBatchNormReluGradient, beta, relu_gradient(y, dy));
    expect_same(kBatchNormAddReluGradient, sum_y, relu_gradient(sum_y, dy));
  }
}

// Vectors of 4, 8 and 16 lanes add in the same order.
TEST_F(BatchNorm, GivesTheSameBitsOnEveryTarget) {
  for (const Shape& shape : {Shape{700, 64}, Shape{333, 20}, Shape{40, 1031}}) {
    const Shape channels{shape.back()};
    const Tensor x = tensor(shape, [](int64_t i) { return noise(i); });
    const Tensor dy = tensor(shape, [](int64_t i) { return noise(i + 12345); });
    const Tensor gamma = tensor(channels, [](int64_t i) { return 1 + noise(i) / 2; });
    const Tensor beta = tensor(channels, [](int64_t i) { return noise(i + 99); });
    Tensors first;
    int64_t disabled = 0;
    for (int64_t wider : {int64_t{0}, int64_t{HWY_AVX3_DL | HWY_AVX3}, int64_t{HWY_AVX2}}) {
      hwy::DisableTargets(disabled |= wider);
      const BatchNormResult result = batch_norm(x, gamma, beta, kEpsilon);
      const Tensors gradients =
          apply(kBatchNormReluGradient, {x, result.mean, result.variance, gamma, dy, beta},
                {{"epsilon", kEpsilon}});
      const Tensors all{result.y,     result.mean,  result.variance,
                        gradients[0], gradients[1], gradients[2]};
      if (first.empty()) first = all;
      for (size_t i = 0; i < all.size(); ++i)
        EXPECT_TRUE(same_bits(all[i], first[i])) << i << " of " << shape.text();
    }
    hwy::DisableTargets(0);
  }
}

}  // namespace
}  // namespace pl::batch_norm_test
