// Words of ops:: about shapes and numbers: what NumPy answers, in exact integers, and what is
// refused in which words.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "op/ops.h"
#include "op/runtime.h"
#include "tests/messages.h"
#include "trace/tape.h"
#include "train/function.h"

namespace pl::ops_shape_test {
namespace {

using test::message_of;
using Doubles = std::vector<double>;
using Integers = std::vector<int64_t>;

constexpr int64_t kLeast = std::numeric_limits<int64_t>::min();
constexpr int64_t kMost = std::numeric_limits<int64_t>::max();
constexpr int64_t kOdd = (int64_t{1} << 53) + 1;  // no float64

class OpsShape : public ::testing::Test {
 protected:
  OpsShape() : runtime_({.memory = "64MiB", .threads = 1}) {}
  Runtime runtime_;
};

TEST_F(OpsShape, ReshapeRefusesAnotherNumberOfElements) {
  const Tensor x = ops::zeros({4, 3});
  for (const Shape& shape : {Shape{4, 2}, {4, 6}, {4, 1}, {2, 3}, {4, 0}, {4}, {0, 3}, {}}) {
    EXPECT_EQ(
        message_of([&] { ops::reshape(x, shape.dims()); }),
        "[reshape] expected a shape of 12 elements, received float32 (4, 3) to " + shape.text());
    auto traced = pl::function([&](const Tensor& in) { return ops::reshape(in, shape.dims()); });
    EXPECT_NE(message_of([&] { traced(x); }).find("expected a shape of 12 elements"),
              std::string::npos)
        << shape.text();
  }
}

TEST_F(OpsShape, ReshapeOfABatchKeepsItsRows) {
  const Tensor x = ops::reshape(ops::arange(12, Dtype::float32), {4, 3});
  for (const Shape& shape : {Shape{4, 1, 3}, {2, 6}, {12}, {1, 12}, {6, 2}, {3, 4}}) {
    auto traced =
        pl::function([&](const Tensor& in) { return ops::reshape(in, shape.dims()) * 2; });
    EXPECT_EQ(traced(x).shape(), shape);
    EXPECT_EQ(to_vector(traced(x)), to_vector(x * 2));
  }
}

TEST_F(OpsShape, ReshapeOfNothing) {
  const Tensor none = ops::zeros({4, 0});
  for (const Shape& shape : {Shape{2, 2, 0}, {0}, {0, 7}, {4, 3, 0}, {8, 0}, {1, 0, 5}}) {
    EXPECT_EQ(ops::reshape(none, shape.dims()).shape(), shape);
    auto traced = pl::function([&](const Tensor& in) { return ops::reshape(in, shape.dims()); });
    EXPECT_EQ(traced(none).shape(), shape);
  }
  EXPECT_EQ(ops::reshape(none, {3, -1}).shape(), (Shape{3, 0}));
}

TEST_F(OpsShape, IntegersAreExactBeyondFloat64) {
  const Tensor x = constant({kOdd, -kOdd, kMost, kLeast}, Dtype::int64);
  EXPECT_EQ(to_vector<int64_t>(x), (Integers{kOdd, -kOdd, kMost, kLeast}));
  EXPECT_EQ(to_vector<int64_t>(constant(Integers{kOdd, kMost}, {2, 1})), (Integers{kOdd, kMost}));
  EXPECT_EQ(item<int64_t>(constant(kOdd, Dtype::int64)), kOdd);
  EXPECT_EQ(to_vector<int64_t>(ops::full({2}, kOdd, Dtype::int64)), (Integers{kOdd, kOdd}));
  EXPECT_EQ(to_vector<int64_t>(ops::full_like(x, kMost)), Integers(4, kMost));
  EXPECT_EQ(to_vector<int64_t>(ops::pad(constant({1}, Dtype::int64), {{1, 1}}, kOdd)),
            (Integers{kOdd, 1, kOdd}));
  EXPECT_EQ(to_vector<int64_t>(ops::clip(x, -kOdd, kOdd)), (Integers{kOdd, -kOdd, kOdd, -kOdd}));
  EXPECT_EQ(to_vector<int64_t>(ops::maximum(x, kOdd)), (Integers{kOdd, kOdd, kMost, kOdd}));
  EXPECT_EQ(to_vector<int64_t>(ops::zeros_like(x) + kOdd), Integers(4, kOdd));
  EXPECT_EQ(to_vector<int64_t>(kOdd - ops::zeros_like(x)), Integers(4, kOdd));
  EXPECT_EQ(to_vector<int64_t>(ops::ones_like(x) * kOdd), Integers(4, kOdd));
  EXPECT_EQ(to_vector(x == kOdd), (Doubles{1, 0, 0, 0}));
  EXPECT_EQ(to_vector(ops::greater(x, kOdd - 1)), (Doubles{1, 0, 1, 0}));
  EXPECT_EQ(to_vector<int64_t>(ops::where(x > 0, x, kOdd)), (Integers{kOdd, kOdd, kMost, kOdd}));
  EXPECT_EQ(item<int64_t>(ops::add(kOdd, 1)), kOdd + 1);
  auto traced = pl::function([](const Tensor& in) { return ops::minimum(in, kOdd) - kOdd; });
  EXPECT_EQ(to_vector<int64_t>(traced(x)), (Integers{0, -2 * kOdd, 0, kMost - kOdd + 1}));
}

TEST_F(OpsShape, IntegersThatAreTooLargeWrapAndRealsSaturate) {
  EXPECT_EQ(to_vector<int64_t>(constant({kMost, 1}, Dtype::int64) + 1), (Integers{kLeast, 2}));
  EXPECT_EQ(to_vector<int64_t>(constant(0, Dtype::int64) - kLeast), (Integers{kLeast}));
  EXPECT_EQ(item(constant((int64_t{1} << 40) + 7, Dtype::int32)), 7);
  EXPECT_EQ(item(ops::full({}, 257, Dtype::uint8)), 1);
  EXPECT_EQ(item(constant(2147483647, Dtype::int32) + 1), -2147483648.0);
  EXPECT_EQ(to_vector(constant({1e300, -1e300, std::nan(""), 2.9}, Dtype::int32)),
            (Doubles{2147483647, -2147483648.0, 0, 2}));
  EXPECT_EQ(to_vector(ops::full({2}, 300.5, Dtype::uint8)), (Doubles{255, 255}));
}

TEST_F(OpsShape, Int32MeetsALargerNumberInInt64) {
  constexpr int64_t large = int64_t{1} << 40;
  const Tensor x = constant({-1, 5}, Dtype::int32);
  EXPECT_EQ(to_vector(ops::clip(x, 0, large)), (Doubles{0, 5}));
  EXPECT_EQ(to_vector(x < large), (Doubles{1, 1}));
  EXPECT_EQ(to_vector(ops::greater(large, x)), (Doubles{1, 1}));
  EXPECT_EQ(to_vector<int64_t>(x + large), (Integers{large - 1, large + 5}));
  EXPECT_EQ(ops::add(large, 1).dtype(), Dtype::int64);
  EXPECT_EQ(ops::add(2, 1).dtype(), Dtype::int32);
}

TEST_F(OpsShape, TileRepeatsAndLeavesNothing) {
  const Tensor x = constant({10, 20, 30}, Dtype::int32);
  EXPECT_EQ(to_vector(ops::tile(x, {2})), (Doubles{10, 20, 30, 10, 20, 30}));
  EXPECT_EQ(to_vector(ops::tile(constant({{1, 2}, {3, 4}}), {2, 1, 2})),
            (Doubles{1, 2, 1, 2, 3, 4, 3, 4, 1, 2, 1, 2, 3, 4, 3, 4}));
  EXPECT_EQ(ops::tile(x, {0}).shape(), Shape{0});
  EXPECT_EQ(ops::tile(x, {0}).dtype(), Dtype::int32);
  EXPECT_EQ(ops::tile(x, {100}).shape(), Shape{300});
  EXPECT_EQ(ops::tile(constant(7), {}).shape(), Shape{});
  EXPECT_EQ(ops::tile(constant({{1, 2}}), {3}).shape(), (Shape{1, 6}));
  EXPECT_EQ(message_of([&] { ops::tile(x, {-1}); }),
            "[tile] expected repeats that are not negative and have a product, received {-1} for "
            "int32 (3,)");
  EXPECT_NE(message_of([&] {
              ops::tile(x, {int64_t{1} << 60});
            }).find("[tile] expected a result below 2^62 bytes"),
            std::string::npos);
  GradientTape tape;
  const Tensor real = constant({1, 2});
  tape.watch(real);
  const Tensor tiled = ops::tile(real, {2, 2});
  EXPECT_EQ(to_vector(tape.gradient(tiled, {real})[0]), (Doubles{4, 4}));
}

TEST_F(OpsShape, PadRefusesNegativeWidths) {
  const Tensor x = constant({10, 20, 30});
  EXPECT_EQ(message_of([&] {
              ops::pad(x, {{-2, 0}});
            }),
            "[pad] expected widths that are not negative and have a sum, received {-2, 0} for "
            "float32 (3,)");
  EXPECT_EQ(to_vector(ops::pad(constant({1, 0}, Dtype::boolean), {{1, 1}}, 1)),
            (Doubles{1, 1, 0, 1}));
}

TEST_F(OpsShape, ValuesOfEveryDtype) {
  for (Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::bfloat16, Dtype::int32, Dtype::int64,
                      Dtype::uint8}) {
    EXPECT_EQ(to_vector(ops::arange(5, dtype)), (Doubles{0, 1, 2, 3, 4}));
    EXPECT_EQ(ops::arange(5, dtype).dtype(), dtype);
    EXPECT_EQ(to_vector(ops::eye(2, dtype)), (Doubles{1, 0, 0, 1}));
    EXPECT_EQ(ops::eye(2, dtype).dtype(), dtype);
    EXPECT_EQ(ops::linspace(0, 1, 3, dtype).dtype(), dtype);
  }
  EXPECT_EQ(to_vector(ops::eye(2, Dtype::boolean)), (Doubles{1, 0, 0, 1}));
  EXPECT_EQ(to_vector(ops::arange(3, Dtype::boolean)), (Doubles{0, 1, 1}));
  EXPECT_EQ(to_vector(ops::one_hot(constant({1}, Dtype::int32), 2, Dtype::int32)), (Doubles{0, 1}));
  EXPECT_EQ(to_vector(ops::slice(ops::arange(300, Dtype::uint8), {254}, {4})),
            (Doubles{254, 255, 0, 1}));
  // numpy.linspace(..., dtype=int)
  EXPECT_EQ(to_vector(ops::linspace(-2, 3, 7, Dtype::int32)), (Doubles{-2, -2, -1, 0, 1, 2, 3}));
  EXPECT_EQ(to_vector(ops::linspace(0, 7, 50, Dtype::int64)),
            (Doubles{0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 2, 2, 2, 2, 2, 2, 2, 3, 3, 3, 3,
                     3, 3, 3, 4, 4, 4, 4, 4, 4, 4, 5, 5, 5, 5, 5, 5, 5, 6, 6, 6, 6, 6, 6, 6, 7}));
  EXPECT_EQ(to_vector(ops::linspace(5, 9, 1)), (Doubles{5}));
  EXPECT_EQ(ops::linspace(5, 9, 0).shape(), Shape{0});
}

TEST_F(OpsShape, LinspaceIsFiniteBetweenFiniteEnds) {
  const float end = 3e38f;
  EXPECT_EQ(to_vector(ops::linspace(-3e38, 3e38, 3)), (Doubles{-end, 0, end}));
  EXPECT_EQ(to_vector(ops::linspace(-1.7e308, 1.7e308, 3, Dtype::float64)),
            (Doubles{-1.7e308, 0, 1.7e308}));
  const Doubles thirds = to_vector(ops::linspace(0.1, 0.9, 7, Dtype::float64));
  EXPECT_EQ(thirds.back(), 0.9);
}

// Nothing stands beside the result.
TEST_F(OpsShape, CountedValuesTakeTheirOwnMemory) {
  for (Dtype dtype : {Dtype::float32, Dtype::float64, Dtype::int32, Dtype::int64}) {
    const Runtime runtime({.memory = "64MiB", .threads = 2});
    EXPECT_EQ(ops::linspace(0, 1, 1'500'000, dtype).shape(), Shape{1'500'000});
    EXPECT_LE(runtime.memory().peak, 1'600'000 * size_of(dtype));
    EXPECT_EQ(item(ops::max(ops::arange(1'500'000, dtype))), 1'499'999);
    EXPECT_LE(runtime.memory().peak, 1'700'000 * size_of(dtype));
  }
}

TEST_F(OpsShape, NothingIsFilledBeforeARefusal) {
  const Bytes before = runtime_.memory().peak;
  for (const auto& call : std::vector<std::function<void()>>{
           [] { ops::arange(int64_t{1} << 40); }, [] { ops::linspace(0, 1, int64_t{1} << 40); },
           [] { ops::eye(1 << 20); },
           [] {
             ops::tile(constant({1, 2}), {1 << 30});
           },
           [] {
             ops::pad(constant({1}), {{1 << 25, 1 << 25}});
           },
           [] {
             ops::repeat(constant({1, 2}), 1 << 30, 0);
           },
           [] { ops::zeros({1 << 30}); }, [] { ops::one_hot(constant({1}), 1 << 30); }})
    EXPECT_TRUE(message_of(call).starts_with("[runtime] expected ")) << message_of(call);
  EXPECT_LE(runtime_.memory().peak - before, 64 * kKiB);
}

TEST_F(OpsShape, NothingIsCastBeforeARefusal) {
  const Tensor column = ops::zeros({1 << 20, 1}, Dtype::uint8), row = ops::ones({1 << 20});
  const Bytes before = runtime_.memory().peak;
  for (const auto& call : std::vector<std::function<void()>>{
           [&] { ops::add(column, row); }, [&] { column / row; }, [&] { column&& row; },
           [&] { ops::where(column, row, 1); }, [&] { ops::where(row, 2, column); },
           [&] { ops::outer(column, row); }, [&] { ops::less(column, row); },
           [&] { ops::matmul(column, ops::expand_dims(row, 0)); },
           [&] {
             ops::einsum("ij,k->ik", {column, row});
           },
           [&] { ops::one_hot(column, 1 << 20); },
           [&] {
             ops::stack({column, row});
           }})
    EXPECT_NE(message_of(call), "nothing thrown");
  EXPECT_LE(runtime_.memory().peak - before, 64 * kKiB);
}

TEST_F(OpsShape, AxesCountFromTheEnd) {
  const Tensor x = ops::zeros({2, 3, 5});
  EXPECT_EQ(ops::transpose(x, {-1, 0, -2}).shape(), (Shape{5, 2, 3}));
  EXPECT_EQ(ops::transpose(x, {0, -1, 1}).shape(), (Shape{2, 5, 3}));
  EXPECT_EQ(ops::moveaxis(x, -1, 0).shape(), (Shape{5, 2, 3}));
  EXPECT_EQ(ops::stack({x, x}, -1).shape(), (Shape{2, 3, 5, 2}));
  EXPECT_EQ(message_of([&] {
              ops::transpose(x, {0, 1, -4});
            }),
            "[transpose] expected an axis from -3 to 2, received -4");
}

TEST_F(OpsShape, PartsOfSeveralDtypesMeet) {
  const Tensor whole = constant({1, 2}, Dtype::int32), real = constant({0.5});
  const Tensor flags = constant({1, 0}, Dtype::boolean);
  EXPECT_EQ(ops::concatenate({whole, real}).dtype(), Dtype::float32);
  EXPECT_EQ(to_vector(ops::concatenate({whole, real})), (Doubles{1, 2, 0.5}));
  EXPECT_EQ(ops::concatenate({whole, flags}).dtype(), Dtype::int32);
  EXPECT_EQ(ops::concatenate({flags, flags}).dtype(), Dtype::boolean);
  EXPECT_EQ(ops::stack({whole, ops::cast(whole, Dtype::int64)}).dtype(), Dtype::int64);
  Tensors many;
  for (int i = 0; i < 130; ++i) many.push_back(constant({i}));
  EXPECT_EQ(to_vector(ops::concatenate(many)), to_vector(ops::arange(130)));
  EXPECT_EQ(ops::unstack(ops::stack(many)).size(), 130u);
}

TEST_F(OpsShape, EinsumTakesDiagonals) {
  const Tensor x = ops::reshape(ops::arange(9, Dtype::float32), {3, 3}), y = constant({{1, 2}});
  const Tensor square = constant({{1, 2}, {3, 4}});
  EXPECT_EQ(to_vector(ops::einsum("ii->i", {x})), (Doubles{0, 4, 8}));
  EXPECT_EQ(item(ops::einsum("ii->", {x})), 12);
  EXPECT_EQ(item(ops::einsum("ii", {x})), 12);
  EXPECT_EQ(to_vector(ops::einsum("ii,jk", {x, y})), (Doubles{12, 24}));
  EXPECT_EQ(to_vector(ops::einsum("ii,i->i", {x, constant({1, 2, 3})})), (Doubles{0, 8, 24}));
  const Tensor cube = ops::reshape(ops::arange(8, Dtype::float32), {2, 2, 2});
  EXPECT_EQ(to_vector(ops::einsum("iii->i", {cube})), (Doubles{0, 7}));
  EXPECT_EQ(to_vector(ops::einsum("bii->bi", {cube})), (Doubles{0, 3, 4, 7}));
  EXPECT_EQ(to_vector(ops::einsum("...ii->...i", {cube})), (Doubles{0, 3, 4, 7}));
  EXPECT_EQ(ops::einsum("ii->i", {ops::zeros({0, 0})}).shape(), Shape{0});
  auto traced = pl::function([](const Tensor& in) { return ops::einsum("bii->b", {in}); });
  EXPECT_EQ(to_vector(traced(cube)), (Doubles{3, 11}));
  GradientTape tape;
  tape.watch(x);
  const Tensor trace = ops::einsum("ii->", {x});
  EXPECT_EQ(to_vector(tape.gradient(trace, {x})[0]), (Doubles{1, 0, 0, 0, 1, 0, 0, 0, 1}));
  EXPECT_EQ(message_of([&] { ops::einsum("ii", {y}); }),
            "[einsum] expected equal sizes of 'i' in float32 (1, 2), received 'ii'");
  EXPECT_EQ(message_of([&] {
              ops::einsum("ij,jk->ik", {x, square});
            }),
            "[einsum] expected one size of 'j', not 3 and 2, received 'ij,jk->ik'");
  EXPECT_EQ(message_of([&] { ops::einsum("ij->ii", {x}); }),
            "[einsum] expected letters, each once in the result, received 'ij->ii'");
}

TEST_F(OpsShape, MessagesNameTheWordThatWasCalled) {
  const Tensor none, x = constant({1, 2}), y = constant({1, 2, 3}), one = constant(1);
  const std::string empty = "expected a tensor for every operand, received an empty one";
  EXPECT_EQ(message_of([&] { ops::zeros_like(none); }), "[zeros_like] " + empty);
  EXPECT_EQ(message_of([&] { ops::sum(none); }), "[sum] " + empty);
  EXPECT_EQ(message_of([&] { ops::log2(none); }), "[log2] " + empty);
  EXPECT_EQ(message_of([&] { none - 1; }), "[subtract] " + empty);
  EXPECT_EQ(message_of([&] { ops::stop_gradient(none); }), "[stop_gradient] " + empty);
  EXPECT_EQ(message_of([&] { ops::sum(none, 0); }), "[sum] " + empty);
  EXPECT_EQ(message_of([&] { ops::argmax(none, 0); }), "[argmax] " + empty);
  EXPECT_EQ(message_of([&] { ops::cumsum(none, 0); }), "[cumsum] " + empty);
  EXPECT_EQ(message_of([&] { ops::dot(none, x); }), "[dot] " + empty);
  EXPECT_EQ(message_of([&] { ops::softmax(none); }), "[softmax] " + empty);
  EXPECT_EQ(message_of([&] { ops::normalize(none); }), "[normalize] " + empty);
  EXPECT_EQ(message_of([&] { ops::flip(none, 0); }), "[flip] " + empty);
  EXPECT_EQ(message_of([&] { ops::sort(none); }), "[sort] " + empty);
  EXPECT_EQ(message_of([&] { ops::argsort(none); }), "[argsort] " + empty);
  EXPECT_EQ(message_of([&] { ops::top_k(none, 1); }), "[top_k] " + empty);
  EXPECT_EQ(message_of([&] { ops::take(none, 0, 0); }), "[take] " + empty);
  EXPECT_EQ(message_of([&] { ops::take_along_axis(none, x, 0); }), "[take_along_axis] " + empty);
  EXPECT_EQ(message_of([&] { ops::less(x, y); }),
            "[less] expected shapes that broadcast, received float32 (3,), float32 (2,)");
  EXPECT_TRUE(message_of([&] { x != y; }).starts_with("[not_equal] expected shapes"));
  EXPECT_TRUE(message_of([&] { ops::squared_difference(x, y); }).starts_with("[squared_diff"));
  EXPECT_TRUE(message_of([&] { ops::linspace(0, 1, -1); }).starts_with("[linspace] expected a"));
  EXPECT_EQ(message_of([&] { ops::sum(one, 0); }),
            "[sum] expected no axis, received 0; a tensor without dimensions has no axes");
  EXPECT_EQ(message_of([&] { ops::softmax(one); }),
            "[softmax] expected no axis, received -1; a tensor without dimensions has no axes");
  EXPECT_TRUE(message_of([&] { ops::mean(x, 1); }).starts_with("[mean] expected an axis from -1"));
  EXPECT_TRUE(message_of([&] { ops::zeros({-1}); }).starts_with("[zeros] expected a result"));
}

}  // namespace
}  // namespace pl::ops_shape_test
