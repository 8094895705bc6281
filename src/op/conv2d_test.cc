// What samples cannot show of conv2d's own kernels: what they refuse, NaN, threads and batches.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <limits>
#include <string_view>

#include "backend/cpu/cpu_backend.h"
#include "backend/cpu/onednn.h"
#include "op/functions.h"
#include "tensor/bfloat16.h"
#include "tests/patterns.h"

namespace pl::conv2d_test {
namespace {

using test::same_bits;

constexpr Dtype kDtypes[] = {Dtype::float32, Dtype::bfloat16};

double noise(int64_t i) { return std::sin(static_cast<double>(i * i % 10007) * 12.9898); }

double number(const Tensor& t, int64_t i) {
  if (t.dtype() == Dtype::bfloat16)
    return static_cast<double>(static_cast<float>(t.data_as<Bfloat16>()[i]));
  return static_cast<double>(t.data_as<float>()[i]);
}

void put(Tensor& t, int64_t i, double value) {
  if (t.dtype() == Dtype::bfloat16)
    t.data_as<Bfloat16>()[i] = Bfloat16(static_cast<float>(value));
  else
    t.data_as<float>()[i] = static_cast<float>(value);
}

Tensor noisy(Dtype dtype, Shape shape, int64_t from = 0) {
  Tensor made({dtype, std::move(shape)});
  for (int64_t i = 0; i < made.meta().elements(); ++i) put(made, i, noise(from + i));
  return made;
}

// A convolution with pads of 1, from three sides.
struct Case {
  const char* variant;
  Dim batch, size, channels, filters, stride = 1, dilation = 1, kernel = 3;

  Shape x() const { return {batch, size, size, channels}; }
  Shape w() const { return {kernel, kernel, channels, filters}; }
  Attrs attrs() const {
    using List = std::vector<int64_t>;
    return {{"strides", List{stride, stride}},
            {"dilations", List{dilation, dilation}},
            {"padding", std::string("explicit")},
            {"pads", List{1, 1, 1, 1}}};
  }
};

// The three ops of a case with noise for operands.
struct Direction {
  const Op* op;
  Tensors in;
  Attrs attrs;
  Metas in_metas() const {
    Metas metas;
    for (const Tensor& t : in) metas.push_back(t.meta());
    return metas;
  }
};

std::vector<Direction> directions(const Case& c, Dtype dtype) {
  const Tensor x = noisy(dtype, c.x()), w = noisy(dtype, c.w(), 77);
  const Tensor dy = noisy(dtype, kConv2d.infer({x.meta(), w.meta()}, c.attrs())[0].shape, 999);
  Attrs input = c.attrs(), weight = c.attrs();
  input.set("input_shape", c.x().dims());
  weight.set("kernel_shape", c.w().dims());
  weight.set("dtype", std::string(name_of(Dtype::float32)));
  return {{&kConv2d, {x, w}, c.attrs()},
          {&kConv2dInputGradient, {w, dy}, input},
          {&kConv2dWeightGradient, {x, dy}, weight}};
}

std::unique_ptr<Kernel> kernel_for(const Direction& d, Backend& backend, const char* variant) {
  const Metas in = d.in_metas(), out = d.op->infer(in, d.attrs);
  return prepare(*d.op, {backend, in, out, d.attrs}, variant);
}

Tensor run(const Direction& d, Backend& backend, const char* variant) {
  const Metas in = d.in_metas(), out = d.op->infer(in, d.attrs);
  const auto kernel = prepare(*d.op, {backend, in, out, d.attrs}, variant);
  Tensor result(out[0]);
  Buffer workspace(kernel->workspace_bytes);
  void* ins[] = {d.in[0].data(), d.in[1].data()};
  void* outs[] = {result.data()};
  kernel->run(ins, outs, workspace.data());
  return result;
}

// The same numbers in float64, by the definition.
Tensor exact(Direction d, Backend& backend) {
  for (Tensor& t : d.in) {
    Tensor wide({Dtype::float64, t.shape()});
    for (int64_t i = 0; i < t.meta().elements(); ++i) wide.data_as<double>()[i] = number(t, i);
    t = wide;
  }
  if (d.attrs.has("dtype")) d.attrs.set("dtype", std::string(name_of(Dtype::float64)));
  return run(d, backend, "reference");
}

bool multiplies(Dtype dtype) { return onednn_multiplies(dtype); }

const Case kSuited[] = {{"winograd", 3, 9, 48, 80},
                        {"winograd", 5, 4, 64, 32},
                        {"taps", 3, 2, 144, 128},
                        {"taps", 3, 5, 128, 144, 2},
                        {"taps", 5, 5, 128, 128, 1, 2}};

TEST(Conv2dOwnKernels, RefuseWhatTheyAreNotFor) {
  CpuBackend backend(1);
  const Case refused[] = {{"winograd", 2, 9, 48, 48, 2}, {"winograd", 2, 9, 48, 48, 1, 2},
                          {"winograd", 2, 9, 40, 48},    {"winograd", 2, 9, 48, 47},
                          {"winograd", 2, 9, 16, 48},    {"winograd", 2, 9, 48, 48, 1, 1, 5},
                          {"winograd", 2, 2, 48, 48},    {"taps", 2, 2, 136, 128},
                          {"taps", 2, 2, 128, 64},       {"taps", 2, 9, 128, 128}};
  for (Dtype dtype : kDtypes) {
    for (const Case& c : refused)
      for (const Direction& d : directions(c, dtype))
        EXPECT_FALSE(kernel_for(d, backend, c.variant)) << d.op->name << " " << c.variant;
    for (const Case& c : kSuited)
      for (const Direction& d : directions(c, dtype))
        EXPECT_EQ(static_cast<bool>(kernel_for(d, backend, c.variant)), multiplies(dtype))
            << d.op->name << " " << c.variant;
  }
}

TEST(Conv2dOwnKernels, GiveTheSameBitsAtAnyThreadCount) {
  for (Dtype dtype : kDtypes)
    for (const Case& c : kSuited)
      for (const Direction& d : directions(c, dtype)) {
        if (!multiplies(dtype)) continue;
        CpuBackend one(1), three(3);
        EXPECT_TRUE(same_bits(run(d, one, c.variant), run(d, three, c.variant)))
            << d.op->name << " " << c.variant << " " << name_of(dtype);
      }
}

// Root mean squares. A result rounded to bfloat16 is off by 1.7e-3; rounded planes add 3.8e-3
// (docs/decisions/0008-convolutions.md).
TEST(Conv2dOwnKernels, AreAsExactAsTheirDtype) {
  CpuBackend backend(2);
  for (Dtype dtype : kDtypes)
    for (const Case& c : kSuited) {
      if (!multiplies(dtype)) continue;
      for (const Direction& d : directions(c, dtype)) {
        const Tensor wanted = exact(d, backend), got = run(d, backend, c.variant);
        double error = 0, size = 0;
        for (int64_t i = 0; i < got.meta().elements(); ++i) {
          const double value = wanted.data_as<double>()[i];
          error += std::pow(number(got, i) - value, 2);
          size += value * value;
        }
        const bool planes = std::string_view(c.variant) == "winograd";
        const double bound = dtype == Dtype::float32 ? 1e-6 : planes ? 5e-3 : 2e-3;
        EXPECT_LT(std::sqrt(error / size), bound) << d.op->name << " " << c.variant;
      }
    }
}

// A NaN anywhere in an operand reaches every result that it has a part in.
TEST(Conv2dOwnKernels, KeepNan) {
  CpuBackend backend(2);
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  for (Dtype dtype : kDtypes)
    for (const Case& c : kSuited) {
      if (!multiplies(dtype)) continue;
      for (const Direction& d : directions(c, dtype))
        for (size_t operand : {0u, 1u}) {
          Direction bad = d;
          bad.in[operand] = noisy(dtype, d.in[operand].shape());
          put(bad.in[operand], d.in[operand].meta().elements() / 2 + 3, kNan);
          const Tensor wanted = exact(bad, backend), got = run(bad, backend, c.variant);
          for (int64_t i = 0; i < got.meta().elements(); ++i)
            ASSERT_TRUE(!std::isnan(wanted.data_as<double>()[i]) || std::isnan(number(got, i)))
                << d.op->name << " " << c.variant << " " << name_of(dtype) << " operand " << operand
                << " result " << i;
        }
    }
}

}  // namespace
}  // namespace pl::conv2d_test
