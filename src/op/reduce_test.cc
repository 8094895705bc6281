#include "op/reduce.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/philox.h"
#include "op/transpose.h"

namespace pl::reduce_test {
namespace {

Tensor tensor(Shape shape, const std::vector<float>& values) {
  Tensor x({Dtype::float32, std::move(shape)});
  std::copy(values.begin(), values.end(), x.data_as<float>());
  return x;
}

Tensor random(Shape shape) {
  Tensor x({Dtype::float32, std::move(shape)});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<float>()[i] =
        static_cast<float>(philox_block({1, 2}, 0, static_cast<uint64_t>(i))[0]) * 0x1p-32f - 0.5f;
  return x;
}

std::vector<float> values(const Tensor& x) {
  return {x.data_as<float>(), x.data_as<float>() + x.meta().elements()};
}

TEST(ReduceSum, GivesTheSameBitsAtAnyThreadCount) {
  struct Case {
    Shape shape;
    std::vector<int64_t> axes;
  };
  // Long columns, long rows, a scalar, and rows too few for every thread to have one.
  const std::vector<Case> cases{
      {{9000, 37}, {0}},      {{3, 50001}, {1}},      {{300001}, {}},          {{2, 5000, 65}, {1}},
      {{60, 50, 30}, {0, 2}}, {{9000, 3, 5}, {0, 2}}, {{7, 40, 90, 3}, {0, 2}}};
  for (const Case& c : cases) {
    std::vector<std::vector<float>> results;
    for (int threads : {1, 2, 3}) {
      CpuBackend backend(threads);
      BackendScope scope(backend);
      results.push_back(values(reduce_sum(random(c.shape), c.axes)));
    }
    EXPECT_EQ(results[0], results[1]) << c.shape.text();
    EXPECT_EQ(results[0], results[2]) << c.shape.text();
  }
}

// Axes that lie between others, on either side, or in turn, against sums of one axis at a time.
TEST(Reduce, TakesAnyAxes) {
  CpuBackend backend(2);
  BackendScope scope(backend);
  const std::vector<std::pair<Shape, std::vector<int64_t>>> cases{
      {{5, 40, 7, 33}, {1, 3}},        {{5, 40, 7, 33}, {0, 2}},   {{3, 2, 5, 2, 3, 2}, {0, 2, 4}},
      {{3, 2, 5, 2, 3, 2}, {1, 3, 5}}, {{2, 5000, 3, 17}, {1, 3}}, {{2, 3, 4100}, {0, 2}},
      {{70, 3, 65, 5}, {0, 2}},        {{6, 1, 9, 1, 4}, {0, 4}}};
  for (const auto& [shape, axes] : cases) {
    const Tensor x = random(shape);
    Tensor sum = x, most = x, least = x;
    for (size_t i = axes.size(); i-- > 0;) {
      sum = reduce_sum(sum, {axes[i]});
      most = reduce_max(most, {axes[i]});
      least = reduce_min(least, {axes[i]});
    }
    EXPECT_EQ(values(reduce_max(x, axes)), values(most)) << shape.text();
    EXPECT_EQ(values(reduce_min(x, axes)), values(least)) << shape.text();
    const std::vector<float> wanted = values(sum), seen = values(reduce_sum(x, axes));
    ASSERT_EQ(seen.size(), wanted.size());
    for (size_t i = 0; i < seen.size(); ++i) EXPECT_NEAR(seen[i], wanted[i], 2e-4) << shape.text();
  }
}

// Short rows and narrow columns have code of their own; they join as long and wide ones do.
TEST(Reduce, JoinsFewElementsAsItJoinsMany) {
  CpuBackend backend(2);
  BackendScope scope(backend);
  for (int64_t n = 1; n <= 20; ++n) {
    const Tensor x = random({50, n});
    x.data_as<float>()[7 * n] = std::numeric_limits<float>::quiet_NaN();
    std::vector<float> sums, most, least;
    for (int64_t i = 0; i < 50; ++i) {
      const float* row = x.data_as<float>() + i * n;
      double lanes[8] = {};
      for (int64_t j = 0; j < n; ++j) lanes[j % 8] += static_cast<double>(row[j]);
      for (int half = 4; half > 0; half /= 2)
        for (int l = 0; l < half; ++l) lanes[l] += lanes[l + half];
      sums.push_back(static_cast<float>(lanes[0]));
      most.push_back(*std::max_element(row, row + n));
      least.push_back(*std::min_element(row, row + n));
    }
    auto expect = [&](const Tensor& seen, std::vector<float> wanted) {
      std::vector<float> numbers = values(seen);
      EXPECT_TRUE(std::isnan(numbers[7])) << n;
      numbers[7] = wanted[7] = 0;
      EXPECT_EQ(numbers, wanted) << n;
    };
    expect(reduce_sum(x, {1}), sums);
    expect(reduce_max(x, {1}), most);
    expect(reduce_min(x, {1}), least);
    Tensor columns = transpose(x, {1, 0});
    expect(reduce_max(columns, {0}), most);
    expect(reduce_min(columns, {0}), least);
    columns = transpose(random({n, 50}), {1, 0});
    EXPECT_EQ(values(reduce_max(columns, {0})), values(reduce_max(random({n, 50}), {1})));
  }
}

TEST(ReduceSum, IsAccurateOverManyRows) {
  CpuBackend backend(2);
  BackendScope scope(backend);
  // Plain float32 addition would stop at 2^24 ones.
  const int64_t count = (int64_t{1} << 24) + 4;
  const Tensor ones = tensor({count}, std::vector<float>(static_cast<size_t>(count), 1.0f));
  EXPECT_EQ(values(reduce_sum(ones))[0], static_cast<float>(count));
  const Tensor x = random({20000, 3});
  double exact = 0;
  for (int64_t i = 0; i < 20000; ++i) exact += static_cast<double>(x.data_as<float>()[i * 3 + 1]);
  EXPECT_NEAR(values(reduce_sum(x, {0}))[1], exact, 1e-5 * std::fabs(exact) + 1e-5);
}

TEST(ReduceMean, DividesByTheCount) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 9});
  EXPECT_EQ(values(reduce_mean(x))[0], 4);
  EXPECT_EQ(values(reduce_mean(x, {-1})), (std::vector<float>{2, 6}));
  EXPECT_EQ(reduce_mean(x, {-2}, true).shape(), (Shape{1, 3}));
}

TEST(ReduceMax, SharesTheGradientAmongTies) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  const Tensor x = tensor({2, 3}, {5, 1, 5, 2, 7, 3});
  const Attrs attrs{{"axes", std::vector<int64_t>{1}}};
  const Tensors in{x}, out = apply(kReduceMax, in, attrs);
  const Tensors dout{tensor({2}, {4, 6})};
  EXPECT_EQ(values(kReduceMax.gradient({attrs, in, out, dout})[0]),
            (std::vector<float>{2, 0, 2, 0, 6, 0}));
}

TEST(ReduceMax, KeepsNan) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  const float nan = std::numeric_limits<float>::quiet_NaN();
  EXPECT_TRUE(std::isnan(values(reduce_max(tensor({3}, {1, nan, 2})))[0]));
  EXPECT_TRUE(std::isnan(values(reduce_max(tensor({3, 1}, {nan, 1, 2}), {0}))[0]));
}

TEST(Reduce, SaysWhichSamplesMeet) {
  const Attrs first{{"axes", std::vector<int64_t>{0, 1}}},
      second{{"axes", std::vector<int64_t>{1}}};
  EXPECT_EQ(kReduceSum.rows(first, 1), Rows::sums);
  EXPECT_EQ(kReduceMax.rows(first, 1), Rows::mixes);
  EXPECT_EQ(kReduceSum.rows(second, 1), Rows::maps);
  EXPECT_EQ(kReduceSum.rows(first, 0), Rows::none);
}

TEST(Reduce, RejectsWrongAxes) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  EXPECT_THROW(reduce_sum(random({2, 3}), {2}), UserError);
  EXPECT_THROW(reduce_sum(random({2, 3}), {1, -1}), UserError);
  EXPECT_THROW(reduce_max(random({0, 3}), {0}), UserError);
}

TEST(SumTo, UndoesABroadcast) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  const Tensor x = tensor({2, 3}, {1, 2, 3, 4, 5, 6});
  EXPECT_EQ(values(sum_to(x, {3})), (std::vector<float>{5, 7, 9}));
  EXPECT_EQ(values(sum_to(x, {2, 1})), (std::vector<float>{6, 15}));
  EXPECT_EQ(sum_to(x, {2, 1}).shape(), (Shape{2, 1}));
  EXPECT_EQ(values(sum_to(x, {}))[0], 21);
  EXPECT_EQ(sum_to(x, {2, 3}).data(), x.data());
  EXPECT_THROW(sum_to(x, {2}), UserError);
}

}  // namespace
}  // namespace pl::reduce_test
