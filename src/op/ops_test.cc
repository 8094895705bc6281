// keras.ops and operators against Keras (tests/golden/keras_ops.py), in float32 and float64, on
// values and with gradients.
#include "op/ops.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/json.h"
#include "op/runtime.h"
#include "tests/counter_hash.h"
#include "tests/data_files.h"
#include "tests/places.h"
#include "trace/tape.h"
#include "train/function.h"

namespace pl::ops_test {
namespace {

using test::hashed_integers;
using test::hashed_reals;

struct Inputs {
  explicit Inputs(Dtype dtype)
      : x(hashed_reals(1, {dtype, {3, 4, 5}}, 1)),
        y(hashed_reals(2, {dtype, {3, 4, 5}}, 1)),
        v(hashed_reals(3, {dtype, {5}}, 1)),
        p(hashed_reals(4, {dtype, {3, 4, 5}}, 0, 1.5f)),
        q(hashed_reals(4, {dtype, {3, 4, 5}}, 0, 1.5f)),
        b(hashed_reals(5, {dtype, {3, 5, 2}}, 1)),
        m(hashed_reals(6, {dtype, {5, 2}}, 1)),
        i(hashed_integers(7, {3, 4}, 5)),
        j(hashed_integers(8, {6}, 4)),
        k(hashed_integers(11, {3, 2}, 5)) {}
  Tensor x, y, v, p, q, b, m, i, j, k;
};

// A function of x, and x.
struct Case {
  std::function<Tensor(const Tensor& x, const Inputs& in)> run;
  bool positive = false;
};

Tensor as(const Tensor& x, const Tensor& like) { return ops::cast(x, like.dtype()); }

std::map<std::string, Case> elementwise() {
  using T = const Tensor&;
  using In = const Inputs&;
  return {
      {"plus", {[](T x, In in) { return x + in.v; }}},
      {"minus", {[](T x, In) { return 1.5 - x; }}},
      {"times", {[](T x, In in) { return -x * in.y * 2.0 + 3; }}},
      {"over", {[](T x, In in) { return x / in.q / 3.0 + 1.0 / x; }, true}},
      {"comparisons", {[](T x, In in) {
         return as(x < in.y, x) + 2 * as(x >= in.v, x) + 4 * as(x > 0 && !(x > 1), x);
       }}},
      {"power_3", {[](T x, In) { return ops::power(x, 3); }}},
      {"power_m2", {[](T x, In) { return ops::power(x, -2); }, true}},
      {"power_real", {[](T x, In) { return ops::pow(x, 2.7); }, true}},
      {"power_tensor", {[](T x, In in) { return ops::power(x, in.y); }, true}},
      {"clip", {[](T x, In) { return ops::clip(x, -0.5, 1.0); }}},
      {"where", {[](T x, In) { return ops::where(x > 0, ops::log(ops::abs(x)), x * 2.0); }}},
      {"where_number", {[](T x, In in) { return ops::where(x > in.v, x, -3.5); }}},
      {"maximum", {[](T x, In in) { return ops::maximum(x, 0.25) + ops::minimum(x, in.y); }}},
      {"abs_sqrt", {[](T x, In) { return ops::sqrt(ops::abs(x)) + ops::sign(x); }}},
      {"rsqrt", {[](T x, In) { return ops::rsqrt(x) + ops::reciprocal(x); }, true}},
      {"exp_log", {[](T x, In) {
         return ops::exp(x) + ops::expm1(x) + ops::log1p(x + 2.0) + ops::log(x + 2.5);
       }}},
      {"logs", {[](T x, In) { return ops::log2(x) + ops::log10(x); }, true}},
      {"sin_cos", {[](T x, In) { return ops::sin(3.0 * x) + 2.0 * ops::cos(5.0 * x); }}},
      {"round", {[](T x, In) { return ops::floor(x) + 10 * ops::ceil(x) + 100 * ops::round(x); }}},
      {"floor_divide", {[](T x, In) { return ops::floor_divide(x, 0.75) + ops::mod(x, 0.25); }}},
      {"squashing",
       {[](T x, In) { return ops::tanh(x) + ops::sigmoid(x) + ops::softplus(x) + ops::relu(x); }}},
      {"softmax", {[](T x, In) { return ops::softmax(x, 1) + ops::log_softmax(x, -1); }}},
      {"one_hot", {[](T x, In in) { return ops::one_hot(in.i, 5, x.dtype()) * x; }}},
      {"stop", {[](T x, In) { return ops::stop_gradient(x) * x; }}},
  };
}

std::map<std::string, Case> reductions() {
  using T = const Tensor&;
  using In = const Inputs&;
  return {
      {"sum", {[](T x, In) { return ops::sum(x, 1); }}},
      {"sum_keep", {[](T x, In) {
         return ops::sum(x, {0, -1}, true);
       }}},
      {"mean", {[](T x, In) { return ops::mean(x, -1); }}},
      {"mean_all", {[](T x, In) { return ops::mean(x); }}},
      {"max", {[](T x, In) { return ops::max(x, 1) + ops::min(x, 1); }}},
      {"prod",
       {[](T x, In) {
          return ops::prod(x, {1, 2});
        },
        true}},
      {"var", {[](T x, In) { return ops::var(x, 1) + ops::std(x, 1); }}},
      {"logsumexp", {[](T x, In) { return ops::logsumexp(x * 30.0, -1); }}},
      {"norm", {[](T x, In) { return ops::norm(x, -1); }}},
      {"cumsum", {[](T x, In) { return ops::cumsum(x, 1) + 2.0 * ops::cumsum(x, 0); }}},
      {"argmax", {[](T x, In) { return as(ops::argmax(x, 1) + 10 * ops::argmin(x, 1), x); }}},
      {"argmax_all", {[](T x, In) { return as(ops::argmax(x), x); }}},
      {"any_all", {[](T x, In) {
         return as(ops::any(x > 1.5, 1), x) + 2 * as(ops::all(x > -1.5, 1), x) +
                4 * as(ops::count_nonzero(x > 0, 1), x);
       }}},
      {"matmul_2", {[](T x, In in) { return ops::matmul(x, in.m); }}},
      {"matmul_3", {[](T x, In in) { return ops::matmul(x, in.b); }}},
      {"matmul_1", {[](T x, In in) { return ops::matmul(x, in.v); }}},
      {"matmul_4", {[](T x, In in) { return ops::matmul(ops::expand_dims(x, 1), in.b); }}},
  };
}

std::map<std::string, Case> shapes() {
  using T = const Tensor&;
  using In = const Inputs&;
  return {
      {"shapes", {[](T x, In) {
         return ops::reshape(ops::transpose(ops::expand_dims(x, 1), {0, 3, 1, 2}), {-1, 10});
       }}},
      {"swap", {[](T x, In) { return ops::swapaxes(ops::moveaxis(x, 0, 2), 0, 1); }}},
      {"concatenate", {[](T x, In in) {
         return ops::concatenate({x, in.y, x * 2.0}, 1);
       }}},
      {"stack", {[](T x, In in) {
         return ops::stack({x, in.y}, 1) + ops::stack({in.y, x}, 1);
       }}},
      {"stack_last", {[](T x, In in) {
         return ops::stack({x, in.y}, -1);
       }}},
      {"unstack",
       {[](T x, In) { return ops::unstack(x, 1)[2] - ops::take(ops::split(x, 2, 1)[1], 0, 1); }}},
      {"slice", {[](T x, In) {
         return ops::slice(x, {0, 1, 2}, {-1, 2, 3});
       }}},
      {"take", {[](T x, In in) { return ops::take(x, in.j, 1); }}},
      {"take_0", {[](T x, In in) { return ops::take(x, ops::mod(in.k, 3), 0); }}},
      {"take_along",
       {[](T x, In in) { return ops::take_along_axis(x, ops::expand_dims(in.i, -1)); }}},
      {"repeat", {[](T x, In) { return ops::repeat(x, 3, 1); }}},
      {"tile", {[](T x, In) {
         return ops::tile(x, {1, 2, 2});
       }}},
      {"roll", {[](T x, In) { return ops::roll(x, 3, 1) + ops::roll(x, -1, 2); }}},
      {"pad", {[](T x, In) {
         return ops::pad(x, {{0, 0}, {1, 2}, {0, 3}}, 0.5);
       }}},
  };
}

std::map<std::string, Case> order_and_einsum() {
  using T = const Tensor&;
  using In = const Inputs&;
  return {
      {"flip", {[](T x, In) {
         return ops::flip(x, 1) + ops::flip(x, {0, 2}) + ops::flip(x);
       }}},
      {"sort", {[](T x, In) { return ops::sort(x) + 2.0 * ops::sort(x, 1); }}},
      {"argsort", {[](T x, In) { return as(ops::argsort(x) + 10 * ops::argsort(x, 0), x); }}},
      {"top_k", {[](T x, In) { return ops::top_k(x, 3).values; }}},
      {"top_k_indices", {[](T x, In) { return as(ops::top_k(ops::round(x), 4).indices, x); }}},
      {"linspace", {[](T x, In) { return x * ops::linspace(-1, 2, 5); }}},
      {"einsum", {[](T x, In in) {
         return ops::einsum("abc,acd->adb", {x, in.b});
       }}},
      {"einsum_sum", {[](T x, In in) {
         return ops::einsum("abc,abc->b", {x, in.y});
       }}},
      {"einsum_one", {[](T x, In) { return ops::einsum("abc->ca", {x}); }}},
      {"einsum_dots", {[](T x, In in) {
         return ops::einsum("...c,cd->d...", {x, in.m});
       }}},
      {"einsum_batch", {[](T x, In in) {
         return ops::einsum("...ij,...kj->...ik", {x, in.y});
       }}},
      {"einsum_three", {[](T x, In in) {
         return ops::einsum("abc, cd, abd -> ad", {x, in.m, ops::matmul(in.y, in.m)});
       }}},
  };
}

class Ops : public ::testing::Test {
 protected:
  Ops() : runtime_({.memory = "64MiB", .threads = 1}) {}
  Runtime runtime_;
};

void expect_near(const Tensor& got, const Json& wanted, Dtype dtype, const std::string& what) {
  const std::vector<double> ours = to_vector(got);
  const auto& theirs = wanted.as_array("numbers");
  ASSERT_EQ(ours.size(), theirs.size()) << what;
  double squares = 0;
  for (const Json& number : theirs) squares += std::pow(number.as_real("number"), 2);
  const double rms = std::sqrt(squares / static_cast<double>(std::max<size_t>(ours.size(), 1)));
  const double tolerance = dtype == Dtype::float32 ? 1e-5 : 1e-10;
  for (size_t i = 0; i < ours.size(); ++i) {
    const double their = theirs[i].as_real("number");
    EXPECT_NEAR(ours[i], their, tolerance * std::max(std::abs(their), rms)) << what << " " << i;
  }
}

void agree(const std::map<std::string, Case>& cases) {
  const Json answers =
      parse_json(::pl::test::read_bytes(::pl::test::golden("keras_ops.json")), "keras_ops.json");
  for (const auto& [name, one] : cases)
    for (Dtype dtype : {Dtype::float32, Dtype::float64}) {
      const std::string what = name + " " + std::string(name_of(dtype));
      const Json& answer = answers.at(name, "answers");
      const Inputs in(dtype);
      const Tensor x = one.positive ? in.p : in.x;
      GradientTape tape;
      tape.watch(x);
      const Tensor y = one.run(x, in);
      std::vector<Dim> shape;
      for (const Json& dim : answer.at("shape", name.c_str()).as_array("shape"))
        shape.push_back(static_cast<Dim>(dim.as_real("dim")));
      EXPECT_EQ(y.shape(), Shape(shape)) << what;
      EXPECT_EQ(y.dtype(), dtype) << what;
      expect_near(y, answer.at("result", name.c_str()), dtype, what);
      if (const Json* gradient = answer.find("gradient")) {
        const Tensor w = hashed_reals(9, {dtype, y.shape()}, 0);
        const Tensor loss = ops::sum(y * w);
        expect_near(tape.gradient(loss, {x})[0], *gradient, dtype, what + " gradient");
      }
      // Traced, planned and fused it is the same.
      tape.reset();
      const auto pause = tape.stop_recording();
      auto traced = pl::function([&](const Tensor& given) { return one.run(given, in); });
      expect_near(traced(x), answer.at("result", name.c_str()), dtype, what + " traced");
    }
}

TEST_F(Ops, ElementwiseFunctionsAgreeWithKeras) { agree(elementwise()); }
TEST_F(Ops, ReductionsAgreeWithKeras) { agree(reductions()); }
TEST_F(Ops, ShapeFunctionsAgreeWithKeras) { agree(shapes()); }

TEST_F(Ops, OrderAndEinsumAgreeWithKeras) { agree(order_and_einsum()); }

TEST_F(Ops, SortingTakesNaNForTheLargestAndKeepsEqualOnes) {
  const double nan = std::nan("");
  const Tensor x = constant({2, nan, 1, 2, -1});
  EXPECT_EQ(to_vector(ops::argsort(x)), (std::vector<double>{4, 2, 0, 3, 1}));
  EXPECT_EQ(to_vector(ops::top_k(x, 3).indices), (std::vector<double>{1, 0, 3}));
  const Tensor whole = constant({3, 1, 2}, Dtype::int32);
  EXPECT_EQ(to_vector(ops::sort(whole)), (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(ops::sort(whole).dtype(), Dtype::int32);
}

TEST_F(Ops, EinsumSaysWhatItExpects) {
  const Tensor x = constant({{1, 2}, {3, 4}});
  auto words = [](const std::function<void()>& call) {
    try {
      call();
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("nothing thrown");
  };
  EXPECT_EQ(words([&] { ops::einsum("ij,jk->ik", {x}); }),
            "[einsum] expected a part for each of 1 operands, received 'ij,jk->ik'");
  EXPECT_EQ(words([&] { ops::einsum("ijk->i", {x}); }),
            "[einsum] expected a letter for each of 2 dimensions of an operand, received 'ijk->i'");
  EXPECT_EQ(words([&] { ops::einsum("ij->ik", {x}); }),
            "[einsum] expected letters of operands in the result, received 'ij->ik'");
  EXPECT_EQ(to_vector(ops::einsum("ji", {x})), (std::vector<double>{1, 3, 2, 4}));
}

TEST_F(Ops, DtypesMeetAsInKeras) {
  const Tensor whole = constant({1, 2, 3}, Dtype::int32), real = constant({0.5, 1, 2});
  EXPECT_EQ((whole + real).dtype(), Dtype::float32);
  EXPECT_EQ((whole + 1).dtype(), Dtype::int32);
  EXPECT_EQ((whole * 0.5).dtype(), Dtype::float32);
  EXPECT_EQ((whole / 2).dtype(), Dtype::float32);
  EXPECT_EQ(to_vector(whole / 2), (std::vector<double>{0.5, 1, 1.5}));
  EXPECT_EQ(to_vector(2 - whole), (std::vector<double>{1, 0, -1}));
  EXPECT_EQ((ops::cast(real, Dtype::float64) + real).dtype(), Dtype::float64);
  EXPECT_EQ(((real > 0.75) + whole).dtype(), Dtype::int32);
  EXPECT_EQ(to_vector(real == 1.0), (std::vector<double>{0, 1, 0}));
  EXPECT_EQ(to_vector(ops::sum(real > 0.75)), (std::vector<double>{2}));
}

TEST_F(Ops, WhatWhereDoesNotChooseHasNoPartInIt) {
  constexpr double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  const Tensor x = constant({-1, 0, 4}), wild = constant({nan, inf, 2});
  EXPECT_EQ(to_vector(ops::where(x > 0, wild, x)), (std::vector<double>{-1, 0, 2}));
  EXPECT_EQ(to_vector(ops::where(x > 0, wild, -inf)), (std::vector<double>{-inf, -inf, 2}));
  GradientTape tape;
  tape.watch(x);
  const Tensor root = ops::sum(ops::where(x > 0, ops::sqrt(ops::where(x > 0, x, 1)), 0));
  EXPECT_EQ(to_vector(tape.gradient(root, {x})[0]), (std::vector<double>{0, 0, 0.25}));
}

TEST_F(Ops, EdgesOfPowersRootsAndRounding) {
  constexpr double inf = std::numeric_limits<double>::infinity();
  const Tensor x = constant({-2, 0, 1e-7, inf});
  const std::vector<double> roots = to_vector(ops::power(x, 1.5));
  EXPECT_TRUE(std::isnan(roots[0]));
  EXPECT_EQ(roots[1], 0);
  EXPECT_EQ(roots[3], inf);
  EXPECT_NEAR(to_vector(ops::log1p(x))[2], 1e-7, 1e-13);
  EXPECT_EQ(to_vector(ops::log1p(x))[3], inf);
  EXPECT_NEAR(to_vector(ops::expm1(x))[2], 1e-7, 1e-13);
  EXPECT_EQ(to_vector(ops::floor(x))[3], inf);
  EXPECT_EQ(to_vector(ops::round(constant({0.5, 1.5, -2.5, 3e9}))),
            (std::vector<double>{0, 2, -2, 3e9}));
  EXPECT_EQ(to_vector(ops::isfinite(x)), (std::vector<double>{1, 1, 1, 0}));
  EXPECT_EQ(to_vector(ops::isinf(x)), (std::vector<double>{0, 0, 0, 1}));
  EXPECT_EQ(to_vector(ops::logsumexp(constant({-inf, -inf}))), (std::vector<double>{-inf}));
}

TEST_F(Ops, VariablesAreOperands) {
  const Variable w(constant({1, 2}), {.name = "w"});
  GradientTape tape;
  const Tensor y = ops::sum(2 * w * w - w / 2 + 1);
  EXPECT_EQ(item(y), 10.5);
  EXPECT_EQ(to_vector(tape.gradient(y, {w})[0]), (std::vector<double>{3.5, 7.5}));
  Tensor total = w + 1;
  total += w;
  total *= 2;
  EXPECT_EQ(to_vector(total), (std::vector<double>{6, 10}));
}

TEST_F(Ops, NamesWhatIsWrong) {
  auto words = [](auto call) {
    try {
      call();
    } catch (const Error& error) {
      return std::string(error.what());
    }
    return std::string("nothing thrown");
  };
  const Tensor x = constant({{1, 2}, {3, 4}});
  EXPECT_EQ(words([&] { ops::argmax(x, 2); }),
            "[argmax] expected an axis from -2 to 1, received 2");
  EXPECT_EQ(words([&] { ops::squeeze(x, 0); }),
            "[squeeze] expected axes of size 1, received 0 of float32 (2, 2)");
  EXPECT_EQ(words([&] {
              x + constant({1, 2, 3});
            }),
            "[add] expected shapes that broadcast, received float32 (2, 2), float32 (3,)");
  EXPECT_EQ(words([&] { x + Tensor(); }),
            "[add] expected a tensor for every operand, received an empty one");
  EXPECT_EQ(words([&] { item(x); }), "[item] expected one element, received float32 (2, 2)");
}

}  // namespace
}  // namespace pl::ops_test
