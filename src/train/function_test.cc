// Traced functions: the same bits as eager runs, traces and warnings, variables, and a budget.
#include "train/function.h"

#include <gtest/gtest.h>

#include <cstring>

#include "base/error.h"
#include "op/functions.h"
#include "tests/messages.h"
#include "tests/patterns.h"

namespace pl::function_test {
namespace {

using test::same_bits;

Tensor noise(Shape shape, int seed) {
  Tensor x({Dtype::float32, std::move(shape)});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<float>()[i] = static_cast<float>((i * 7919 + seed * 104729) % 1009) / 1009.0f - 0.5f;
  return x;
}

float scalar(const Tensor& x) { return x.data_as<float>()[0]; }

// A dense net with weights of its own.
struct Net {
  Variable w1{noise({12, 16}, 1), {.name = "w1"}}, b1{noise({16}, 2), {.name = "b1"}},
      w2{noise({16, 3}, 3), {.name = "w2"}}, b2{noise({3}, 4), {.name = "b2"}};
  std::vector<Variable> weights() const { return {w1, b1, w2, b2}; }
  Tensor loss(const Tensor& x, const Tensor& y) const {
    const Tensor h = relu(matmul(x, w1, {}, b1));
    return reduce_mean(square(subtract(tanh(matmul(h, w2, {}, b2)), y)));
  }
  Tensor step(const Tensor& x, const Tensor& y) const {
    GradientTape tape;
    const Tensor result = loss(x, y);
    const Tensors g = tape.gradient(result, weights());
    for (size_t i = 0; i < g.size(); ++i) weights()[i].assign_sub(scale(g[i], 0.1));
    return result;
  }
};

class FunctionTest : public testing::Test {
 protected:
  Runtime runtime_{{.memory = "64MiB", .threads = 1}};
};

TEST_F(FunctionTest, TrainsWithTheBitsOfAnEagerRun) {
  const Net eager, traced;
  auto step = function([&](const Tensor& x, const Tensor& y) { return traced.step(x, y); });
  float first = 0, last = 0;
  for (int i = 0; i < 5; ++i) {
    const Tensor x = noise({8, 12}, 10 + i % 2), y = noise({8, 3}, 20 + i % 2);
    const Tensor a = eager.step(x, y), b = step(x, y);
    EXPECT_TRUE(same_bits(a, b)) << "step " << i;
    for (size_t w = 0; w < 4; ++w)
      EXPECT_TRUE(same_bits(eager.weights()[w].value(), traced.weights()[w].value()))
          << "step " << i << ", " << eager.weights()[w].name();
    (i == 0 ? first : last) = scalar(a);
  }
  EXPECT_EQ(step.traces(), 1);
  EXPECT_LT(last, first);
}

TEST_F(FunctionTest, TracesOnceForEachSignatureAndSaysWhy) {
  std::vector<std::string> warnings;
  auto twice = function([](const Tensor& x, double factor) { return scale(x, factor); },
                        {.name = "twice", .signatures = 2, .on_retrace = [&](const std::string& t) {
                           warnings.push_back(t);
                         }});
  for (int i = 0; i < 3; ++i) twice(noise({4}, i), 2.0);
  EXPECT_EQ(twice.traces(), 1);
  EXPECT_TRUE(warnings.empty());
  twice(noise({5}, 1), 2.0);
  twice(noise({5}, 1), 3.0);
  ASSERT_EQ(warnings.size(), 2u);
  EXPECT_EQ(warnings[0],
            "[function] twice: traced again (2 times so far): tensor argument 0 was float32 (4,) "
            "and is now float32 (5,)");
  EXPECT_EQ(warnings[1],
            "[function] twice: traced again (3 times so far): constant argument 0 was 2 and is "
            "now 3");
  twice(noise({5}, 1), 2.0);
  EXPECT_EQ(twice.traces(), 3) << "kept";
  twice(noise({4}, 1), 2.0);
  EXPECT_EQ(twice.traces(), 4) << "dropped when two others came";
}

TEST_F(FunctionTest, ReturnsListsLogsArgumentsAndVariables) {
  const Variable count(fill({}, 0), {.name = "count", .trainable = false});
  auto f = function([&](const Tensor& x) {
    count.assign_add(fill({}, 1));
    return Tensors{x, square(x), count.value()};
  });
  const Tensor x = noise({3}, 1);
  f(x);
  const Tensors out = f(x);
  EXPECT_TRUE(same_bits(out[0], x));
  EXPECT_TRUE(same_bits(out[1], square(x)));
  EXPECT_EQ(scalar(out[2]), 2);
  EXPECT_EQ(scalar(count.value()), 2);
  auto logs = function([](const Tensor& a) -> TensorLogs {
    return {{"sum", reduce_sum(a)}, {"a", a}};
  });
  EXPECT_TRUE(same_bits(logs(x).at("sum"), reduce_sum(x)));
  auto nothing = function([&](const Tensors& list) { count.assign(reduce_sum(list[1])); });
  nothing(Tensors{x, x});
  EXPECT_TRUE(same_bits(count.value(), reduce_sum(x)));
}

TEST_F(FunctionTest, CapturesValuesAsConstants) {
  const Tensor table = noise({4, 3}, 5);
  auto f = function([&](const Tensor& x) { return matmul(x, square(table)); });
  const Tensor x = noise({2, 4}, 6), expected = matmul(x, square(table));
  EXPECT_TRUE(same_bits(f(x), expected));
  EXPECT_TRUE(same_bits(f(x), expected)) << "again: the plan may have used their place";
}

TEST_F(FunctionTest, WhatWasReadBeforeACallStays) {
  const Variable w(fill({3}, 1));
  auto f = function([&](const Tensor& x) { w.assign_add(x); });
  const Tensor before = w.value();
  f(fill({3}, 2));
  const Tensor between = w.value();
  f(fill({3}, 2));
  EXPECT_EQ(scalar(before), 1);
  EXPECT_EQ(scalar(between), 3);
  EXPECT_EQ(scalar(w.value()), 5);
}

TEST_F(FunctionTest, FunctionsInFunctionsAreOneTrace) {
  auto inner = function([](const Tensor& x) { return square(x); });
  auto outer = function([&](const Tensor& x) { return add(inner(x), inner(scale(x, 2))); });
  const Tensor x = fill({2}, 3);
  EXPECT_EQ(scalar(outer(x)), 45);
  EXPECT_EQ(inner.traces(), 0);
}

TEST_F(FunctionTest, SecondDerivativesInside) {
  const Variable x(fill({}, 2));
  auto f = function([&] {
    GradientTape outer;
    GradientTape inner;
    const Tensor y = multiply(x, square(x));
    const Tensor dy = inner.gradient(y, {x})[0];
    return Tensors{dy, outer.gradient(dy, {x})[0]};
  });
  const Tensors d = f();
  EXPECT_FLOAT_EQ(scalar(d[0]), 12);
  EXPECT_FLOAT_EQ(scalar(d[1]), 12);
}

TEST_F(FunctionTest, MisuseIsNamed) {
  const Variable w(fill({2}, 1), {.name = "w"});
  auto stale = function(
      [&](const Tensor& x) {
        const Tensor old = w.value();
        w.assign(x);
        return multiply(old, x);
      },
      {.name = "stale"});
  EXPECT_EQ(test::message_of([&] { stale(fill({2}, 1)); }),
            "[function] stale: w: expected multiply to read it before it is assigned, received a "
            "value from before the assignment; compute what needs the old value first");
  auto f = function([&](const Tensor& x) { return multiply(w, x); }, {.name = "f"});
  EXPECT_EQ(test::message_of([&] {
              GradientTape tape;
              f(fill({2}, 1));
            }),
            "[function] f: expected no GradientTape that records around it, since none sees into "
            "a traced function; put the tape inside, or pause it with stop_recording()");
  EXPECT_EQ(test::message_of([&] { f(fill({3}, 1)); }).rfind("[function] f: [multiply]", 0), 0u);
  EXPECT_EQ(f.traces(), 0);
  EXPECT_EQ(scalar(f(fill({2}, 4))), 4);
}

// Sixteen activations of 256 KiB, all of which the gradient reads.
Tensor deep_step(const Variable& w, const Tensor& x) {
  GradientTape tape;
  Tensor h = x;
  for (int i = 0; i < 16; ++i) h = tanh(matmul(h, w));
  const Tensor loss = reduce_mean(square(h));
  w.assign_sub(scale(tape.gradient(loss, {w})[0], 0.5));
  return loss;
}

TEST(FunctionBudget, APlanIsMadeThatFits) {
  Tensor wide, tight;
  Bytes unlimited = 0;
  {
    Runtime runtime({.threads = 1});
    const Variable w(noise({64, 64}, 1));
    auto step = function([&](const Tensor& x) { return deep_step(w, x); });
    for (int i = 0; i < 3; ++i) wide = step(noise({1024, 64}, 2));
    unlimited = step.plan().arena;
    EXPECT_GT(unlimited, 16 * 256 * kKiB);
  }
  {
    Runtime runtime({.memory = "3MiB", .threads = 1});
    const Variable w(noise({64, 64}, 1));
    auto step = function([&](const Tensor& x) { return deep_step(w, x); });
    for (int i = 0; i < 3; ++i) tight = step(noise({1024, 64}, 2));
    EXPECT_LT(step.plan().arena, 3 * kMiB);
    EXPECT_TRUE(step.plan().recomputed > 0 || step.plan().split > 1);
    EXPECT_LE(runtime.memory().peak, 3 * kMiB);
  }
  EXPECT_NEAR(scalar(wide), scalar(tight), 1e-6 * scalar(wide));
}

TEST(FunctionBudget, WhatDoesNotFitIsRefusedBeforeItRuns) {
  Runtime runtime({.memory = "1MiB", .threads = 1});
  const Variable w(noise({64, 64}, 1));
  auto step = function([&](const Tensor& x) { return deep_step(w, x); }, {.name = "deep"});
  const Tensor x = noise({1024, 64}, 2), before = w.value();
  const std::string message = test::message_of([&] { step(x); });
  EXPECT_EQ(message.rfind("[function] deep: expected ", 0), 0u) << message;
  EXPECT_NE(message.find("within memory = 1.00 MiB"), std::string::npos) << message;
  EXPECT_TRUE(same_bits(w.value(), before));
}

TEST(FunctionBudget, MemoryIsHeldOnlyWhileItRuns) {
  Runtime runtime({.memory = "32MiB", .threads = 1});
  const Variable w(noise({64, 64}, 1));
  auto step = function([&](const Tensor& x) { return deep_step(w, x); });
  const Tensor x = noise({1024, 64}, 2);
  step(x);
  const Bytes used = runtime.memory().used;
  EXPECT_LT(used, 2 * kMiB);
  for (int i = 0; i < 3; ++i) step(x);
  EXPECT_EQ(runtime.memory().used, used);
}

}  // namespace
}  // namespace pl::function_test
