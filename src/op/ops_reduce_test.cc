// What reductions of ops.h answer where inputs are odd: NaN, the least and the largest integers, no
// elements, wrong axes. Expected numbers are NumPy's.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "op/ops.h"
#include "op/runtime.h"
#include "trace/tape.h"

namespace pl::ops_reduce_test {
namespace {

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr int64_t kBeyond = int64_t{1} << 53;  // which float64 does not count on from

template <class T>
Tensor tensor(Dtype dtype, Shape shape, const std::vector<T>& values) {
  Tensor x({dtype, std::move(shape)});
  std::copy(values.begin(), values.end(), static_cast<T*>(x.place()));
  return x;
}
Tensor of_int32(const std::vector<int32_t>& values) {
  return tensor(Dtype::int32, Shape{static_cast<Dim>(values.size())}, values);
}
Tensor of_int64(const std::vector<int64_t>& values) {
  return tensor(Dtype::int64, Shape{static_cast<Dim>(values.size())}, values);
}
int32_t int32_of(const Tensor& x) { return *static_cast<const int32_t*>(x.data()); }
int64_t int64_of(const Tensor& x) { return *static_cast<const int64_t*>(x.data()); }

std::string message_of(const std::function<void()>& call) {
  try {
    call();
  } catch (const UserError& error) {
    return error.what();
  }
  return "";
}

class OpsReduce : public testing::Test {
 protected:
  Runtime runtime_{{.threads = 2}};
};

TEST_F(OpsReduce, FindsTheFirstNan) {
  const Tensor x = constant({{1, kNan, 3, kNan}, {4, 9, 9, 2}});
  EXPECT_EQ(to_vector(ops::argmax(x, 1)), (std::vector<double>{1, 1}));
  EXPECT_EQ(to_vector(ops::argmin(x, 1)), (std::vector<double>{1, 3}));
  EXPECT_EQ(to_vector(ops::argmax(x, 0)), (std::vector<double>{1, 0, 1, 0}));
  EXPECT_EQ(item(ops::argmax(x)), 1);
  EXPECT_EQ(item(ops::argmax(constant({-kInfinity, -kInfinity}))), 0);
  EXPECT_EQ(item(ops::argmin(constant({kInfinity, kNan}, Dtype::float64))), 1);
}

TEST_F(OpsReduce, KeepsNanInMinimaToo) {
  const Tensor x = constant({{1, kNan, 3}, {4, 9, 2}});
  EXPECT_TRUE(std::isnan(to_vector(ops::min(x, 1))[0]));
  EXPECT_EQ(to_vector(ops::min(x, 1))[1], 2);
  EXPECT_TRUE(std::isnan(item(ops::max(x))));
}

TEST_F(OpsReduce, TakesTheLeastIntegers) {
  const int32_t least = std::numeric_limits<int32_t>::min();
  EXPECT_EQ(int32_of(ops::min(of_int32({least, 5}))), least);
  EXPECT_EQ(item(ops::argmin(of_int32({5, least, 7}))), 1);
  EXPECT_EQ(int32_of(ops::max(of_int32({least, least}))), least);
  EXPECT_EQ(int64_of(ops::min(of_int64({kBeyond + 1, kBeyond + 2}))), kBeyond + 1);
  EXPECT_EQ(int64_of(ops::max(of_int64({kBeyond + 1, kBeyond}))), kBeyond + 1);
  EXPECT_EQ(item(ops::argmax(of_int64({kBeyond, kBeyond + 1}))), 1);
  EXPECT_EQ(item(ops::argmin(of_int64({kBeyond + 1, kBeyond}))), 1);
}

TEST_F(OpsReduce, KeepsIntegersAndWraps) {
  const Tensor bytes = tensor<uint8_t>(Dtype::uint8, {3}, {200, 100, 3});
  EXPECT_EQ(ops::sum(bytes).dtype(), Dtype::int32);
  EXPECT_EQ(int32_of(ops::sum(bytes)), 303);
  EXPECT_EQ(int32_of(ops::prod(bytes)), 60000);
  EXPECT_EQ(int32_of(ops::sum(constant({1, 2}) > 0.0)), 2);
  const int32_t most = std::numeric_limits<int32_t>::max();
  EXPECT_EQ(int32_of(ops::sum(of_int32({most, 1}))), std::numeric_limits<int32_t>::min());
  EXPECT_EQ(int32_of(ops::prod(of_int32({most, 2}))), -2);
  EXPECT_EQ(int64_of(ops::sum(of_int64({kBeyond, 1}))), kBeyond + 1);
  EXPECT_EQ(int64_of(ops::prod(of_int64({kBeyond + 1, 3}))), 3 * kBeyond + 3);
  EXPECT_EQ(ops::mean(of_int32({1, 2})).dtype(), Dtype::float32);
  EXPECT_EQ(item(ops::mean(of_int32({1, 2}))), 1.5);
}

TEST_F(OpsReduce, AnswersOverNoElements) {
  const Tensor none = ops::zeros({2, 0});
  EXPECT_EQ(to_vector(ops::prod(none, 1)), (std::vector<double>{1, 1}));
  EXPECT_EQ(to_vector(ops::sum(none, 1)), (std::vector<double>{0, 0}));
  EXPECT_EQ(to_vector(ops::norm(none, 1)), (std::vector<double>{0, 0}));
  EXPECT_EQ(to_vector(ops::any(none, 1)), (std::vector<double>{0, 0}));
  EXPECT_EQ(to_vector(ops::all(none, 1)), (std::vector<double>{1, 1}));
  EXPECT_EQ(item(ops::all(none)), 1);
  EXPECT_EQ(ops::all(none, 1).dtype(), Dtype::boolean);
  EXPECT_EQ(to_vector(ops::logsumexp(none, 1)), (std::vector<double>{-kInfinity, -kInfinity}));
  EXPECT_EQ(ops::logsumexp(none, 1, true).shape(), (Shape{2, 1}));
  EXPECT_EQ(ops::log_softmax(none).shape(), (Shape{2, 0}));
  EXPECT_EQ(ops::softmax(none, 1).shape(), (Shape{2, 0}));
  EXPECT_TRUE(std::isnan(to_vector(ops::mean(none, 1))[0]));
  EXPECT_EQ(ops::max(none, 0).shape(), (Shape{0}));
}

TEST_F(OpsReduce, NamesTheWordThatWasCalled) {
  const Tensor x = ops::zeros({2, 3}), none = ops::zeros({2, 0});
  using Word = std::pair<const char*, std::function<void(const Tensor&, int64_t)>>;
  const std::vector<Word> words = {
      {"sum", [](auto& t, int64_t axis) { ops::sum(t, axis); }},
      {"mean", [](auto& t, int64_t axis) { ops::mean(t, axis); }},
      {"max", [](auto& t, int64_t axis) { ops::max(t, axis); }},
      {"min", [](auto& t, int64_t axis) { ops::min(t, axis); }},
      {"prod", [](auto& t, int64_t axis) { ops::prod(t, axis); }},
      {"var", [](auto& t, int64_t axis) { ops::var(t, axis); }},
      {"std", [](auto& t, int64_t axis) { ops::std(t, axis); }},
      {"norm", [](auto& t, int64_t axis) { ops::norm(t, axis); }},
      {"any", [](auto& t, int64_t axis) { ops::any(t, axis); }},
      {"all", [](auto& t, int64_t axis) { ops::all(t, axis); }},
      {"count_nonzero", [](auto& t, int64_t axis) { ops::count_nonzero(t, axis); }},
      {"logsumexp", [](auto& t, int64_t axis) { ops::logsumexp(t, axis); }},
      {"argmax", [](auto& t, int64_t axis) { ops::argmax(t, axis); }},
      {"argmin", [](auto& t, int64_t axis) { ops::argmin(t, axis); }},
      {"normalize", [](auto& t, int64_t axis) { ops::normalize(t, axis); }},
  };
  for (const auto& [name, call] : words) {
    EXPECT_EQ(message_of([&] { call(x, 2); }).find("[" + std::string(name) + "]"), 0u) << name;
    EXPECT_EQ(message_of([&] { call(x, -3); }).find("[" + std::string(name) + "]"), 0u) << name;
    EXPECT_EQ(message_of([&] { call(x, -1); }), "") << name;
  }
  for (const char* name : {"max", "min", "argmax", "argmin"})
    for (const auto& [word, call] : words)
      if (std::string(word) == name) {
        EXPECT_EQ(message_of([&] { call(none, 1); }).find("[" + std::string(name) + "]"), 0u)
            << name;
      }
}

TEST_F(OpsReduce, GivesSlopesOfProductsWithZeros) {
  auto slopes = [](const Tensor& x, const ops::Axis& axis) {
    GradientTape tape;
    tape.watch(x);
    return to_vector(tape.gradient(ops::sum(ops::prod(x, axis)), Tensors{x})[0]);
  };
  EXPECT_EQ(slopes(constant({2, 0, 3}), {}), (std::vector<double>{0, 6, 0}));
  EXPECT_EQ(slopes(constant({0, 5, 0, 2}), {}), (std::vector<double>{0, 0, 0, 0}));
  EXPECT_EQ(slopes(constant({{2, 3}, {5, 7}, {0, 1}}), 0),
            (std::vector<double>{0, 7, 0, 3, 10, 21}));
  EXPECT_EQ(slopes(constant({{2, 3, 4}, {5, 6, 7}}), ops::Axis{0, 1}),
            (std::vector<double>{2520, 1680, 1260, 1008, 840, 720}));
}

TEST_F(OpsReduce, TakesNormsOfLargeAndSmallNumbers) {
  EXPECT_FLOAT_EQ(static_cast<float>(item(ops::norm(constant({3e30, 4e30})))), 5e30f);
  EXPECT_FLOAT_EQ(static_cast<float>(item(ops::norm(constant({3e-30, 4e-30})))), 5e-30f);
  const Tensor x = constant({{3, 4}, {6, 8}});
  EXPECT_EQ(to_vector(ops::norm(x, 1)), (std::vector<double>{5, 10}));
  EXPECT_EQ(to_vector(ops::norm(ops::transpose(x), -2)), (std::vector<double>{5, 10}));
}

}  // namespace
}  // namespace pl::ops_reduce_test
