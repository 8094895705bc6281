// Tapes on values: gradients against analytic values and differences, what they hold and when they
// let go. Second derivatives against central differences of first ones, in float64.
#include "trace/tape.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>

#include "backend/cpu/host_memory.h"
#include "base/error.h"
#include "op/functions.h"
#include "op/runtime.h"
#include "trace/gradient.h"

namespace pl::tape_test {
namespace {

Tensor values(Shape shape, const std::vector<double>& list, Dtype dtype = Dtype::float64) {
  Tensor x({Dtype::float64, std::move(shape)});
  std::copy(list.begin(), list.end(), x.data_as<double>());
  return cast(x, dtype);
}

// Numbers without a pattern, in (-1, 1).
Tensor noise(Shape shape, uint64_t seed) {
  Tensor x({Dtype::float64, std::move(shape)});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<double>()[i] = std::sin(static_cast<double>(seed * 131 + 1) * 0.7 +
                                      static_cast<double>(i) * static_cast<double>(i + 3) * 1.3);
  return x;
}

double scalar(const Tensor& x) { return x.data_as<double>()[0]; }

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing thrown";
}

class Tape : public testing::Test {
 protected:
  Runtime runtime_{{.memory = "64MiB", .threads = 1}};
};

TEST_F(Tape, WatchedTensorsHaveGradients) {
  const Tensor x = values({3}, {1, 2, 3}), other = values({3}, {4, 5, 6});
  GradientTape tape;
  tape.watch(x);
  const Tensor y = reduce_sum(multiply(square(x), other));
  const Tensors g = tape.gradient(y, {x, other});
  EXPECT_EQ(g[0].data_as<double>()[0], 8);
  EXPECT_EQ(g[0].data_as<double>()[2], 36);
  EXPECT_FALSE(g[1].defined()) << "nobody watched it";
}

TEST_F(Tape, VariablesAreWatchedWhenRead) {
  const Variable w(values({2, 2}, {1, 2, 3, 4}), {.name = "w"}),
      b(values({2}, {1, 1}), {.name = "b"}),
      frozen(values({2}, {5, 5}), {.name = "frozen", .trainable = false});
  const Tensor x = values({1, 2}, {10, 20});
  GradientTape tape;
  const Tensor y = reduce_sum(multiply(add(matmul(x, w), b), frozen));
  const Tensors g = tape.gradient(y, {w, b, frozen});
  EXPECT_EQ(g[0].data_as<double>()[0], 50);
  EXPECT_EQ(g[0].data_as<double>()[3], 100);
  EXPECT_EQ(g[1].data_as<double>()[1], 5);
  EXPECT_FALSE(g[2].defined());
}

TEST_F(Tape, ManyReadersOfAValueAddUp) {
  const Variable w(values({}, {3}));
  GradientTape tape;
  const Tensor y = add(multiply(w, w), exp(w));
  EXPECT_NEAR(scalar(tape.gradient(y, {w})[0]), 6 + std::exp(3), 1e-12);
}

TEST_F(Tape, UnconnectedGradients) {
  const Variable w(values({2}, {1, 2})), v(values({3}, {1, 2, 3}));
  GradientTape tape({.persistent = true});
  const Tensor y = reduce_sum(square(w)), unused = square(v);
  EXPECT_FALSE(tape.gradient(y, {v})[0].defined());
  const Tensor zeros =
      tape.gradient(y, {v}, {.unconnected_gradients = UnconnectedGradients::zero})[0];
  ASSERT_EQ(zeros.meta(), v.meta());
  for (int i = 0; i < 3; ++i) EXPECT_EQ(zeros.data_as<double>()[i], 0);
}

TEST_F(Tape, OutputGradientAndTargetsThatAreNoScalars) {
  const Variable w(values({2}, {3, 4}));
  GradientTape tape({.persistent = true});
  const Tensor y = square(w);
  EXPECT_EQ(tape.gradient(y, {w})[0].data_as<double>()[1], 8);
  EXPECT_EQ(
      tape.gradient(y, {w}, {.output_gradient = values({2}, {1, 10})})[0].data_as<double>()[1], 80);
  EXPECT_EQ(scalar(tape.gradient(w.value(), {w})[0]), 1) << "a source is its own target";
}

TEST_F(Tape, OneGradientUnlessPersistent) {
  const Variable w(values({}, {2}));
  GradientTape tape;
  const Tensor y = square(w);
  tape.gradient(y, {w});
  EXPECT_EQ(message_of([&] { tape.gradient(y, {w}); }),
            "[tape] gradient: expected a persistent tape for a second call, received one that "
            "freed what it held; write GradientTape tape({.persistent = true})");
}

TEST_F(Tape, PausesAndResets) {
  const Variable w(values({}, {2}));
  GradientTape tape({.persistent = true});
  const Tensor kept = square(w);
  Tensor hidden;
  {
    const auto pause = tape.stop_recording();
    hidden = exp(kept);
  }
  EXPECT_FALSE(tape.gradient(square(hidden), {w})[0].defined());
  EXPECT_EQ(scalar(tape.gradient(kept, {w})[0]), 4);
  tape.reset();
  EXPECT_EQ(tape.size(), 0u);
  EXPECT_FALSE(tape.gradient(kept, {w})[0].defined());
  EXPECT_EQ(scalar(tape.gradient(scale(w, 5), {w})[0]), 5) << "recording goes on";
}

TEST_F(Tape, ReadsBeforeAndAfterAnAssignment) {
  const Variable w(values({}, {2}));
  GradientTape tape({.persistent = true});
  const Tensor before = w.value(), y = square(w);
  w.assign_add(values({}, {3}));
  const Tensor z = multiply(y, square(w));  // w1^2 * w2^2 with w1 = 2, w2 = 5
  EXPECT_EQ(scalar(before), 2) << "what was read stays";
  EXPECT_EQ(scalar(w.value()), 5);
  // Both reads count: 2 * 2 * 25 + 4 * 2 * 5.
  EXPECT_EQ(scalar(tape.gradient(z, {w})[0]), 140);
}

TEST_F(Tape, HoldsAreFreedAtOnce) {
  const Variable w(noise({64, 64}, 1));
  const Tensor x = noise({64, 64}, 2);
  auto forward = [&] {
    Tensor h = x;
    for (int i = 0; i < 8; ++i) h = tanh(matmul(h, w));
    return reduce_sum(h);
  };
  const Tensor warm = forward();
  const Bytes before = runtime_.memory().used;
  {
    GradientTape tape;
    const Tensor loss = forward();
    EXPECT_GT(runtime_.memory().used, before + 15 * 32 * kKiB) << "the tape keeps activations";
    EXPECT_GT(tape.held_bytes(), 15 * 32 * kKiB);
    const Tensors g = tape.gradient(loss, {w});
    EXPECT_EQ(tape.held_bytes(), 0);
    EXPECT_LT(runtime_.memory().used, before + 3 * 36 * kKiB) << "gradient() let go, in scope";
  }
  {
    GradientTape tape({.persistent = true});
    const Tensor loss = forward();
    tape.gradient(loss, {w});
    EXPECT_GT(runtime_.memory().used, before + 15 * 32 * kKiB);
    tape.reset();
    EXPECT_LT(runtime_.memory().used, before + 2 * 36 * kKiB) << "reset() let go";
    forward();
  }
  {
    GradientTape never_asked;
    forward();
  }
  EXPECT_LE(runtime_.memory().used, before + 16 * kKiB) << "kernels of the gradient";
}

TEST_F(Tape, AnErrorInAGradientNamesTheOp) {
  const Variable w(noise({1, 4, 4, 1}, 3));
  GradientTape outer;
  Tensor slope;
  {
    GradientTape inner;
    slope = inner.gradient(reduce_sum(max_pool(w)), {w})[0];
  }
  const Tensor target = reduce_sum(multiply(slope, slope));
  EXPECT_FALSE(outer.gradient(target, {w})[0].defined()) << "the slopes of a pool are constants";
  const Variable x(noise({1, 3, 12}, 4));
  EXPECT_EQ(message_of([&] {
              GradientTape second;
              GradientTape first;
              const Tensor y = attention(x, {.heads = 2});
              const Tensor dx = first.gradient(reduce_sum(square(y)), {x})[0];
              second.gradient(reduce_sum(square(dx)), {x});
            }),
            "[gradient] expected an op with a gradient, received attention_gradient; stop the "
            "gradient before it or use another op");
}

TEST_F(Tape, ThirdDerivativeOfACube) {
  const Variable x(values({}, {2}));
  GradientTape t1, t2, t3;
  const Tensor y = multiply(x, square(x));
  const Tensor d1 = t3.gradient(y, {x})[0];
  const Tensor d2 = t2.gradient(d1, {x})[0];
  const Tensor d3 = t1.gradient(d2, {x})[0];
  EXPECT_NEAR(scalar(d1), 12, 1e-12);
  EXPECT_NEAR(scalar(d2), 12, 1e-12);
  EXPECT_NEAR(scalar(d3), 6, 1e-12);
}

// A scalar function of some variables whose second derivatives are checked.
struct Case {
  const char* name;
  std::vector<Shape> shapes;
  Tensor (*loss)(const std::vector<Variable>& w);
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

Tensor labels(const std::vector<int32_t>& list) {
  Tensor y({Dtype::int32, {static_cast<Dim>(list.size())}});
  std::copy(list.begin(), list.end(), y.data_as<int32_t>());
  return y;
}

const Case kCases[] = {
    {"Pointwise",
     {{3, 4}, {4}},
     [](const std::vector<Variable>& w) {
       const Tensor a = multiply(tanh(w[0]), sigmoid(w[1])), b = add(square(a), scale(a, 1, 2));
       return reduce_sum(divide(log(b), sqrt(exp(subtract(w[0], abs(w[1]))))));
     }},
    {"MaximaOfReduced",
     {{3, 4}, {3, 4}},
     [](const std::vector<Variable>& w) {
       const Tensor m = maximum(square(w[0]), multiply(w[0], w[1]));
       return add(reduce_sum(square(reduce_max(m, {1}))), reduce_sum(minimum(exp(w[1]), m)));
     }},
    {"Mlp",
     {{3, 5}, {5}, {5, 2}, {2}},
     [](const std::vector<Variable>& w) {
       const Tensor h = tanh(matmul(noise({4, 3}, 11), w[0], {}, w[1]));
       const Tensor y = matmul(h, w[2], {}, w[3]);
       return reduce_mean(square(subtract(y, noise({4, 2}, 12))));
     }},
    {"SparseCrossEntropy",
     {{3, 5}, {5, 4}},
     [](const std::vector<Variable>& w) {
       const Tensor logits = matmul(relu(matmul(noise({6, 3}, 13), w[0])), w[1]);
       return reduce_mean(sparse_softmax_cross_entropy(logits, labels({0, 1, 2, 3, 1, 0})).loss);
     }},
    {"CrossEntropyOfDistributions",
     {{6, 4}},
     [](const std::vector<Variable>& w) {
       return reduce_sum(softmax_cross_entropy(w[0], softmax(noise({6, 4}, 14))).loss);
     }},
    {"Softmax",
     {{4, 5}},
     [](const std::vector<Variable>& w) {
       return reduce_sum(multiply(softmax(w[0]), square(softmax(scale(w[0], 2)))));
     }},
    {"Convolutions",
     {{3, 3, 2, 3}, {3}, {2, 2, 3, 2}},
     [](const std::vector<Variable>& w) {
       const Tensor x = noise({2, 6, 6, 2}, 15);
       const Tensor h = tanh(conv2d(x, w[0], {.padding = "same"}, w[1]));
       return reduce_sum(square(tanh(conv2d(h, w[2], {.strides = {2, 2}}))));
     }},
    {"ReshapeTransposeConcatenate",
     {{2, 6}, {4, 3}},
     [](const std::vector<Variable>& w) {
       const Tensor a = transpose(reshape(w[0], {3, 4}), {1, 0});
       return reduce_sum(
           square(tanh(multiply(concatenate({a, w[1]}, 1), concatenate({w[1], a}, 1)))));
     }},
};

class SecondDerivative : public testing::TestWithParam<Case> {};

// The slope of <gradient, direction> along every element.
TEST_P(SecondDerivative, IsTheSlopeOfTheFirst) {
  Runtime runtime({.threads = 1});
  const Case& c = GetParam();
  std::vector<Variable> w;
  Tensors direction;
  for (size_t i = 0; i < c.shapes.size(); ++i) {
    w.emplace_back(noise(c.shapes[i], 20 + i));
    direction.push_back(noise(c.shapes[i], 40 + i));
  }
  auto slope = [&] {
    GradientTape tape;
    const Tensors g = tape.gradient(c.loss(w), w);
    Tensor sum;
    for (size_t i = 0; i < w.size(); ++i) {
      const Tensor part = reduce_sum(multiply(g[i], direction[i]));
      sum = sum.defined() ? add(sum, part) : part;
    }
    return sum;
  };
  GradientTape outer;
  const Tensors hessian_vector = outer.gradient(slope(), w);
  constexpr double kStep = 1e-5;
  for (size_t i = 0; i < w.size(); ++i) {
    ASSERT_TRUE(hessian_vector[i].defined());
    for (int64_t e = 0; e < w[i].meta().elements(); ++e) {
      Tensor delta = fill(w[i].shape(), 0, Dtype::float64);
      delta.data_as<double>()[e] = kStep;
      const Tensor twice = scale(delta, 2);
      w[i].assign_add(delta);
      const double up = scalar(slope());
      w[i].assign_sub(twice);
      const double down = scalar(slope());
      w[i].assign_add(delta);
      const double expected = (up - down) / (2 * kStep);
      EXPECT_NEAR(hessian_vector[i].data_as<double>()[e], expected,
                  1e-7 + 1e-6 * std::fabs(expected))
          << i << "[" << e << "]";
    }
  }
}

INSTANTIATE_TEST_SUITE_P(Tape, SecondDerivative, testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

TEST(EagerTape, StepsDoNotGrow) {
  Runtime runtime({.memory = "32MiB", .threads = 1});
  const Variable w(noise({32, 32}, 1)), b(noise({32}, 2));
  const Tensor x = noise({16, 32}, 3), y = noise({16, 32}, 4);
  auto step = [&] {
    GradientTape tape;
    const Tensor loss = reduce_mean(square(subtract(tanh(matmul(x, w, {}, b)), y)));
    const Tensors g = tape.gradient(loss, {w, b});
    w.assign_sub(scale(g[0], 0.01));
    b.assign_sub(scale(g[1], 0.01));
    return scalar(loss);
  };
  const double first = step();
  for (int i = 0; i < 50; ++i) step();
  const Bytes resident = process_resident(), used = runtime.memory().used;
  double last = 0;
  for (int i = 0; i < 10'000; ++i) last = step();
  EXPECT_LT(last, first);
  EXPECT_EQ(runtime.memory().used, used);
  EXPECT_LT(process_resident() - resident, kMiB);
}

}  // namespace
}  // namespace pl::tape_test
