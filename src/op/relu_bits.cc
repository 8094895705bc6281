#include "op/relu_bits.h"

#include "op/infer.h"

namespace pl {
namespace relu_bits_op {
namespace {

Meta bits_of(const Meta& x) {
  const Dim row = x.shape.without_front().elements();
  return {Dtype::uint8, Shape{x.shape[0], row / 8 + (row % 8 != 0)}};
}

// Input: x (B, ...). Outputs: y, bits.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("relu_bits", 1, 1, in, attrs);
  if (!is_real(in[0].dtype) || in[0].shape.rank() < 1)
    reject("relu_bits", "rows of float32 or float64", in, attrs);
  checked("relu_bits", {in[0]});
  return checked("relu_bits", {in[0], bits_of(in[0])});
}

// Inputs: bits, dy (B, ...).
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  expect_operands("relu_bits_gradient", 2, 2, in, attrs);
  if (!is_real(in[1].dtype) || in[1].shape.rank() < 1)
    reject("relu_bits_gradient", "rows of float32 or float64 second", in, attrs);
  checked("relu_bits_gradient", {in[1]});
  if (in[0] != bits_of(in[1]))
    reject("relu_bits_gradient", "bits " + bits_of(in[1]).text() + " first", in, attrs);
  return {in[1]};
}

Tensors gradient(const GradientCall& call) {
  return {relu_bits_gradient(call.out[1], call.dout[0])};
}

// Linear in dy.
Tensors gradient_gradient(const GradientCall& call) {
  return {Tensor(), relu_bits_gradient(call.in[0], call.dout[0])};
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out); }

std::vector<Sample> samples_with(bool bits) {
  auto sample = [&](const char* name, Shape shape, bool benchmark = false) {
    const Meta x{Dtype::float32, std::move(shape)};
    Sample result{name, {}, {}, 1e-6, benchmark};
    if (bits) result.in.push_back({bits_of(x), Fill::bytes});
    result.in.push_back({x});
    return result;
  };
  return {sample("vector", {7}),
          sample("odd", {3, 37}),
          sample("bytes", {5, 16}),
          sample("images", {2, 5, 5, 3}),
          sample("no_rows", {0, 4}),
          sample("empty_rows", {3, 0}),
          sample("many", {33, 1031}),
          sample("one_row", {1, 40000}),
          sample("mnist_cnn_b256", {256, 26, 26, 32}, true)};
}
std::vector<Sample> samples() { return samples_with(false); }
std::vector<Sample> gradient_samples() { return samples_with(true); }

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::relu_bits_simd},
    {"reference", DeviceKind::cpu, cpu::relu_bits_reference},
};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::relu_bits_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::relu_bits_gradient_reference},
};
constexpr InOut kInPlace[] = {{0, 0}};
constexpr InOut kGradientInPlace[] = {{1, 0}};

}  // namespace
}  // namespace relu_bits_op

const Op kReluBits{
    .name = "relu_bits",
    .summary = "max(x, 0), and a bit per element that says where it is positive",
    .infer = relu_bits_op::infer,
    .gradient = relu_bits_op::gradient,
    .in_place = relu_bits_op::kInPlace,
    .rows = rows_map,
    .variants = relu_bits_op::kVariants,
    .cost = relu_bits_op::cost,
    .samples = relu_bits_op::samples,
};

const Op kReluBitsGradient{
    .name = "relu_bits_gradient",
    .summary = "dy where relu_bits's bit is 1, else 0",
    .infer = relu_bits_op::gradient_infer,
    .gradient = relu_bits_op::gradient_gradient,
    .in_place = relu_bits_op::kGradientInPlace,
    .rows = rows_map,
    .variants = relu_bits_op::kGradientVariants,
    .cost = relu_bits_op::cost,
    .samples = relu_bits_op::gradient_samples,
};

ReluBitsResult relu_bits(const Tensor& x) {
  const Tensors out = apply(kReluBits, {x});
  return {out[0], out[1]};
}
Tensor relu_bits_gradient(const Tensor& bits, const Tensor& dy) {
  return apply(kReluBitsGradient, {bits, dy})[0];
}

}  // namespace pl
