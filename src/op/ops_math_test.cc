// Elementwise words of ops.h where samples do not reach: large arguments, negative bases, the edges
// of integers and what PyTorch and NumPy answer at infinities, zeros and NaN.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <limits>

#include "base/error.h"
#include "op/ops.h"
#include "trace/tape.h"
#include "train/function.h"

namespace pl::ops_math_test {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
const double kNan = std::nan("");
constexpr int32_t kLeast32 = std::numeric_limits<int32_t>::min();
constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();

using Numbers = std::vector<double>;
using Word = std::function<Tensor(const Tensor& a, const Tensor& b)>;

Tensor tensor(const Numbers& values, Dtype dtype) {
  return constant(values, {static_cast<Dim>(values.size())}, dtype);
}
template <class T>
Tensor integers(const std::vector<T>& values) {
  Tensor x({sizeof(T) == 4 ? Dtype::int32 : Dtype::int64, {static_cast<Dim>(values.size())}});
  std::copy(values.begin(), values.end(), x.data_as<T>());
  return x;
}
template <class T>
std::vector<T> elements(const Tensor& x) {
  return {x.data_as<T>(), x.data_as<T>() + x.shape().elements()};
}

// Equal where the answer is 0, infinite or NaN, and relatively close elsewhere.
void expect_near(const Tensor& y, const Numbers& wanted, const std::string& what) {
  const double tolerance = y.dtype() == Dtype::float64 ? 1e-13 : 1e-6;
  const Numbers got = to_vector(y);
  ASSERT_EQ(got.size(), wanted.size()) << what;
  for (size_t i = 0; i < got.size(); ++i)
    if (std::isnan(wanted[i]))
      EXPECT_TRUE(std::isnan(got[i])) << what << "[" << i << "]: " << got[i];
    else if (wanted[i] == 0 || std::isinf(wanted[i]))
      EXPECT_EQ(got[i], wanted[i]) << what << "[" << i << "]";
    else
      EXPECT_NEAR(got[i], wanted[i], tolerance * std::abs(wanted[i])) << what << "[" << i << "]";
}

// The answer and the slopes of its sum in a and b, on values and traced, in both floats. Slopes
// that are not given are not asked for.
struct Wanted {
  Numbers y, slope_a = {}, slope_b = {};
};
void expect_word(const Word& word, const Numbers& a, const Numbers& b, const Wanted& wanted) {
  auto slopes = [&](const Tensor& x, const Tensor& z) {
    GradientTape tape;
    tape.watch(x);
    tape.watch(z);
    Tensors found = tape.gradient(ops::sum(word(x, z)), {x, z});
    for (Tensor& slope : found)
      if (!slope.defined()) slope = ops::zeros_like(x);
    return found;
  };
  for (Dtype dtype : {Dtype::float32, Dtype::float64}) {
    const std::string name(name_of(dtype));
    const Tensor x = tensor(a, dtype), z = tensor(b, dtype);
    auto run = pl::function([&](const Tensor& p, const Tensor& q) { return word(p, q); });
    expect_near(word(x, z), wanted.y, name);
    expect_near(run(x, z), wanted.y, name + " traced");
    auto traced = pl::function([&](const Tensor& p, const Tensor& q) { return slopes(p, q); });
    const Tensors values = slopes(x, z), planned = traced(x, z);
    for (size_t i : {0u, 1u}) {
      const Numbers& slope = i == 0 ? wanted.slope_a : wanted.slope_b;
      if (slope.empty()) continue;
      expect_near(values[i], slope, name + " slope " + std::to_string(i));
      expect_near(planned[i], slope, name + " traced slope " + std::to_string(i));
    }
  }
}
void expect_word(Tensor (*word)(const Tensor&), const Numbers& x, const Wanted& wanted) {
  expect_word([word](const Tensor& a, const Tensor&) { return word(a); }, x, x, wanted);
}

Tensor power(const Tensor& a, const Tensor& b) { return ops::power(a, b); }
Tensor mod(const Tensor& a, const Tensor& b) { return ops::mod(a, b); }
Tensor floor_divide(const Tensor& a, const Tensor& b) { return ops::floor_divide(a, b); }

TEST(OpsMath, SineAndCosineHoldForEveryNumber) {
  Numbers x;
  for (double size : {0.0, 1e-30, 1e-4, 0.5, 1.5707963, 3.1415926, 22.0, 1e3, 1e5, 1e6, 1e8, 1e9,
                      1e12, 1e20, 1e38, 3.4028234663852886e38})
    for (double sign : {1.0, -1.0}) x.push_back(static_cast<float>(sign * size));
  for (Dtype dtype : {Dtype::float32, Dtype::float64}) {
    const Tensor in = tensor(x, dtype);
    auto traced = pl::function([](const Tensor& a) { return Tensors{ops::sin(a), ops::cos(a)}; });
    const Tensors planned = traced(in);
    const Numbers sine = to_vector(ops::sin(in)), cosine = to_vector(ops::cos(in));
    const double tolerance = dtype == Dtype::float32 ? 2.4e-7 : 1e-15;
    for (size_t i = 0; i < x.size(); ++i) {
      EXPECT_NEAR(sine[i], std::sin(x[i]), tolerance * std::abs(std::sin(x[i]))) << x[i];
      EXPECT_NEAR(cosine[i], std::cos(x[i]), tolerance * std::abs(std::cos(x[i]))) << x[i];
    }
    EXPECT_EQ(to_vector(planned[0]), sine);
    EXPECT_EQ(to_vector(planned[1]), cosine);
  }
  // PyTorch's answers.
  expect_word(ops::sin, {1e6, kInf, -kInf, kNan}, {{-0.34999350217129294, kNan, kNan, kNan}});
  expect_word(ops::sin, {1e6}, {{-0.34999350217129294}, {0.93675212753314474}});
  expect_word(ops::cos, {1e6}, {{0.93675212753314474}, {0.34999350217129294}});
}

TEST(OpsMath, PowersOfTensors) {
  expect_word(power, {-8, -2, -3}, {3, 2, 0}, {{-512, 4, 1}, {192, -4, 0}, {kNan, kNan, kNan}});
  expect_word(power, {kNan, kInf, -kInf, -0.0, 2, -2}, {0, 0, 3, -1, kInf, 0.5},
              {{1, 1, -kInf, -kInf, kInf, kNan}});
  expect_word(power, {0, 0, 0, 0}, {1, 0, 2, 0.5}, {{0, 1, 0, 0}, {1, 0, 0, kInf}, {0, 0, 0, 0}});
  expect_word(power, {2, 4, 9}, {3, -1, 0.5},
              {{8, 0.25, 3},
               {12, -0.0625, 1.0 / 6},
               {8 * std::log(2), 0.25 * std::log(4), 3 * std::log(9)}});
  expect_word(power, {-1, -1, -1.5}, {100001, 1e6, 80}, {{-1, 1, std::pow(1.5, 80)}});
  expect_word(power, {-1, -2, -2, 0}, {0x3p40, 0x3p40, kInf, 0x3p40},
              {{1, kInf, kInf, 0}, {-0x3p40, -kInf, kInf, 0}});
  // Beyond 2^24 float32 has no b - 1.
  const Numbers whole{16777214,  16777215,  16777216,  16777218,  16777220,  16777222, 33554436,
                      -16777214, -16777215, -16777216, -16777218, -16777220, 1e9};
  Wanted wanted;
  for (double b : whole) {
    wanted.y.push_back(std::fmod(b, 2) == 0 ? 1 : -1);
    wanted.slope_a.push_back(std::fmod(b, 2) == 0 ? -b : b);
  }
  expect_word(power, Numbers(whole.size(), -1), whole, wanted);
}

TEST(OpsMath, PowersThatAreNumbers) {
  const Tensor x = constant({-2, 0, 1.5, kInf});
  expect_near(ops::power(x, 2000), {kInf, 0, kInf, kInf}, "2000");
  expect_near(ops::power(constant({-1.001, -1}, Dtype::float64), 1999),
              {-std::pow(1.001, 1999), -1}, "1999");
  expect_near(ops::power(x, -2), {0.25, kInf, 1 / 2.25, 0}, "-2");
  expect_near(ops::power(constant({1e-20, 1.01}), 31), {0, std::pow(double{1.01f}, 31)}, "31");
  expect_near(ops::power(constant({-kInf, 4, -1}), 0.5), {kInf, 2, kNan}, "0.5");
  expect_near(ops::power(2.0, constant({-1, 0, 10})), {0.5, 1, 1024}, "2.0");
  GradientTape tape({.persistent = true});
  const Tensor zero = constant({0, 0.5});
  tape.watch(zero);
  expect_near(tape.gradient(ops::power(zero, -2), {zero})[0], {-kInf, -16}, "slope of -2");
  expect_near(tape.gradient(ops::power(zero, 3), {zero})[0], {0, 0.75}, "slope of 3");
}

TEST(OpsMath, PowersOfIntegersAreExactAndWrap) {
  const Tensor x = integers<int32_t>({3, -3, 0, 1, -1, 46341, 2});
  EXPECT_EQ(ops::power(x, 2).dtype(), Dtype::int32);
  EXPECT_EQ(elements<int32_t>(ops::power(x, 2)),
            (std::vector<int32_t>{9, 9, 0, 1, 1, -2147479015, 4}));
  EXPECT_EQ(elements<int32_t>(ops::power(x, integers<int32_t>({4, 3, 0, -2, -3, 1, -1}))),
            (std::vector<int32_t>{81, -27, 1, 1, -1, 46341, 0}));
  EXPECT_EQ(elements<int64_t>(ops::power(integers<int64_t>({3, -1, 2}), 39)),
            (std::vector<int64_t>{4052555153018976267, -1, int64_t{1} << 39}));
  EXPECT_EQ(elements<int64_t>(ops::power(integers<int64_t>({2, 3}), 64)),
            (std::vector<int64_t>{0, 8733086111712066817}));
  EXPECT_EQ(ops::power(constant({1, 0}, Dtype::boolean), 3).dtype(), Dtype::int32);
  EXPECT_EQ(ops::power(x, 0.5).dtype(), Dtype::float32);
  try {
    ops::power(x, -1);
    ADD_FAILURE() << "nothing thrown";
  } catch (const UserError& error) {
    EXPECT_STREQ(error.what(),
                 "[power] expected a power of at least 0 of integers, received -1; cast them to a "
                 "floating dtype");
  }
}

TEST(OpsMath, RemaindersAndQuotientsOfFloats) {
  expect_word(mod, {1e9, 5, -5, 5, -7, 7, 3, kInf, 1}, {7, kInf, kInf, -kInf, 3, -3, 0, 2, kNan},
              {{6, 5, kInf, -kInf, 2, -2, kNan, kNan, kNan}});
  expect_word(floor_divide, {1e9, 5, -5, -7, 7, 3, -3, 0, 1}, {7, kInf, kInf, 3, -3, 0, 0, 0, kNan},
              {{142857142, 0, -1, -3, -3, kInf, -kInf, kNan, kNan}});
  EXPECT_NEAR(item(ops::mod(tensor({1}, Dtype::float64), 0.1)), 0.09999999999999995, 1e-17);
  EXPECT_EQ(item(ops::floor_divide(tensor({1}, Dtype::float64), 0.1)), 9);
  // 1 in x and -floor_divide(x, y) in y, also where every float is whole.
  expect_word(mod, {7, -7, 1e9, 0x3p60}, {3, 3, 3, 1024},
              {{1, 2, 1, 0}, {1, 1, 1, 1}, {-2, 3, -333333333, -0x3p50}});
}

TEST(OpsMath, RemaindersAndQuotientsOfIntegers) {
  const Tensor a = integers<int32_t>({7, -7, 7, -7, 5, kLeast32, kLeast32, 0});
  const Tensor b = integers<int32_t>({3, 3, -3, -3, 0, -1, 0, 5});
  EXPECT_EQ(elements<int32_t>(ops::floor_divide(a, b)),
            (std::vector<int32_t>{2, -3, -3, 2, 0, kLeast32, 0, 0}));
  EXPECT_EQ(elements<int32_t>(ops::mod(a, b)), (std::vector<int32_t>{1, 2, -2, -1, 0, 0, 0, 0}));
  const Tensor wide = integers<int64_t>({kMost, kLeast, (int64_t{1} << 53) + 1, kLeast});
  const Tensor by = integers<int64_t>({2, 3, 1, -1});
  EXPECT_EQ(elements<int64_t>(ops::floor_divide(wide, by)),
            (std::vector<int64_t>{kMost / 2, kLeast / 3 - 1, (int64_t{1} << 53) + 1, kLeast}));
  EXPECT_EQ(elements<int64_t>(ops::mod(wide, by)), (std::vector<int64_t>{1, 1, 0, 0}));
  EXPECT_EQ(to_vector(ops::floor_divide(constant({200, 7}, Dtype::uint8), 3)), (Numbers{66, 2}));
  auto traced = pl::function([](const Tensor& x, const Tensor& y) {
    return Tensors{ops::floor_divide(x, y), ops::mod(x, y)};
  });
  EXPECT_EQ(elements<int32_t>(traced(a, b)[1]), elements<int32_t>(ops::mod(a, b)));
}

TEST(OpsMath, IntegersAreComparedAndCombinedExactly) {
  constexpr int64_t kBeyond = (int64_t{1} << 53) + 1;
  const Tensor a = integers<int64_t>({kBeyond, kMost, kLeast});
  const Tensor b = integers<int64_t>({kBeyond - 1, kMost - 1, kLeast + 1});
  EXPECT_EQ(to_vector(ops::greater(a, b)), (Numbers{1, 1, 0}));
  EXPECT_EQ(to_vector(ops::equal(a, b)), (Numbers{0, 0, 0}));
  EXPECT_EQ(elements<int64_t>(ops::maximum(a, b)),
            (std::vector<int64_t>{kBeyond, kMost, kLeast + 1}));
  EXPECT_EQ(elements<int64_t>(ops::minimum(a, b)),
            (std::vector<int64_t>{kBeyond - 1, kMost - 1, kLeast}));
  EXPECT_EQ(elements<int64_t>(ops::add(a, a))[1], -2);
  EXPECT_EQ(elements<int64_t>(ops::where(ops::greater(a, b), a, b)),
            (std::vector<int64_t>{kBeyond, kMost, kLeast + 1}));
  EXPECT_EQ(elements<int64_t>(ops::clip(a, b, a))[0], kBeyond);
}

TEST(OpsMath, RoundingHasNoSlope) {
  const Numbers x{-2.5, -0.4, 0.5, 1.5, 8388609, 4503599627370497, kInf};
  const Numbers flat(x.size(), 0);
  auto rounded = [&](double (*f)(double)) {
    Numbers y;
    for (double v : x) y.push_back(f(v));
    return y;
  };
  expect_word(ops::floor, x, {rounded(std::floor), flat});
  expect_word(ops::ceil, x, {rounded(std::ceil), flat});
  expect_word(ops::trunc, x, {rounded(std::trunc), flat});
  expect_word(ops::round, x, {rounded(std::nearbyint), flat});
  expect_word(floor_divide, {1e9, 1e17, 7}, {7, 7, 2},
              {{142857142, 1e17 / 7, 3}, {0, 0, 0}, {0, 0, 0}});
  EXPECT_EQ(ops::floor(integers<int32_t>({3})).dtype(), Dtype::float32);
  EXPECT_EQ(ops::round(integers<int64_t>({kMost})).dtype(), Dtype::int64);
}

TEST(OpsMath, ExponentialsLessOne) {
  Numbers x, y, slope;
  for (double size : {1e-30, 1e-7, 1e-3, 0.3, 0.4, 1.0, 5.0, 17.0, 30.0, 60.0})
    for (double sign : {1.0, -1.0}) {
      x.push_back(static_cast<float>(sign * size));
      y.push_back(std::expm1(x.back()));
      slope.push_back(std::exp(x.back()));
    }
  expect_word(ops::expm1, x, {y, slope});
  expect_word(ops::expm1, {0, kInf, -kInf, kNan}, {{0, kInf, -1, kNan}, {1, kInf, 0, kNan}});
  const Tensor large = constant({100, 88.5, -200});
  GradientTape tape;
  tape.watch(large);
  const Tensor slopes = tape.gradient(ops::expm1(large), {large})[0];
  expect_near(slopes, {kInf, std::exp(88.5), 0}, "slope");
  EXPECT_TRUE(std::signbit(to_vector(ops::expm1(constant({-0.0})))[0]));
}

TEST(OpsMath, SlopesOfExtremesBesideNaNAreTheSecondOnes) {
  expect_word([](const Tensor& a, const Tensor& b) { return ops::maximum(a, b); },
              {1, kNan, 2, 2, 3}, {kNan, 1, 2, 3, 2},
              {{kNan, kNan, 2, 3, 3}, {0, 0, 1, 0, 1}, {1, 1, 0, 1, 0}});
  expect_word([](const Tensor& a, const Tensor& b) { return ops::minimum(a, b); },
              {1, kNan, 2, 2, 3}, {kNan, 1, 2, 3, 2},
              {{kNan, kNan, 2, 2, 2}, {0, 0, 1, 1, 0}, {1, 1, 0, 0, 1}});
}

// The slope of a root is infinite at 0; PyTorch's answers.
TEST(OpsMath, ExtremesPassNoSlopeToWhatTheyDoNotChoose) {
  expect_word([](const Tensor& x) { return ops::sqrt(ops::maximum(x, 0)); }, {-1, 0.25},
              {{0, 0.5}, {0, 1}});
  expect_word([](const Tensor& x) { return ops::sqrt(ops::clip(x, 0, 1)); }, {-1, 0.25, 4},
              {{0, 0.5, 1}, {0, 1, 0}});
  expect_word([](const Tensor& a, const Tensor& b) { return ops::sqrt(ops::minimum(a, b)); },
              {1, 0, 4}, {0, 1, 9}, {{0, 0, 2}, {0, kInf, 0.25}, {kInf, 0, 0}});
}

TEST(OpsMath, ReluKeepsIntegers) {
  EXPECT_EQ(elements<int64_t>(ops::relu(integers<int64_t>({kMost, -3, 0}))),
            (std::vector<int64_t>{kMost, 0, 0}));
  EXPECT_EQ(ops::relu(constant({7, 200}, Dtype::uint8)).dtype(), Dtype::int32);
  EXPECT_EQ(ops::sigmoid(integers<int32_t>({0})).dtype(), Dtype::float32);
}

}  // namespace
}  // namespace pl::ops_math_test
