#include "op/fused_pointwise.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "hwy/targets.h"
#include "op/functions.h"
#include "tests/graph_run.h"

namespace pl::test::fused_pointwise_test {
namespace {

TEST(TileProgram, PrintsAsItReads) {
  for (const char* text : {"add 0 1;tanh 2", "scale 0 0.1 -3e-300;divide 1 2",
                           "dropout 0 1 0.3333333333333333 -9223372036854775807 0;gelu 2 1",
                           "cast 0;relu_gradient 1 2"}) {
    const auto program = parse_tile_program(text, 2);
    ASSERT_TRUE(program) << text;
    EXPECT_EQ(print(*program), text);
  }
}

TEST(TileProgram, RefusesWhatIsNone) {
  for (const char* text : {"", "add 0", "add 0 2", "add 0 1 2", "add 0 1;", "nothing 0", "tanh -1",
                           "tanh 0", "scale 0 1;add 2 1", "add 0 1;add 2 4", "dropout 0 1 1 5 1",
                           "add 0 1x", "cast 2;add 0 1", "cast 0;add 0 1"})
    EXPECT_FALSE(parse_tile_program(text, 2)) << text;
  std::string longest = "add 0 1";
  for (int i = 2; i < kMostTileInstructions + 1; ++i) longest += ";tanh " + std::to_string(i);
  EXPECT_TRUE(parse_tile_program(longest, 2));
  EXPECT_FALSE(parse_tile_program(longest + ";tanh 2", 2));
  // Twenty values that are all needed at the end.
  std::string wide = "add 0 1";
  for (int i = 0; i < 20; ++i) wide += ";scale 2 " + std::to_string(i) + " 0";
  for (int i = 0; i < 20; ++i)
    wide += ";add " + std::to_string(22 - i) + " " + std::to_string(i > 0 ? 22 + i : 2);
  EXPECT_FALSE(parse_tile_program(wide, 2));
}

TEST(FusedPointwise, SaysWhatItExpected) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  const Tensor x({Dtype::float32, {2}});
  const std::string error =
      error_of<UserError>([&] { fused_pointwise({x}, "add 0 1", Dtype::float32); });
  EXPECT_NE(error.find("[fused_pointwise] expected a program over these operands"),
            std::string::npos)
      << error;
}

Tensor numbers(std::initializer_list<float> list) {
  Tensor tensor({Dtype::float32, {static_cast<Dim>(list.size())}});
  std::copy(list.begin(), list.end(), tensor.data_as<float>());
  return tensor;
}

// Every instruction lets NaN through that the op itself lets through, zeros keep their signs.
TEST(FusedPointwise, TreatsNanZerosAndInfinitiesAsTheOpsDo) {
  CpuBackend backend(2);
  BackendScope scope(backend);
  const float nan = std::nanf(""), inf = std::numeric_limits<float>::infinity();
  const Tensor x = numbers({nan, 0.0f, -0.0f, inf, -inf, 1.0f, -2.0f, 3e38f, 1e-40f, nan, 2.0f});
  const Tensor y = numbers({1.0f, -0.0f, 0.0f, inf, inf, nan, -2.0f, 3e38f, -1e-40f, nan, -inf});
  struct Pair {
    const char* program;
    Tensor expected;
  };
  const Pair pairs[] = {
      {"add 0 1", add(x, y)},
      {"subtract 0 1", subtract(x, y)},
      {"multiply 0 1", multiply(x, y)},
      {"divide 0 1", divide(x, y)},
      {"maximum 0 1", maximum(x, y)},
      {"minimum 0 1", minimum(x, y)},
      {"equal_mask 0 1", equal_mask(x, y)},
      {"greater_mask 0 1", greater_mask(x, y)},
      {"greater_equal_mask 0 1", greater_equal_mask(x, y)},
      {"relu_gradient 0 1", relu_gradient(x, y)},
      {"leaky_relu_gradient 0 1 0.5", leaky_relu_gradient(x, y, 0.5)},
      {"gelu_gradient 0 1 0", gelu_gradient(x, y)},
      {"negative 0;add 2 1", add(negative(x), y)},
      {"exp 0;add 2 1", add(exp(x), y)},
      {"log 0;add 2 1", add(log(x), y)},
      {"sqrt 0;add 2 1", add(sqrt(x), y)},
      {"square 0;add 2 1", add(square(x), y)},
      {"tanh 0;add 2 1", add(tanh(x), y)},
      {"sigmoid 0;add 2 1", add(sigmoid(x), y)},
      {"abs 0;add 2 1", add(abs(x), y)},
      {"sign 0;add 2 1", add(sign(x), y)},
      {"scale 0 -2 0.5;add 2 1", add(scale(x, -2, 0.5), y)},
      {"relu 0;add 2 1", add(relu(x), y)},
      {"leaky_relu 0 0.25;add 2 1", add(leaky_relu(x, 0.25), y)},
      {"gelu 0 1;add 2 1", add(gelu(x, true), y)},
  };
  for (const Pair& pair : pairs) {
    const Tensor got = fused_pointwise({x, y}, pair.program, Dtype::float32);
    for (int64_t i = 0; i < 11; ++i) {
      const float a = got.data_as<float>()[i], b = pair.expected.data_as<float>()[i];
      EXPECT_TRUE((std::isnan(a) && std::isnan(b)) || std::memcmp(&a, &b, sizeof a) == 0)
          << pair.program << " at " << i << ": " << a << ", " << b;
    }
  }
}

// The narrowest target that is compiled in, the one for CPUs without any of the wide vectors, and
// all others give the same bits.
TEST(FusedPointwise, GivesTheSameBitsOnEveryTarget) {
  const std::string text =
      "add 0 1;tanh 2;sigmoid 0;multiply 3 4;exp 5;gelu 6 0;scale 7 0.3 -0.1;divide 8 1;relu "
      "9;sqrt 10";
  const auto program = parse_tile_program(text, 2);
  ASSERT_TRUE(program);
  constexpr Dim kCount = 1000;
  std::vector<float> x(kCount), y(kCount);
  for (Dim i = 0; i < kCount; ++i) {
    x[static_cast<size_t>(i)] = static_cast<float>(i - 500) / 61;
    y[static_cast<size_t>(i)] = static_cast<float>((i * 37) % 101 + 1) / 13;
  }
  std::vector<float> first;
  int targets = 0;
  for (const int64_t target : hwy::SupportedAndGeneratedTargets()) {
    hwy::SetSupportedTargetsForTest(target);
    std::vector<std::vector<float>> values{x, y};
    for (const TileInstruction& made : program->code) {
      const float* a = values[static_cast<size_t>(made.a)].data();
      const float* b = made.b < 0 ? nullptr : values[static_cast<size_t>(made.b)].data();
      std::vector<float> result(kCount);
      cpu::run_tile_simd(made, a, b, result.data(), kCount);
      values.push_back(std::move(result));
    }
    if (first.empty()) first = values.back();
    EXPECT_EQ(std::memcmp(first.data(), values.back().data(), kCount * sizeof(float)), 0)
        << hwy::TargetName(target);
    ++targets;
  }
  hwy::SetSupportedTargetsForTest(0);
  EXPECT_GE(targets, 1);
}

// Within two units in the last place of the value in double precision.
TEST(FusedPointwise, FunctionsAreAccurate) {
  struct Function {
    TileOp op;
    double (*exact)(double);
  };
  const Function functions[] = {
      {TileOp::exp, [](double x) { return std::exp(x); }},
      {TileOp::tanh, [](double x) { return std::tanh(x); }},
      {TileOp::sigmoid, [](double x) { return 1 / (1 + std::exp(-x)); }},
      {TileOp::expm1, [](double x) { return std::expm1(x); }},
  };
  for (const Function& f : functions) {
    double worst = 0;
    for (int i = -87'000; i < 87'000; ++i) {
      const float x = static_cast<float>(i) / 1000;
      float y;
      cpu::run_tile_simd({.op = f.op}, &x, nullptr, &y, 1);
      const float exact = static_cast<float>(f.exact(x));
      if (std::fabs(exact) < std::numeric_limits<float>::min()) continue;
      const double ulp = std::nextafter(std::fabs(exact), 1e38f) - std::fabs(exact);
      worst = std::max(worst, std::fabs(y - f.exact(x)) / ulp);
    }
    EXPECT_LE(worst, 2.0) << static_cast<int>(f.op);
  }
}

}  // namespace
}  // namespace pl::test::fused_pointwise_test
