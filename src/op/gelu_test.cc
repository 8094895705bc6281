#include "op/gelu.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <numbers>

#include "backend/cpu/cpu_backend.h"
#include "op/pointwise.h"

namespace pl::gelu_test {
namespace {

Tensor floats(const std::vector<float>& values) {
  Tensor x({Dtype::float32, Shape{static_cast<Dim>(values.size())}});
  std::copy(values.begin(), values.end(), x.data_as<float>());
  return x;
}

// -12 to 12 in small steps, denser near 0.
std::vector<float> sweep() {
  std::vector<float> values;
  for (int i = -4000; i <= 4000; ++i) {
    const float part = static_cast<float>(i) / 4000;
    values.push_back(12 * part);
    values.push_back(part * part * part);
  }
  return values;
}

// In units of float32's last place at `exact`, but no smaller than at `floor`.
double units(double value, double exact, double floor) {
  const double size = std::max(std::fabs(exact), floor);
  return std::fabs(value - exact) / (std::exp2(std::floor(std::log2(size))) * 0x1p-23);
}

class Gelu : public testing::Test {
 protected:
  Gelu() : backend_(1), scope_(backend_) {}
  CpuBackend backend_;
  BackendScope scope_;
};

TEST_F(Gelu, IsCloseOverTheWholeRange) {
  const std::vector<float> values = sweep();
  const Tensor x = floats(values), exact = gelu(x), approximate = gelu(x, true);
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = static_cast<double>(values[i]);
    const double wanted = 0.5 * v * std::erfc(-v / std::numbers::sqrt2);
    // The exponential of -v^2 / 2 loses digits as v^2 grows.
    const double allowed = 10 + v * v;
    ASSERT_LE(units(static_cast<double>(exact.data_as<float>()[i]), wanted, 1e-30), allowed) << v;
    // The rounding of 2 u is a relative error of its exponential.
    const double u = std::sqrt(2 / std::numbers::pi) * (v + 0.044715 * v * v * v);
    const double sigmoid = v < -10 ? 0 : v / (1 + std::exp(-2 * u));
    ASSERT_LE(units(static_cast<double>(approximate.data_as<float>()[i]), sigmoid, 1e-30),
              4 + 8 * std::fabs(u))
        << v;
  }
}

TEST_F(Gelu, KeepsInfinityAndNan) {
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Tensor x = floats({-inf, inf, std::nanf(""), -3e38f, 3e38f, 0.0f});
  const Tensor ones = floats({1, 1, 1, 1, 1, 1});
  for (bool approximate : {false, true}) {
    const Tensor y = gelu(x, approximate), dx = gelu_gradient(x, ones, approximate);
    const float* v = y.data_as<float>();
    EXPECT_TRUE(v[0] == 0 && v[1] == inf && std::isnan(v[2]) && v[3] == 0 && v[4] == 3e38f);
    const float* s = dx.data_as<float>();
    EXPECT_NEAR(s[0], 0, 1e-30);
    EXPECT_EQ(s[1], 1);
    EXPECT_TRUE(std::isnan(s[2]));
    EXPECT_NEAR(s[3], 0, 1e-30);
    EXPECT_EQ(s[4], 1);
    EXPECT_EQ(s[5], 0.5f);
  }
}

TEST_F(Gelu, FunctionsOfPointwiseSimdAreCloseToo) {
  std::vector<float> values = sweep();
  for (int i = -110; i < 95; ++i) values.push_back(static_cast<float>(i) + 0.37f);
  const Tensor x = floats(values), e = exp(x), t = tanh(x), s = sigmoid(x);
  for (size_t i = 0; i < values.size(); ++i) {
    const double v = static_cast<double>(values[i]);
    const float wanted = static_cast<float>(std::exp(v));
    if (std::isinf(wanted)) {
      ASSERT_EQ(e.data_as<float>()[i], wanted) << v;
    } else {
      ASSERT_LE(units(static_cast<double>(e.data_as<float>()[i]), std::exp(v), 1.2e-38), 2) << v;
    }
    ASSERT_LE(units(static_cast<double>(t.data_as<float>()[i]), std::tanh(v), 1e-37), 3) << v;
    ASSERT_LE(units(static_cast<double>(s.data_as<float>()[i]), 1 / (1 + std::exp(-v)), 1.2e-38), 3)
        << v;
  }
  constexpr float inf = std::numeric_limits<float>::infinity();
  const Tensor odd = floats({-inf, inf, std::nanf("")}), powers = exp(odd), slopes = tanh(odd);
  EXPECT_EQ(powers.data_as<float>()[0], 0);
  EXPECT_EQ(powers.data_as<float>()[1], inf);
  EXPECT_TRUE(std::isnan(powers.data_as<float>()[2]));
  EXPECT_EQ(slopes.data_as<float>()[0], -1);
  EXPECT_EQ(slopes.data_as<float>()[1], 1);
  EXPECT_TRUE(std::isnan(slopes.data_as<float>()[2]));
}

}  // namespace
}  // namespace pl::gelu_test
