#include "op/group_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/fill.h"
#include "op/philox.h"

namespace pl::group_norm_test {
namespace {

Tensor random(Shape shape, float offset = 0) {
  Tensor x({Dtype::float32, std::move(shape)});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<float>()[i] =
        static_cast<float>(philox_block({3, 4}, 0, static_cast<uint64_t>(i))[0]) * 0x1p-32f +
        offset;
  return x;
}

std::vector<float> values(const Tensor& x) {
  return {x.data_as<float>(), x.data_as<float>() + x.meta().elements()};
}

TEST(GroupNorm, GivesTheSameBitsAtAnyThreadCount) {
  // Fewer samples than threads, as many, more; channels that fill vectors and ones that do not.
  for (const Shape& shape : {Shape{1, 70, 50, 16}, Shape{3, 40, 40, 6}, Shape{13, 9, 31, 40}}) {
    std::vector<std::vector<float>> results;
    for (int threads : {1, 2, 3}) {
      CpuBackend backend(threads);
      BackendScope scope(backend);
      const Tensor x = random(shape), dy = random(shape, -0.5f);
      const Tensor gamma = random({shape.back()}), beta = random({shape.back()});
      const GroupNormResult result = group_norm(x, gamma, beta, 2, 1e-3);
      const GroupNormSums sums = group_norm_sums(x, result.mean, result.rstd, dy);
      const Tensor dx = group_norm_gradient(x, gamma, result.mean, result.rstd, dy, sums);
      results.emplace_back();
      for (const Tensor& one : {result.y, result.mean, result.rstd, sums.of_normal, sums.of_dy, dx})
        for (float value : values(one)) results.back().push_back(value);
    }
    EXPECT_EQ(results[0], results[1]) << shape.text();
    EXPECT_EQ(results[0], results[2]) << shape.text();
  }
}

// The variance of numbers in [0, 1) is 1 / 12, wherever they lie.
TEST(GroupNorm, KeepsItsDigitsFarFromZero) {
  CpuBackend backend(2);
  BackendScope scope(backend);
  const Tensor ones = fill({8}, 1), zeros = fill({8}, 0);
  const Tensor near = group_norm(random({2, 64, 64, 8}), ones, zeros, 2, 0).rstd;
  const Tensor far = group_norm(random({2, 64, 64, 8}, 1024), ones, zeros, 2, 0).rstd;
  for (size_t i = 0; i < 4; ++i) EXPECT_NEAR(values(far)[i] / values(near)[i], 1, 1e-4);
}

TEST(GroupNorm, SaysWhichSamplesMeet) {
  const Attrs attrs{{"groups", int64_t{2}}, {"epsilon", 1e-3}};
  EXPECT_EQ(kGroupNorm.rows(attrs, 0b001), Rows::maps);
  EXPECT_EQ(kGroupNorm.rows(attrs, 0b011), Rows::mixes);
  EXPECT_EQ(kGroupNormSums.rows({}, 0b1111), Rows::maps);
  EXPECT_EQ(kGroupNormGradient.rows({}, 0b1111101), Rows::maps);
}

TEST(GroupNorm, RejectsGroupsThatDoNotDivide) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  const Tensor x = random({2, 3, 6}), parameter = random({6});
  for (int64_t groups : {0, -1, 4, 12})
    EXPECT_THROW(group_norm(x, parameter, parameter, groups, 1e-3), UserError) << groups;
  EXPECT_THROW(group_norm(random({2, 0, 6}), parameter, parameter, 2, 1e-3), UserError);
  EXPECT_THROW(group_norm(x, random({3}), parameter, 2, 1e-3), UserError);
}

}  // namespace
}  // namespace pl::group_norm_test
