// Picking and ordering elements: indices from the end and outside, integers that no double holds,
// and what it takes.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>

#include "op/embedding.h"
#include "op/gather.h"
#include "op/ops.h"
#include "op/runtime.h"
#include "tests/counter_hash.h"
#include "tests/messages.h"
#include "tests/patterns.h"
#include "trace/tape.h"
#include "train/function.h"

namespace pl::ops_take_test {
namespace {

using test::hashed_integers;
using test::hashed_reals;
using test::message_of;
using test::same_bits;

template <class T>
Tensor value(Dtype dtype, const std::vector<T>& numbers, Shape shape = {}) {
  if (shape.rank() == 0) shape = Shape{static_cast<Dim>(numbers.size())};
  Tensor x({dtype, std::move(shape)});
  std::copy(numbers.begin(), numbers.end(), x.data_as<T>());
  return x;
}
template <class T>
std::vector<T> numbers_of(const Tensor& x) {
  return {x.data_as<T>(), x.data_as<T>() + x.meta().elements()};
}
Tensor whole(const std::vector<int64_t>& numbers) { return value(Dtype::int64, numbers); }
Tensor places(const std::vector<int32_t>& numbers) { return value(Dtype::int32, numbers); }
std::vector<int64_t> wholes(const Tensor& x) { return numbers_of<int64_t>(x); }

constexpr int64_t kBig = int64_t{1} << 53;  // from here on doubles skip integers

class Picks : public testing::Test {
 protected:
  Runtime runtime_{{.memory = "64MiB", .threads = 2}};
  const Tensor x5_ = constant({10, 20, 30, 40, 50});
};
using Take = Picks;
using TakeAlongAxis = Picks;
using Sort = Picks;

TEST_F(Take, CountsFromTheEnd) {
  EXPECT_EQ(to_vector(ops::take(x5_, places({-1, 0}), 0)), (std::vector<double>{50, 10}));
  EXPECT_EQ(to_vector(ops::take_along_axis(x5_, whole({-5, 4}))), (std::vector<double>{10, 50}));
  EXPECT_EQ(item(ops::take(x5_, -2, 0)), 40);
  const Tensor x = constant({{1, 2, 3}, {4, 5, 6}});
  const Tensor two = ops::take(x, places({-1, 1}), 1);
  EXPECT_EQ(two.shape(), (Shape{2, 2}));
  EXPECT_EQ(to_vector(two), (std::vector<double>{3, 2, 6, 5}));
  EXPECT_EQ(to_vector(ops::take(x, value<uint8_t>(Dtype::boolean, {1, 0}), 0)),
            (std::vector<double>{4, 5, 6, 1, 2, 3}));
}

TEST_F(Take, RefusesIndicesOutsideOfValues) {
  EXPECT_EQ(message_of([&] {
              ops::take(x5_, places({0, 5}), 0);
            }),
            "[take] expected indices from -5 to 4 along axis 0 of float32 (5,), received 5");
  EXPECT_EQ(message_of([&] { ops::take(x5_, -6, 0); }),
            "[take] expected indices from -5 to 4 along axis 0 of float32 (5,), received -6");
  EXPECT_EQ(message_of([&] {
              ops::take_along_axis(x5_, places({-1, 0, 7}));
            }),
            "[take_along_axis] expected indices from -5 to 4 along axis 0 of float32 (5,), "
            "received 7");
  EXPECT_EQ(message_of([&] { ops::take(x5_, whole({(int64_t{1} << 32) + 1}), 0); }),
            "[take] expected indices from -5 to 4 along axis 0 of float32 (5,), received "
            "4294967297");
  EXPECT_EQ(message_of([&] { ops::take(ops::zeros({0}), places({0}), 0); }),
            "[take] expected indices of no element along axis 0 of float32 (0,), received 0");
}

TEST_F(Take, FromNothingWithNoIndices) {
  EXPECT_EQ(ops::take(ops::zeros({0}), places({}), 0).shape(), Shape{0});
  EXPECT_EQ(ops::take(ops::zeros({0, 3}), ops::zeros({2, 0}, Dtype::int32), 0).shape(),
            (Shape{2, 0, 3}));
  EXPECT_EQ(ops::take_along_axis(ops::zeros({2, 0}), ops::zeros({2, 0}, Dtype::int32)).shape(),
            (Shape{2, 0}));
}

// NaN, the least integer, 255, true.
TEST_F(Take, MarksIndicesOutsideInAGraph) {
  auto take = pl::function([](const Tensor& x, const Tensor& i) {
    return ops::concatenate({ops::take(x, i, 0), ops::take_along_axis(x, i)}, 0);
  });
  auto check = [&]<class T>(Dtype dtype, const std::vector<T>& x, T mark) {
    const std::vector<T> one{x[1], x[1], mark, mark, x[0]};
    std::vector<T> twice = one;
    twice.insert(twice.end(), one.begin(), one.end());
    const Tensor in = value(dtype, x);
    for (const Tensor& i : {places({-1, 1, 2, -3, 0}), whole({-1, 1, int64_t{1} << 32, -3, 0})})
      EXPECT_EQ(numbers_of<T>(take(in, i)), twice) << name_of(dtype);
  };
  check(Dtype::int32, std::vector<int32_t>{7, 8}, std::numeric_limits<int32_t>::min());
  check(Dtype::int64, std::vector<int64_t>{kBig + 1, 8}, std::numeric_limits<int64_t>::min());
  check(Dtype::uint8, std::vector<uint8_t>{7, 8}, uint8_t{255});
  check(Dtype::boolean, std::vector<uint8_t>{0, 0}, uint8_t{1});
  const std::vector<double> real = to_vector(take(constant({7, 8}), places({-1, 2})));
  EXPECT_EQ(real[0], 8);
  EXPECT_TRUE(std::isnan(real[1]));
  EXPECT_TRUE(std::isnan(real[3]));
}

TEST_F(Take, DropsTheGradientOfIndicesOutside) {
  auto slopes = pl::function([](const Tensor& x, const Tensor& i) {
    GradientTape tape;
    tape.watch(x);
    const Tensor y = ops::where(ops::isfinite(ops::take(x, i, 0)), 0.0, 0.0) +
                     ops::take(x, i, 0) * constant({1, 2, 4, 8});
    const Tensor z = ops::take_along_axis(x, i) * constant({10, 20, 40, 80});
    return ops::stack({tape.gradient(y + z, {x})[0]});
  });
  EXPECT_EQ(to_vector(slopes(constant({1, 2, 3}), places({-1, 3, 0, 2}))),
            (std::vector<double>{44, 0, 99}));
}

TEST_F(Take, AlongEachAxisIsWhatNumPyGives) {
  const Tensor x = hashed_reals(1, {Dtype::float64, {3, 4, 5}}, 0);
  const Tensor i = hashed_integers(2, {2, 3}, 3);
  const double* from = x.data_as<double>();
  for (int axis = 0; axis < 3; ++axis) {
    const Tensor y = ops::take(x, i, axis);
    const std::vector<double> all = to_vector(y);
    size_t next = 0;
    const Dim a = axis == 0 ? 1 : axis == 1 ? 3 : 12, n = x.shape()[axis], b = 60 / a / n;
    for (Dim o = 0; o < a; ++o)
      for (Dim j = 0; j < 6; ++j)
        for (Dim k = 0; k < b; ++k)
          EXPECT_EQ(all[next++], from[(o * n + i.data_as<int32_t>()[j]) * b + k]) << axis;
    EXPECT_EQ(next, all.size());
  }
}

TEST_F(Take, KeepsLargeIntegers) {
  const Tensor x = whole({kBig + 1, -kBig - 3, std::numeric_limits<int64_t>::max()});
  EXPECT_EQ(wholes(ops::take(x, places({2, 0}), 0)),
            (std::vector<int64_t>{std::numeric_limits<int64_t>::max(), kBig + 1}));
  EXPECT_EQ(wholes(ops::take_along_axis(x, places({1, 0}))),
            (std::vector<int64_t>{-kBig - 3, kBig + 1}));
}

TEST_F(TakeAlongAxis, BroadcastsTheOtherAxes) {
  const Tensor x = constant({{1, 2, 3}, {4, 5, 6}});
  EXPECT_EQ(to_vector(ops::take_along_axis(x, value<int32_t>(Dtype::int32, {2, 0}, {1, 2}), 1)),
            (std::vector<double>{3, 1, 6, 4}));
  EXPECT_EQ(to_vector(ops::take_along_axis(constant({{7, 8}}),
                                           value<int32_t>(Dtype::int32, {1, 0, -1}, {3, 1}), 1)),
            (std::vector<double>{8, 7, 8}));
  EXPECT_EQ(to_vector(ops::take_along_axis(x, value<int32_t>(Dtype::int32, {1, 0, -1}, {1, 3}), 0)),
            (std::vector<double>{4, 2, 6}));
  EXPECT_EQ(message_of([&] {
              ops::take_along_axis(x, value<int32_t>(Dtype::int32, {0, 0, 0}, {3, 1}));
            }),
            "[take_along_axis] expected indices of rank 2 that broadcast with x but for axis 1, "
            "received float32 (2, 3) and int32 (3, 1)");
}

// Models look embeddings up: a padding of -1 is no row, and certainly not the last one.
TEST_F(Take, LeavesEmbeddingsAsTheyAre) {
  const Tensor row = embedding(constant({{1, 2}, {3, 4}}), places({-1}));
  for (double number : to_vector(row)) EXPECT_TRUE(std::isnan(number));
  EXPECT_EQ(to_vector(ops::one_hot(places({-1}), 2)), (std::vector<double>{0, 0}));
}

TEST_F(Sort, IsExactForIntegers) {
  const Tensor x = whole({kBig + 1, kBig, 5, std::numeric_limits<int64_t>::min(),
                          std::numeric_limits<int64_t>::max()});
  EXPECT_EQ(wholes(ops::sort(x)),
            (std::vector<int64_t>{std::numeric_limits<int64_t>::min(), 5, kBig, kBig + 1,
                                  std::numeric_limits<int64_t>::max()}));
  EXPECT_EQ(to_vector(ops::argsort(x)), (std::vector<double>{3, 2, 1, 0, 4}));
  const ops::TopK most = ops::top_k(x, 3);
  EXPECT_EQ(wholes(most.values),
            (std::vector<int64_t>{std::numeric_limits<int64_t>::max(), kBig + 1, kBig}));
  EXPECT_EQ(to_vector(most.indices), (std::vector<double>{4, 0, 1}));
  const Tensor least = value<int32_t>(Dtype::int32, {5, std::numeric_limits<int32_t>::min()});
  EXPECT_EQ(numbers_of<int32_t>(ops::sort(least)),
            (std::vector<int32_t>{std::numeric_limits<int32_t>::min(), 5}));
  EXPECT_EQ(numbers_of<uint8_t>(ops::sort(value<uint8_t>(Dtype::uint8, {200, 3, 100}))),
            (std::vector<uint8_t>{3, 100, 200}));
}

// Rows of every length, with equal numbers, both zeros, infinities and NaN among them.
TEST_F(Sort, IsTheStableOrderOfEveryLength) {
  for (Dim n : {1, 2, 32, 33, 257, 5000})
    for (Dtype dtype : {Dtype::float32, Dtype::float64}) {
      Tensor x = ops::cast(hashed_integers(static_cast<uint32_t>(n), {2, n}, 64), dtype) - 30;
      const Tensor odd = ops::cast(hashed_integers(9, {2, n}, 16), dtype);
      x = ops::where(odd == 0, NAN, ops::where(odd == 1, -INFINITY, ops::where(odd == 2, -0.0, x)));
      const std::vector<double> all = to_vector(x);
      const std::vector<double> up = to_vector(ops::argsort(x));
      for (Dim k : {Dim{1}, n / 9 + 1, n}) {
        const std::vector<double> down = to_vector(ops::top_k(x, k).indices);
        for (Dim r = 0; r < 2; ++r) {
          const double* row = all.data() + r * n;
          auto less = [&](double a, double b) {
            return std::isnan(a) || std::isnan(b) ? !std::isnan(a) && std::isnan(b) : a < b;
          };
          std::vector<double> order(static_cast<size_t>(n));
          std::iota(order.begin(), order.end(), 0);
          auto at = [&](double i) { return row[static_cast<size_t>(i)]; };
          std::stable_sort(order.begin(), order.end(),
                           [&](double i, double j) { return less(at(i), at(j)); });
          EXPECT_EQ(order, std::vector<double>(up.begin() + r * n, up.begin() + (r + 1) * n));
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(),
                           [&](double i, double j) { return less(at(j), at(i)); });
          order.resize(static_cast<size_t>(k));
          EXPECT_EQ(order, std::vector<double>(down.begin() + r * k, down.begin() + (r + 1) * k));
        }
      }
    }
}

TEST_F(Sort, HandsTheGradientToWhereElementsWere) {
  const Tensor x = constant({{3, 1, 2}, {4, 6, 5}});
  GradientTape tape({.persistent = true});
  tape.watch(x);
  const Tensor weights = constant({1, 2, 4});
  EXPECT_EQ(to_vector(tape.gradient(ops::sort(x) * weights, {x})[0]),
            (std::vector<double>{4, 1, 2, 1, 4, 2}));
  const Tensor best = ops::top_k(x, 1).values;
  EXPECT_EQ(to_vector(tape.gradient(best * 3, {x})[0]), (std::vector<double>{3, 0, 0, 0, 3, 0}));
  EXPECT_EQ(to_vector(tape.gradient(ops::sort(x, 0) * 2, {x})[0]),
            (std::vector<double>{2, 2, 2, 2, 2, 2}));
}

TEST_F(Sort, BitsDoNotDependOnThreads) {
  std::vector<Tensors> runs;
  for (int threads : {1, 2, 3}) {
    const Runtime runtime({.threads = threads});
    const Tensor x = hashed_reals(3, {Dtype::float32, {37, 1100}}, 0);
    const Tensor i = hashed_integers(4, {37, 900}, 300);
    GradientTape tape;
    tape.watch(x);
    const Tensor y = ops::take_along_axis(x, i);
    runs.push_back({ops::sort(x), ops::top_k(x, 20).values, y,
                    tape.gradient(y, {x}, {.output_gradient = hashed_reals(5, y.meta(), 0)})[0],
                    ops::take(x, hashed_integers(6, {50}, 1100), 1)});
  }
  for (size_t t = 0; t < runs[0].size(); ++t) {
    EXPECT_TRUE(same_bits(runs[0][t], runs[1][t])) << t;
    EXPECT_TRUE(same_bits(runs[0][t], runs[2][t])) << t;
  }
}

// No more than twice the operands and results, on top of them.
TEST_F(Sort, TakesLittleMemory) {
  auto transient = [](const Tensors& in, const std::function<Tensors()>& call) {
    Bytes own = 0;
    Runtime& runtime = *Runtime::current();
    const Bytes before = runtime.memory().used;
    const Tensors out = call();
    for (const Tensors& tensors : {in, out})
      for (const Tensor& tensor : tensors) own += tensor.meta().bytes();
    Bytes made = 0;
    for (const Tensor& tensor : out) made += tensor.meta().bytes();
    return static_cast<double>(runtime.memory().peak - before - made) / static_cast<double>(own);
  };
  for (const Shape& shape : {Shape{100000}, Shape{1024, 512}, Shape{16, 65536}}) {
    const Runtime runtime({.memory = "64MiB", .threads = 2});
    const Tensor x = hashed_reals(1, {Dtype::float32, shape}, 0);
    EXPECT_LE(transient({x}, [&] { return Tensors{ops::sort(x)}; }), 2) << shape.text();
  }
  const Runtime runtime({.memory = "64MiB", .threads = 2});
  const Tensor x = hashed_reals(1, {Dtype::float32, {16, 65536}}, 0);
  EXPECT_LE(transient({x},
                      [&] {
                        const ops::TopK most = ops::top_k(x, 100);
                        return Tensors{most.values, most.indices};
                      }),
            0.1);
  const Tensor i = hashed_integers(2, {16, 65536}, 65536);
  EXPECT_LE(transient({x, i}, [&] { return Tensors{ops::take_along_axis(x, i)}; }), 0.1);
}

}  // namespace
}  // namespace pl::ops_take_test
