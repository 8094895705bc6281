#include "op/gelu.h"

#include <cmath>
#include <numbers>

#include "op/infer.h"
#include "op/pointwise.h"
#include "op/scale.h"

namespace pl {
namespace gelu_op {
namespace {

// Input: x. Attribute: approximate (0 or 1).
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_one_real("gelu", in, attrs);
  return checked("gelu", {in[0]});
}

// Inputs: x, dy.
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  expect_operands("gelu_gradient", 2, 2, in, attrs);
  if (!is_real(in[0].dtype) || in[0] != in[1])
    reject("gelu_gradient", "x and dy of one shape, float32 or float64", in, attrs);
  return checked("gelu_gradient", {in[0]});
}

bool is_approximate(const Attrs& attrs) { return attrs.integer("approximate", 0); }

Tensors gradient(const GradientCall& call) {
  return {gelu_gradient(call.in[0], call.dout[0], is_approximate(call.attrs))};
}

// The slope's slope. Exact: density(x) * (2 - x^2). Approximate, with t = tanh(u):
// (1 - t^2) * (u' + x * (u'' / 2 - t * u'^2)).
Tensor curvature(const Tensor& x, bool approximate) {
  const Tensor xx = square(x);
  if (!approximate) {
    const double height = std::numbers::inv_sqrtpi / std::numbers::sqrt2;
    return multiply(scale(exp(scale(xx, -0.5)), height), scale(xx, -1, 2));
  }
  const double c = std::sqrt(2) * std::numbers::inv_sqrtpi, a = 0.044715;
  const Tensor t = tanh(multiply(x, scale(xx, c * a, c)));
  const Tensor slope = scale(xx, 3 * a * c, c);
  const Tensor bend = subtract(scale(x, 3 * a * c), multiply(t, square(slope)));
  return multiply(scale(square(t), -1, 1), add(slope, multiply(x, bend)));
}

Tensors gradient_gradient(const GradientCall& call) {
  const Tensor &x = call.in[0], &dy = call.in[1], &g = call.dout[0];
  const bool approximate = is_approximate(call.attrs);
  Tensors out(2);
  if (call.wants(0)) out[0] = multiply(multiply(g, dy), curvature(x, approximate));
  if (call.wants(1)) out[1] = gelu_gradient(x, g, approximate);
  return out;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 30); }

std::vector<Sample> samples_with(size_t operands) {
  auto sample = [&](const char* name, Shape shape, int64_t approximate, bool benchmark = false) {
    return Sample{name,
                  std::vector<SampleInput>(operands, {{Dtype::float32, shape}}),
                  {{"approximate", approximate}},
                  1e-6,
                  benchmark};
  };
  return {sample("scalar", {}, 0),
          sample("odd", {3, 37}, 0),
          sample("odd_tanh", {3, 37}, 1),
          sample("empty", {0, 4}, 1),
          sample("sequence", {2, 5, 33}, 0),
          sample("many", {33, 1031}, 0),
          sample("many_tanh", {33, 1031}, 1),
          sample("gpt_b2", {2, 256, 1024}, 0, true),
          sample("gpt_b8", {8, 256, 1024}, 0, true),
          sample("gpt_b8_tanh", {8, 256, 1024}, 1, true)};
}
std::vector<Sample> samples() { return samples_with(1); }
std::vector<Sample> gradient_samples() { return samples_with(2); }

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::gelu_simd},
    {"reference", DeviceKind::cpu, cpu::gelu_reference},
};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::gelu_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::gelu_gradient_reference},
};
constexpr InOut kInPlace[] = {{0, 0}};
constexpr InOut kGradientInPlace[] = {{1, 0}, {0, 0}};

Attrs attrs_of(bool approximate) {
  return approximate ? Attrs{{"approximate", int64_t{1}}} : Attrs{};
}

}  // namespace
}  // namespace gelu_op

const Op kGelu{
    .name = "gelu",
    .summary = "x times the normal distribution's probability below x",
    .infer = gelu_op::infer,
    .gradient = gelu_op::gradient,
    .in_place = gelu_op::kInPlace,
    .rows = rows_map,
    .cut = Cut::elements,
    .variants = gelu_op::kVariants,
    .cost = gelu_op::cost,
    .samples = gelu_op::samples,
};

const Op kGeluGradient{
    .name = "gelu_gradient",
    .summary = "dy times gelu's slope at x",
    .infer = gelu_op::gradient_infer,
    .gradient = gelu_op::gradient_gradient,
    .in_place = gelu_op::kGradientInPlace,
    .rows = rows_map,
    .cut = Cut::elements,
    .variants = gelu_op::kGradientVariants,
    .cost = gelu_op::cost,
    .samples = gelu_op::gradient_samples,
};

Tensor gelu(const Tensor& x, bool approximate) {
  return apply(kGelu, {x}, gelu_op::attrs_of(approximate))[0];
}
Tensor gelu_gradient(const Tensor& x, const Tensor& dy, bool approximate) {
  return apply(kGeluGradient, {x, dy}, gelu_op::attrs_of(approximate))[0];
}

}  // namespace pl
