#include "op/leaky_relu.h"

#include "op/infer.h"

namespace pl {
namespace leaky_relu_op {
namespace {

void check_alpha(const char* op, const Metas& in, const Attrs& attrs) {
  const double alpha = attrs.real("alpha", -1);
  if (!(alpha > 0 && alpha < 1)) reject(op, "0 < alpha < 1", in, attrs);
}

Metas infer(const Metas& in, const Attrs& attrs) {
  expect_one_real("leaky_relu", in, attrs);
  check_alpha("leaky_relu", in, attrs);
  return checked("leaky_relu", {in[0]});
}

Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  expect_operands("leaky_relu_gradient", 2, 2, in, attrs);
  check_alpha("leaky_relu_gradient", in, attrs);
  if (!is_real(in[0].dtype) || in[0] != in[1])
    reject("leaky_relu_gradient", "y and dy of one shape, float32 or float64", in, attrs);
  return checked("leaky_relu_gradient", {in[0]});
}

Tensors gradient(const GradientCall& call) {
  return {leaky_relu_gradient(call.out[0], call.dout[0], call.attrs.real("alpha"))};
}

// Linear in dy; the kink in y has no slope.
Tensors gradient_gradient(const GradientCall& call) {
  return {Tensor(), leaky_relu_gradient(call.in[0], call.dout[0], call.attrs.real("alpha"))};
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 2); }

std::vector<Sample> samples_with(size_t operands) {
  auto sample = [&](const char* name, Shape shape, double alpha) {
    return Sample{name,
                  std::vector<SampleInput>(operands, {{Dtype::float32, shape}}),
                  {{"alpha", alpha}},
                  1e-6};
  };
  return {sample("scalar", {}, 0.3), sample("odd", {3, 37}, 0.3), sample("empty", {0, 4}, 0.1),
          sample("many", {33, 1031}, 0.01)};
}
std::vector<Sample> samples() { return samples_with(1); }
std::vector<Sample> gradient_samples() { return samples_with(2); }

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::leaky_relu_reference}};
constexpr Variant kGradientVariants[] = {
    {"reference", DeviceKind::cpu, cpu::leaky_relu_gradient_reference}};
constexpr InOut kInPlace[] = {{0, 0}};
constexpr InOut kGradientInPlace[] = {{1, 0}, {0, 0}};

}  // namespace
}  // namespace leaky_relu_op

const Op kLeakyRelu{
    .name = "leaky_relu",
    .summary = "x where positive, alpha * x elsewhere",
    .infer = leaky_relu_op::infer,
    .gradient = leaky_relu_op::gradient,
    .in_place = leaky_relu_op::kInPlace,
    .rows = rows_map,
    .cut = Cut::elements,
    .variants = leaky_relu_op::kVariants,
    .cost = leaky_relu_op::cost,
    .samples = leaky_relu_op::samples,
};

const Op kLeakyReluGradient{
    .name = "leaky_relu_gradient",
    .summary = "dy where leaky_relu's output is positive, alpha * dy elsewhere",
    .infer = leaky_relu_op::gradient_infer,
    .gradient = leaky_relu_op::gradient_gradient,
    .in_place = leaky_relu_op::kGradientInPlace,
    .rows = rows_map,
    .cut = Cut::elements,
    .variants = leaky_relu_op::kGradientVariants,
    .cost = leaky_relu_op::cost,
    .samples = leaky_relu_op::gradient_samples,
};

Tensor leaky_relu(const Tensor& x, double alpha) {
  return apply(kLeakyRelu, {x}, {{"alpha", alpha}})[0];
}
Tensor leaky_relu_gradient(const Tensor& y, const Tensor& dy, double alpha) {
  return apply(kLeakyReluGradient, {y, dy}, {{"alpha", alpha}})[0];
}

}  // namespace pl
