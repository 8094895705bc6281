// Activations at extremes: finite answers stay finite, slopes at 0 are those of the formula, and
// NaN is never swallowed.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "model/layers.h"
#include "model/regularizer.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "tests/graph_run.h"
#include "trace/gradient.h"

namespace pl::activation_test {
namespace {

constexpr const char* kNames[] = {
    "linear",      "relu",         "relu6",          "leaky_relu",  "elu",       "celu",
    "selu",        "silu",         "softmax",        "log_softmax", "sparsemax", "sigmoid",
    "log_sigmoid", "hard_sigmoid", "sparse_sigmoid", "hard_silu",   "tanh",      "hard_tanh",
    "tanh_shrink", "soft_shrink",  "hard_shrink",    "threshold",   "softplus",  "sparse_plus",
    "squareplus",  "softsign",     "mish",           "gelu",        "gelu_tanh", "glu"};

// y and dy/dx of sum(y), through passes and plan.
struct Slopes {
  std::vector<float> y, dx;
};
Slopes slopes_of(const std::string& activation, const std::vector<float>& x) {
  Recorder recorder;
  RecorderScope scope(recorder);
  const Tensor in =
      recorder.input("x", {Dtype::float32, Shape{static_cast<Dim>(x.size()) / 2, 2}}, true);
  const Tensor y = activate(activation, in);
  const Tensor slope = gradients(y, {in}, fill(y.shape(), 1, Dtype::float32, true))[0];
  recorder.keep(y, "y");
  recorder.keep(slope, "slope");
  const auto count = static_cast<size_t>(y.shape().elements());
  CpuBackend backend(1);
  test::PlannedRun run(recorder.take(), backend);
  std::copy(x.begin(), x.end(), static_cast<float*>(run.input(0)));
  run.step_poisoned();
  const auto *first = static_cast<const float*>(run.kept(0)),
             *second = static_cast<const float*>(run.kept(1));
  return {{first, first + count}, {second, second + x.size()}};
}

TEST(Activations, AreFiniteAtExtremes) {
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const float big = std::string(name) == "squareplus" ? 1e18f : 1e30f;
    const Slopes result = slopes_of(name, {-big, big, -90, 90, -1000, 1000, 0, -0.0f});
    for (float value : result.y) EXPECT_TRUE(std::isfinite(value)) << value;
    for (float value : result.dx) EXPECT_TRUE(std::isfinite(value)) << value;
  }
}

TEST(Activations, HandNaNOn) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  for (const char* name : kNames) {
    SCOPED_TRACE(name);
    const std::string text = name;
    if (text == "hard_shrink" || text == "threshold") continue;  // Keras's comparisons swallow it
    const Slopes result = slopes_of(name, {nan, nan});
    EXPECT_TRUE(std::isnan(result.y[0])) << result.y[0];
  }
}

TEST(Activations, SlopesAtZero) {
  const std::pair<const char*, float> wanted[] = {
      {"softplus", 0.5f}, {"log_sigmoid", 0.5f}, {"elu", 1},         {"celu", 1},
      {"silu", 0.5f},     {"mish", 0.6f},        {"softsign", 1},    {"squareplus", 0.5f},
      {"tanh_shrink", 0}, {"selu", 1.7580993f},  {"sigmoid", 0.25f}, {"sparse_plus", 0.5f}};
  for (const auto& [name, slope] : wanted)
    EXPECT_NEAR(slopes_of(name, {0, 0}).dx[0], slope, 1e-6f) << name;
}

// In float64, from the formulas.
TEST(Activations, KeepTheirDigitsNearZero) {
  std::vector<float> x, elu, selu, celu, slope;
  for (double size : {1e-30, 1e-7, 1e-4, 1e-3, 0.1, 1.0, 4.0}) {
    x.push_back(static_cast<float>(-size));
    const double v = x.back(), alpha = 1.6732632423543772848, scale = 1.0507009873554804934;
    elu.push_back(static_cast<float>(std::expm1(v)));
    selu.push_back(static_cast<float>(scale * alpha * std::expm1(v)));
    celu.push_back(static_cast<float>(2 * std::expm1(v / 2)));
    slope.push_back(static_cast<float>(std::exp(v)));
  }
  x.push_back(2);
  elu.push_back(2);
  auto near = [&](const std::vector<float>& got, const std::vector<float>& wanted) {
    for (size_t i = 0; i < wanted.size(); ++i)
      EXPECT_NEAR(got[i], wanted[i], 4e-7f * std::abs(wanted[i])) << x[i];
  };
  const Slopes of_elu = slopes_of("elu", x);
  near(of_elu.y, elu);
  near(of_elu.dx, slope);
  near(slopes_of("selu", x).y, selu);
  near(slopes_of("celu:alpha=2", x).y, celu);
}

TEST(Activations, OfIntegersAreFloatsOrStay) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  auto of = [](const char* name, Dtype dtype) {
    Tensor x({dtype, {1, 2}});
    std::memset(x.data(), 1, static_cast<size_t>(x.meta().bytes()));
    return activate(name, x).dtype();
  };
  for (const char* name : kNames)
    for (Dtype dtype : {Dtype::int32, Dtype::int64, Dtype::uint8, Dtype::boolean}) {
      const std::string text = name;
      const Dtype own = is_floating(dtype) || size_of(dtype) > 1 ? dtype : Dtype::int32;
      const Dtype wanted = text == "linear"                    ? dtype
                           : text == "relu" || text == "relu6" ? own
                                                               : Dtype::float32;
      EXPECT_EQ(of(name, dtype), wanted) << name;
    }
  EXPECT_EQ(of("relu:max_value=2.5", Dtype::int32), Dtype::float32);
  Tensor x({Dtype::int32, {1, 4}});
  const int32_t given[] = {-3, 5, 7, 2000000001};
  std::copy_n(given, 4, x.data_as<int32_t>());
  auto values = [](const Tensor& y) {
    return std::vector<int32_t>(y.data_as<int32_t>(), y.data_as<int32_t>() + 4);
  };
  EXPECT_EQ(values(activate("relu", x)), (std::vector<int32_t>{0, 5, 7, 2000000001}));
  EXPECT_EQ(values(activate("relu6", x)), (std::vector<int32_t>{0, 5, 6, 6}));
}

std::string words_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

TEST(Activations, RefuseInWords) {
  EXPECT_NE(words_of([] { Dense(3, {.activation = "reluu"}); })
                .find("[model] activation: expected one of linear, "
                      "relu:negative_slope=...,max_value=...,threshold=..., relu6"),
            std::string::npos);
  EXPECT_EQ(words_of([] { Dense(4, {.activation = "glu"}); }),
            "[model] activation: expected one that keeps the shape, received 'glu'; use "
            "Activation(\"glu\") behind the layer");
  EXPECT_EQ(words_of([] { Activation("glu", "gate")(Input({5})); }),
            "[build] gate: expected an even size along the axis that glu halves, received (5,)");
  EXPECT_EQ(words_of([] { check_constraint("min_max_norm:min_value=2"); }),
            "[model] constraint: expected 0 <= min_value <= max_value and a rate from 0 to 1, "
            "received 'min_max_norm:min_value=2'");
  EXPECT_NE(
      words_of([] { check_regularizer("l3"); }).find("[model] regularizer: expected one of l1"),
      std::string::npos);
}

}  // namespace
}  // namespace pl::activation_test
