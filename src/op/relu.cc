#include "op/relu.h"

#include "op/infer.h"

namespace pl {
namespace relu_op {
namespace {

Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("relu", 1, 1, in, attrs);
  if (!is_real(in[0].dtype)) reject("relu", "float32 or float64", in, attrs);
  return checked("relu", {in[0]});
}

// Inputs: y (relu's output), dy.
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  expect_operands("relu_gradient", 2, 2, in, attrs);
  if (!is_real(in[0].dtype) || in[0] != in[1])
    reject("relu_gradient", "y and dy of one shape, float32 or float64", in, attrs);
  return checked("relu_gradient", {in[0]});
}

Tensors gradient(const GradientCall& call) { return {relu_gradient(call.out[0], call.dout[0])}; }

// Linear in dy; the step in y has no slope.
Tensors gradient_gradient(const GradientCall& call) {
  return {Tensor(), relu_gradient(call.in[0], call.dout[0])};
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out); }

std::vector<Sample> samples_with(size_t operands) {
  auto sample = [&](const char* name, Shape shape, bool benchmark = false) {
    return Sample{
        name, std::vector<SampleInput>(operands, {{Dtype::float32, shape}}), {}, 1e-6, benchmark};
  };
  return {sample("scalar", {}),
          sample("vector", {7}),
          sample("odd", {3, 37}),
          sample("images", {2, 5, 5, 3}),
          sample("empty", {0, 4}),
          sample("many", {33, 1031}),
          sample("mnist_cnn_b256", {256, 26, 26, 32}, true)};
}
std::vector<Sample> samples() { return samples_with(1); }
std::vector<Sample> gradient_samples() { return samples_with(2); }

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::relu_simd},
    {"reference", DeviceKind::cpu, cpu::relu_reference},
};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::relu_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::relu_gradient_reference},
};
constexpr InOut kInPlace[] = {{0, 0}};
constexpr InOut kGradientInPlace[] = {{1, 0}, {0, 0}};

}  // namespace
}  // namespace relu_op

const Op kRelu{
    .name = "relu",
    .summary = "max(x, 0); NaN stays NaN",
    .infer = relu_op::infer,
    .gradient = relu_op::gradient,
    .in_place = relu_op::kInPlace,
    .rows = rows_map,
    .cut = Cut::elements,
    .variants = relu_op::kVariants,
    .cost = relu_op::cost,
    .samples = relu_op::samples,
};

const Op kReluGradient{
    .name = "relu_gradient",
    .summary = "dy where relu's output is positive, else 0",
    .infer = relu_op::gradient_infer,
    .gradient = relu_op::gradient_gradient,
    .in_place = relu_op::kGradientInPlace,
    .rows = rows_map,
    .cut = Cut::elements,
    .variants = relu_op::kGradientVariants,
    .cost = relu_op::cost,
    .samples = relu_op::gradient_samples,
};

Tensor relu(const Tensor& x) { return apply(kRelu, {x})[0]; }
Tensor relu_gradient(const Tensor& y, const Tensor& dy) { return apply(kReluGradient, {y, dy})[0]; }

}  // namespace pl
