// Max pooling of integers, and of windows whose places do not fit into a byte.
#include "op/max_pool.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "op/ops.h"
#include "trace/tape.h"
#include "train/function.h"

namespace pl::max_pool_test {
namespace {

template <class T>
Tensor images(Dtype dtype, const Shape& shape, T start = T(0), T step = T(37)) {
  Tensor x({dtype, shape});
  T* at = x.data_as<T>();
  for (Dim i = 0; i < shape.elements(); ++i) at[i] = start = static_cast<T>(start + step);
  return x;
}

template <class T>
std::vector<T> largest(const Tensor& x, Dim pool) {
  const Shape& s = x.shape();
  std::vector<T> out;
  for (Dim b = 0; b < s[0]; ++b)
    for (Dim r = 0; r + pool <= s[1]; r += pool)
      for (Dim c = 0; c + pool <= s[2]; c += pool)
        for (Dim k = 0; k < s[3]; ++k) {
          T most = x.data_as<T>()[((b * s[1] + r) * s[2] + c) * s[3] + k];
          for (Dim i = 0; i < pool; ++i)
            for (Dim j = 0; j < pool; ++j)
              most = std::max(most, x.data_as<T>()[((b * s[1] + r + i) * s[2] + c + j) * s[3] + k]);
          out.push_back(most);
        }
  return out;
}

template <class T>
void expect_pooled(const Tensor& x, Dim pool) {
  const Tensor y = max_pool(x, {.pool_size = {pool, pool}});
  EXPECT_EQ(y.dtype(), x.dtype());
  EXPECT_EQ(std::vector<T>(y.data_as<T>(), y.data_as<T>() + y.shape().elements()),
            largest<T>(x, pool));
}

TEST(MaxPool, KeepsIntegersAndBytes) {
  expect_pooled<uint8_t>(images<uint8_t>(Dtype::uint8, {2, 5, 6, 3}), 2);
  expect_pooled<int32_t>(images<int32_t>(Dtype::int32, {2, 5, 6, 3}, -2000000000, 123456789), 2);
  expect_pooled<int64_t>(images<int64_t>(Dtype::int64, {1, 4, 4, 2}, int64_t{1} << 60, 1), 2);
  EXPECT_EQ(max_pool(images<uint8_t>(Dtype::boolean, {1, 2, 2, 1}, 1, 0)).dtype(), Dtype::int32);
}

TEST(MaxPool, TakesWindowsOfAnySize) {
  const Shape shape{2, 34, 40, 19};
  Tensor x({Dtype::float32, shape});
  uint32_t word = 1;
  for (Dim i = 0; i < shape.elements(); ++i)
    x.data_as<float>()[i] = static_cast<float>((word = word * 1664525 + 1013904223) >> 8);
  expect_pooled<float>(x, 15);  // 225 places, bytes
  expect_pooled<float>(x, 16);
  expect_pooled<float>(x, 34);
  EXPECT_EQ(max_pool_with_index(x, {.pool_size = {15, 17}}).index.dtype(), Dtype::uint8);
  EXPECT_EQ(max_pool_with_index(x, {.pool_size = {16, 16}}).index.dtype(), Dtype::int32);
}

TEST(MaxPool, PutsSlopesWhereTheMaximaOfLargeWindowsAre) {
  const Tensor x = ops::reshape(ops::arange(20 * 20, Dtype::float32), {1, 20, 20, 1});
  for (Dim stride : {20, 2}) {
    auto slope = [&](const Tensor& given) {
      GradientTape tape;
      tape.watch(given);
      const Tensor y = max_pool(given, {.pool_size = {18, 18}, .strides = {stride, stride}});
      return tape.gradient(ops::sum(y), {given})[0];
    };
    auto traced = pl::function(slope);
    const std::vector<double> dx = to_vector(slope(x));
    EXPECT_EQ(to_vector(traced(x)), dx);
    for (size_t i = 0; i < dx.size(); ++i) {
      const size_t row = i / 20, column = i % 20;
      const bool wide = stride == 2 && (row == 19 || column == 19);
      const bool chosen =
          (row == 17 || (wide && row == 19)) && (column == 17 || (wide && column == 19));
      EXPECT_EQ(dx[i], chosen ? 1 : 0) << row << ", " << column;
    }
  }
}

}  // namespace
}  // namespace pl::max_pool_test
