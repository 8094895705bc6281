// What samples of recurrent ops cannot show: bits do not depend on threads, and the plain
// functions.
#include "op/lstm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/concatenate.h"
#include "op/gru.h"
#include "op/simple_rnn.h"
#include "tests/counter_hash.h"

namespace pl::lstm_test {
namespace {

using test::hashed_reals;

Meta real(Shape shape) { return {Dtype::float32, std::move(shape)}; }

std::vector<float> values(const Tensor& tensor) {
  const float* data = tensor.data_as<float>();
  return {data, data + tensor.meta().elements()};
}

// 13 samples of 21 units: blocks of samples and of units have rests, wherever threads part them.
TEST(Lstm, BitsDoNotDependOnThreads) {
  std::vector<std::vector<float>> runs;
  for (int threads : {1, 2, 3}) {
    CpuBackend backend(threads);
    BackendScope scope(backend);
    const Tensor z = hashed_reals(1, real({13, 9, 84}), 1), u = hashed_reals(2, real({21, 84}), -2);
    const Tensor dh = hashed_reals(3, real({13, 9, 21}), 0);
    const Tensors out = apply(kLstm, {z, u});
    const Tensors back = apply(kLstmGradient, {out[1], out[2], u, dh}, {{"dh", int64_t{1}}});
    std::vector<float> all = values(out[0]);
    for (const Tensor& tensor : {back[0], back[1], back[2]})
      for (float value : values(tensor)) all.push_back(value);
    runs.push_back(std::move(all));
  }
  EXPECT_EQ(runs[0], runs[1]);
  EXPECT_EQ(runs[0], runs[2]);
}

// 13 samples of 83 units, which are two panels of weights, the second with a rest.
TEST(SimpleRnn, BitsDoNotDependOnThreadsOrTheBatch) {
  const Tensor z = hashed_reals(1, real({13, 9, 83}), 1), u = hashed_reals(2, real({83, 83}), -2);
  const Tensor dh = hashed_reals(3, real({13, 9, 83}), 0);
  auto run = [&](int threads, Dim part) {
    CpuBackend backend(threads);
    BackendScope scope(backend);
    std::vector<float> all;
    for (Dim first = 0; first < 13; first += part) {
      const Dim count = std::min(part, 13 - first);
      const Tensor h = apply(kSimpleRnn, {slice(z, 0, first, count), u})[0];
      const Tensor dz =
          apply(kSimpleRnnGradient, {h, u, slice(dh, 0, first, count)}, {{"dh", int64_t{1}}})[0];
      for (const Tensor& tensor : {h, dz})
        for (float value : values(tensor)) all.push_back(value);
    }
    return all;
  };
  EXPECT_EQ(run(1, 13), run(2, 13));
  EXPECT_EQ(run(1, 13), run(3, 13));
  const std::vector<float> whole = run(2, 13), parts = run(2, 4);
  EXPECT_EQ(std::vector<float>(whole.begin(), whole.begin() + 4 * 9 * 83),
            std::vector<float>(parts.begin(), parts.begin() + 4 * 9 * 83));
}

TEST(Lstm, OfOneUnitIsItsFormula) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  Tensor z(real({1, 2, 4})), u(real({1, 4}));
  const float zs[] = {0.5f, -0.25f, 1.0f, 0.75f, -1.0f, 0.5f, 0.25f, 2.0f};
  const float us[] = {0.5f, 1.0f, -0.5f, 0.25f};
  std::copy(zs, zs + 8, z.data_as<float>());
  std::copy(us, us + 4, u.data_as<float>());
  const LstmResult result = lstm(z, u);
  auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
  double h = 0, c = 0;
  for (const float* step : {zs, zs + 4}) {
    c = sigmoid(step[1] + h * us[1]) * c +
        sigmoid(step[0] + h * us[0]) * std::tanh(step[2] + h * us[2]);
    h = sigmoid(step[3] + h * us[3]) * std::tanh(c);
  }
  EXPECT_NEAR(values(result.last_h)[0], h, 1e-6);
  EXPECT_NEAR(values(result.last_c)[0], c, 1e-6);
  EXPECT_EQ(values(result.h)[1], values(result.last_h)[0]);
}

TEST(Lstm, NamesWhatIsWrong) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  const Tensor z(real({2, 3, 8})), u(real({2, 8}));
  auto message = [&](const Tensor& weights, const LstmExtras& extras, const RecurrentOptions& o) {
    try {
      lstm(z, weights, extras, o);
    } catch (const UserError& error) {
      return std::string(error.what());
    }
    return std::string("accepted");
  };
  EXPECT_NE(
      message(Tensor(real({2, 6})), {}, {}).find("expected a sequence (B, T, 4 H) and weights"),
      std::string::npos);
  EXPECT_NE(message(u, {.mask = Tensor({Dtype::boolean, Shape{2, 2}})}, {})
                .find("expected a mask of bool"),
            std::string::npos);
  EXPECT_NE(message(u, {}, {.activation = "softmax"}).find("expected activations among linear"),
            std::string::npos);
}

// With an update gate that is always open (a large z), the state is the candidate's mean.
TEST(Gru, KeepsItsStateWhereTheUpdateGateIsOne) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  Tensor z(real({1, 3, 3})), u(real({1, 3})), h0(real({1, 1}));
  for (int t = 0; t < 3; ++t) {
    float* step = z.data_as<float>() + 3 * t;
    step[0] = 50, step[1] = 0, step[2] = 1;
  }
  for (int i = 0; i < 3; ++i) u.data_as<float>()[i] = 0;
  h0.data_as<float>()[0] = 0.375f;
  EXPECT_EQ(values(gru(z, u, {.h0 = h0}).h), (std::vector<float>{0.375f, 0.375f, 0.375f}));
}

}  // namespace
}  // namespace pl::lstm_test
