// What the samples of the smaller ops cannot show: rules about rows, ties, ranges, and the words of
// errors.
#include "op/functions.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/recorder.h"

namespace pl::functions_test {
namespace {

class Functions : public testing::Test {
 protected:
  Functions() : backend_(1), scope_(backend_) {}

  template <class T>
  static Tensor tensor(Dtype dtype, Shape shape, const std::vector<T>& values) {
    Tensor x({dtype, std::move(shape)});
    std::copy(values.begin(), values.end(), x.data_as<T>());
    return x;
  }
  static Tensor floats(const std::vector<float>& values) {
    return tensor(Dtype::float32, {static_cast<Dim>(values.size())}, values);
  }
  template <class T>
  static std::vector<T> values(const Tensor& x) {
    return {x.data_as<T>(), x.data_as<T>() + x.meta().elements()};
  }
  template <class F>
  static std::string message_of(F call) {
    try {
      call();
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing thrown";
  }

  CpuBackend backend_;
  BackendScope scope_;
};

TEST_F(Functions, CastSaturatesFloatsAndWrapsIntegers) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Tensor x = floats({-1.9f, 300.5f, inf, -inf, std::nanf(""), 3e9f});
  EXPECT_EQ(values<uint8_t>(cast(x, Dtype::uint8)), (std::vector<uint8_t>{0, 255, 255, 0, 0, 255}));
  EXPECT_EQ(values<int32_t>(cast(x, Dtype::int32)),
            (std::vector<int32_t>{-1, 300, INT32_MAX, INT32_MIN, 0, INT32_MAX}));
  EXPECT_EQ(values<int64_t>(cast(x, Dtype::int64)),
            (std::vector<int64_t>{-1, 300, INT64_MAX, INT64_MIN, 0, 3000000000}));
  EXPECT_EQ(values<uint8_t>(cast(x, Dtype::boolean)), (std::vector<uint8_t>{1, 1, 1, 1, 1, 1}));
  const Tensor wide = tensor<int64_t>(Dtype::int64, {1}, {(int64_t{1} << 32) + 7});
  EXPECT_EQ(values<int32_t>(cast(wide, Dtype::int32))[0], 7);
}

TEST_F(Functions, MaximumGivesTheGradientOfATieToTheFirstOperand) {
  const Tensors in{floats({1, 2, 3}), floats({1, 3, 2})}, dout{floats({1, 1, 1})};
  const Attrs attrs;
  const Tensors most = kMaximum.gradient({attrs, in, apply(kMaximum, in), dout});
  EXPECT_EQ(values<float>(most[0]), (std::vector<float>{1, 0, 1}));
  EXPECT_EQ(values<float>(most[1]), (std::vector<float>{0, 1, 0}));
  const Tensors least = kMinimum.gradient({attrs, in, apply(kMinimum, in), dout});
  EXPECT_EQ(values<float>(least[0]), (std::vector<float>{1, 1, 0}));
}

TEST_F(Functions, MaximumKeepsNanFromEitherSide) {
  const float nan = std::nanf("");
  for (float value : values<float>(maximum(floats({nan, 1}), floats({1, nan}))))
    EXPECT_TRUE(std::isnan(value));
}

TEST_F(Functions, SigmoidDoesNotOverflow) {
  EXPECT_EQ(values<float>(sigmoid(floats({-1000, 0, 1000}))), (std::vector<float>{0, 0.5f, 1}));
}

TEST_F(Functions, OneHotGivesZerosForALabelOutside) {
  const Tensor labels = tensor<int32_t>(Dtype::int32, {3}, {-1, 1, 2});
  EXPECT_EQ(values<float>(one_hot(labels, 2)), (std::vector<float>{0, 0, 0, 1, 0, 0}));
}

TEST_F(Functions, AccuracyTakesTheFirstOfEqualScores) {
  const Tensor scores = tensor<float>(Dtype::float32, {2, 3}, {1, 1, 0, 0, 2, 2});
  const Tensor labels = tensor<int32_t>(Dtype::int32, {2}, {1, 1});
  EXPECT_EQ(values<float>(sparse_categorical_accuracy(scores, labels)), (std::vector<float>{0, 1}));
}

TEST_F(Functions, ReshapeSharesBytesAndFillsInOneDimension) {
  const Tensor x = floats({1, 2, 3, 4, 5, 6});
  const Tensor y = reshape(x, {2, -1});
  EXPECT_EQ(y.shape(), (Shape{2, 3}));
  EXPECT_EQ(y.data(), x.data());
  EXPECT_NE(message_of([&] { reshape(x, {4, -1}); }).find("[reshape] expected"), std::string::npos);
  EXPECT_NE(message_of([&] { reshape(x, {-1, -1}); }).find("at most one -1"), std::string::npos);
}

TEST_F(Functions, SayWhatTheyExpected) {
  EXPECT_EQ(message_of([&] {
              add(floats({1, 2}), floats({1, 2, 3}));
            }),
            "[add] expected shapes that broadcast, received float32 (2,), float32 (3,)");
  EXPECT_EQ(message_of([&] {
              fill({Dim{1} << 40, Dim{1} << 40}, 0);
            }),
            "[fill] expected a result below 2^62 bytes, received float32 (1099511627776, "
            "1099511627776)");
}

// Whether the result of `build` carries rows, for x (4, 3) with rows and w (3,) and k (4, 3)
// without.
template <class F>
bool result_carries_rows(F build) {
  Recorder recorder;
  const Tensor x = recorder.input("x", {Dtype::float32, {4, 3}}, true);
  const Tensor w = recorder.input("w", {Dtype::float32, {3}}, false);
  const Tensor k = recorder.input("k", {Dtype::float32, {4, 3}}, false);
  return carries_rows(build(x, w, k));
}

TEST_F(Functions, CarryRowsOnlyWhereSamplesStayApart) {
  using T = const Tensor&;
  EXPECT_TRUE(result_carries_rows([](T x, T w, T) { return add(x, w); }));
  EXPECT_TRUE(result_carries_rows([](T x, T w, T) { return add(w, x); }));
  EXPECT_TRUE(result_carries_rows([](T x, T, T) { return multiply(x, x); }));
  EXPECT_FALSE(result_carries_rows([](T x, T, T k) { return add(x, k); }));
  EXPECT_FALSE(result_carries_rows([](T, T w, T k) { return add(k, w); }));
  EXPECT_TRUE(result_carries_rows([](T x, T, T) { return reshape(x, {4, 3, 1}); }));
  EXPECT_TRUE(result_carries_rows([](T x, T, T) { return reshape(x, {12}); }));
  EXPECT_TRUE(result_carries_rows([](T x, T, T) { return reshape(x, {2, 6}); }));
  EXPECT_FALSE(result_carries_rows([](T x, T, T) { return reshape(x, {3, 4}); }));
  EXPECT_TRUE(result_carries_rows([](T x, T, T) { return reduce_sum(x, {1}); }));
  EXPECT_FALSE(result_carries_rows([](T x, T, T) { return reduce_sum(x, {0}); }));
  EXPECT_FALSE(result_carries_rows([](T x, T, T) { return transpose(x); }));
  // (4,) against (4, 3, 1) transposed: samples of the first meet another dimension of the second.
  EXPECT_FALSE(result_carries_rows([](T x, T, T) {
    return add(reshape(x, {4, 3, 1}), reduce_sum(x, {1}));
  }));
  EXPECT_TRUE(result_carries_rows([](T x, T w, T) { return broadcast_to(w, x.shape(), true); }));
  EXPECT_FALSE(result_carries_rows([](T x, T w, T) { return broadcast_to(w, x.shape()); }));
}

TEST_F(Functions, GradientOfASumOverSamplesCarriesRowsAgain) {
  EXPECT_TRUE(result_carries_rows([](const Tensor& x, const Tensor&, const Tensor&) {
    const Attrs attrs{{"axes", std::vector<int64_t>{0, 1}}};
    const Tensors in{x}, out = apply(kReduceSum, in, attrs);
    return kReduceSum.gradient({attrs, in, out, out})[0];
  }));
}

}  // namespace
}  // namespace pl::functions_test
