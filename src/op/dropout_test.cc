#include "op/dropout.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/step_params.h"

namespace pl::dropout_test {
namespace {

class Dropout : public testing::Test {
 protected:
  Dropout() : backend_(2), scope_(backend_) {}

  static Tensor ones(Shape shape) {
    Tensor x({Dtype::float32, std::move(shape)});
    std::fill_n(x.data_as<float>(), x.meta().elements(), 1.0f);
    return x;
  }
  static Tensor params(StepParams values) {
    Tensor tensor(step_params_meta());
    std::memcpy(tensor.data(), &values, sizeof values);
    return tensor;
  }
  static std::vector<float> values(const Tensor& x) {
    return {x.data_as<float>(), x.data_as<float>() + x.meta().elements()};
  }

  CpuBackend backend_;
  BackendScope scope_;
};

TEST_F(Dropout, DrawsTheSameMaskWhenTheBatchIsSplit) {
  const auto whole = values(dropout(ones({9, 7}), params({.step = 5, .seed = 42}), 0.5, 17));
  std::vector<float> parts;
  for (int64_t row = 0; row < 9; row += 3)
    for (float value :
         values(dropout(ones({3, 7}), params({.step = 5, .seed = 42, .row_offset = row}), 0.5, 17)))
      parts.push_back(value);
  EXPECT_EQ(whole, parts);
}

TEST_F(Dropout, DrawsAnotherMaskForEachStepSeedAndStream) {
  const Tensor x = ones({64});
  const auto base = values(dropout(x, params({.step = 5, .seed = 42}), 0.5, 17));
  EXPECT_EQ(base, values(dropout(x, params({.step = 5, .seed = 42}), 0.5, 17)));
  EXPECT_NE(base, values(dropout(x, params({.step = 6, .seed = 42}), 0.5, 17)));
  EXPECT_NE(base, values(dropout(x, params({.step = 5, .seed = 43}), 0.5, 17)));
  EXPECT_NE(base, values(dropout(x, params({.step = 5, .seed = 42}), 0.5, 18)));
}

TEST_F(Dropout, KeepsTheAskedShareAndTheMean) {
  const auto y = values(dropout(ones({100000}), params({.step = 1, .seed = 7}), 0.2, 3));
  double sum = 0;
  for (float value : y) {
    EXPECT_TRUE(value == 0 || value == 1.25f);
    sum += value;
  }
  EXPECT_NEAR(sum / 100000, 1, 0.01);  // the standard deviation is 0.0016
}

TEST_F(Dropout, GivesTheGradientTheMaskOfTheForwardPass) {
  const Tensor p = params({.step = 2, .seed = 1, .row_offset = 4});
  EXPECT_EQ(values(dropout(ones({5, 5}), p, 0.3, 9)),
            values(dropout_gradient(ones({5, 5}), p, 0.3, 9)));
}

TEST_F(Dropout, DrawsTheSameMaskInEveryVariant) {
  const Metas in{{Dtype::float32, {5, 1031}}, step_params_meta()}, out{in[0]};
  const Attrs attrs{{"rate", 0.3}, {"stream", int64_t{-5}}};
  const Tensor x = ones({5, 1031});
  const Tensor p = params({.step = int64_t{1} << 40, .seed = ~uint64_t{0}, .row_offset = 3});
  std::vector<std::vector<float>> results;
  for (const Variant& variant : kDropout.variants) {
    auto kernel = prepare(kDropout, {backend_, in, out, attrs}, variant.name);
    Tensor y(out[0]);
    void* const from[] = {x.data(), p.data()};
    void* const to[] = {y.data()};
    kernel->run(from, to, nullptr);
    results.push_back(values(y));
    EXPECT_EQ(results[0], results.back()) << variant.name;
  }
}

TEST_F(Dropout, RejectsARateOfOne) {
  try {
    dropout(ones({2}), params({}), 1.0, 0);
    FAIL();
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("[dropout] expected a rate in [0, 1)"),
              std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace pl::dropout_test
