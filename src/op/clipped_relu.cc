#include "op/clipped_relu.h"

#include "op/infer.h"

namespace pl {
namespace clipped_relu_op {
namespace {

void check_most(const char* op, const Metas& in, const Attrs& attrs) {
  const double most = attrs.real("most", 0);
  if (!(most > 0 && most < 1e30)) reject(op, "0 < most < 1e30", in, attrs);
}

Metas infer(const Metas& in, const Attrs& attrs) {
  expect_one_real("clipped_relu", in, attrs);
  check_most("clipped_relu", in, attrs);
  return checked("clipped_relu", {in[0]});
}

// Inputs: y (clipped_relu's output), dy.
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  expect_operands("clipped_relu_gradient", 2, 2, in, attrs);
  check_most("clipped_relu_gradient", in, attrs);
  if (!is_real(in[0].dtype) || in[0] != in[1])
    reject("clipped_relu_gradient", "y and dy of one shape, float32 or float64", in, attrs);
  return checked("clipped_relu_gradient", {in[0]});
}

Tensors gradient(const GradientCall& call) {
  return {clipped_relu_gradient(call.out[0], call.dout[0], call.attrs.real("most"))};
}

// Linear in dy; the steps in y have no slope.
Tensors gradient_gradient(const GradientCall& call) {
  return {Tensor(), clipped_relu_gradient(call.in[0], call.dout[0], call.attrs.real("most"))};
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out); }

std::vector<Sample> samples_with(size_t operands) {
  auto sample = [&](const char* name, Shape shape, double most, bool benchmark = false) {
    return Sample{name,
                  std::vector<SampleInput>(operands, {{Dtype::float32, shape}}),
                  {{"most", most}},
                  1e-6,
                  benchmark};
  };
  return {sample("scalar", {}, 6),
          sample("odd", {3, 37}, 0.5),
          sample("images", {2, 5, 5, 3}, 0.75),
          sample("empty", {0, 4}, 6),
          sample("many", {33, 1031}, 0.9),
          sample("mobilenet_b32", {32, 32, 32, 96}, 6, true)};
}
std::vector<Sample> samples() { return samples_with(1); }
std::vector<Sample> gradient_samples() { return samples_with(2); }

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::clipped_relu_simd},
    {"reference", DeviceKind::cpu, cpu::clipped_relu_reference},
};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::clipped_relu_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::clipped_relu_gradient_reference},
};
constexpr InOut kInPlace[] = {{0, 0}};
constexpr InOut kGradientInPlace[] = {{1, 0}, {0, 0}};

}  // namespace
}  // namespace clipped_relu_op

const Op kClippedRelu{
    .name = "clipped_relu",
    .summary = "min(max(x, 0), most); NaN stays NaN",
    .infer = clipped_relu_op::infer,
    .gradient = clipped_relu_op::gradient,
    .in_place = clipped_relu_op::kInPlace,
    .rows = rows_map,
    .cut = Cut::elements,
    .variants = clipped_relu_op::kVariants,
    .cost = clipped_relu_op::cost,
    .samples = clipped_relu_op::samples,
};

const Op kClippedReluGradient{
    .name = "clipped_relu_gradient",
    .summary = "dy where clipped_relu's output is between 0 and most, else 0",
    .infer = clipped_relu_op::gradient_infer,
    .gradient = clipped_relu_op::gradient_gradient,
    .in_place = clipped_relu_op::kGradientInPlace,
    .rows = rows_map,
    .cut = Cut::elements,
    .variants = clipped_relu_op::kGradientVariants,
    .cost = clipped_relu_op::cost,
    .samples = clipped_relu_op::gradient_samples,
};

Tensor clipped_relu(const Tensor& x, double most) {
  return apply(kClippedRelu, {x}, {{"most", most}})[0];
}
Tensor clipped_relu_gradient(const Tensor& y, const Tensor& dy, double most) {
  return apply(kClippedReluGradient, {y, dy}, {{"most", most}})[0];
}

}  // namespace pl
