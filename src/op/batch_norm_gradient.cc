#include "op/batch_norm_gradient.h"

#include "op/batch_norm.h"
#include "op/cast.h"
#include "op/infer.h"
#include "op/pointwise.h"
#include "op/reduce.h"
#include "op/scale.h"

namespace pl {
namespace batch_norm_gradient_op {
namespace {

// Inputs: x, mean, variance, gamma, dy. Outputs: dx, dgamma, dbeta.
Metas infer_of(const char* op, size_t operands, const Metas& in, const Attrs& attrs) {
  expect_operands(op, operands, operands, in, attrs);
  expect_channels(op, in, attrs);
  const Meta channels = channels_of(in[0]);
  if (in[1] != channels || in[2] != channels || in[3] != channels || in[4] != in[0])
    reject(op, "mean, variance and gamma " + channels.text() + ", and dy of x's shape", in, attrs);
  if (in[0].elements() == 0) reject(op, "at least one sample", in, attrs);
  if (!(attrs.real("epsilon", -1) >= 0)) reject(op, "epsilon >= 0", in, attrs);
  expect_most(op, in, attrs);
  return {in[0], channels, channels};
}
Metas infer(const Metas& in, const Attrs& attrs) {
  return infer_of("batch_norm_gradient", 5, in, attrs);
}

// Behind dy comes beta.
Metas relu_infer(const Metas& in, const Attrs& attrs) {
  Metas out = infer_of("batch_norm_relu_gradient", 6, in, attrs);
  if (in[5] != out[1]) reject("batch_norm_relu_gradient", "beta " + out[1].text(), in, attrs);
  return out;
}

// Behind dy comes y, and behind dbeta the masked dy.
Metas add_relu_infer(const Metas& in, const Attrs& attrs) {
  Metas out = infer_of("batch_norm_add_relu_gradient", 6, in, attrs);
  if (in[5] != in[0]) reject("batch_norm_add_relu_gradient", "y of x's shape", in, attrs);
  out.push_back(in[0]);
  return out;
}

// Sums and means over all but the channels, (C,).
Tensor channel_sum(const Tensor& x) { return sum_to(x, Shape{x.shape().back()}); }
Tensor channel_mean(const Tensor& x) { return scale(channel_sum(x), 1 / rows_of(x.shape())); }
Tensor plus(const Tensor& a, const Tensor& b) { return a.defined() ? add(a, b) : b; }

// With h = (x - mean) * r and r = 1 / sqrt(variance + epsilon):
//   dx = gamma * r * (dy - mean(dy) - h * mean(dy * h)), dgamma = sum(dy * h), dbeta = sum(dy).
// dx is linear and symmetric in dy. Answers for x, mean, variance, gamma and dy, the moments as
// numbers of their own: what reaches x through them is batch_norm's gradient to say.
Tensors gradient_gradient(const GradientCall& call) {
  const Dtype dtype = call.in[0].dtype(), wide_dtype = call.in[1].dtype();
  auto narrow = [&](const Tensor& x) { return cast(x, dtype); };
  auto wide_of = [&](const Tensor& x) { return cast(x, wide_dtype); };
  const Tensor &x = call.in[0], &dy = call.in[4];
  const Tensor root = sqrt(scale(call.in[2], 1, call.attrs.real("epsilon")));
  const Tensor reciprocal = divide(scale(root, 0, 1), root);
  const Tensor r = narrow(reciprocal), gamma = narrow(call.in[3]);
  const Tensor centred = subtract(x, narrow(call.in[1])), h = multiply(centred, r);
  Tensor to_dy, to_h, to_r, to_gamma;  // what reaches them
  if (const Tensor& u = call.dout[0]; u.defined()) {
    const Tensor v = multiply(u, gamma);
    const Tensor dy_h = channel_mean(multiply(dy, h)), v_h = channel_mean(multiply(v, h));
    auto rest = [&](const Tensor& z, const Tensor& z_h) {
      return subtract(subtract(z, channel_mean(z)), multiply(h, z_h));
    };
    const Tensor dy_rest = rest(dy, dy_h);
    to_dy = multiply(rest(v, v_h), r);
    to_gamma = channel_sum(multiply(multiply(u, dy_rest), r));
    to_r = channel_sum(multiply(v, dy_rest));
    to_h = negative(multiply(add(multiply(v, dy_h), multiply(dy, v_h)), r));
  }
  if (call.dout[1].defined()) {
    to_dy = plus(to_dy, multiply(h, narrow(call.dout[1])));
    to_h = plus(to_h, multiply(dy, narrow(call.dout[1])));
  }
  if (call.dout[2].defined())
    to_dy = plus(to_dy.defined() ? to_dy : scale(dy, 0), narrow(call.dout[2]));
  Tensors out(5);
  out[4] = to_dy;
  if (to_gamma.defined()) out[3] = wide_of(to_gamma);
  if (to_h.defined()) {
    out[0] = multiply(to_h, r);
    out[1] = wide_of(negative(channel_sum(out[0])));
    to_r = plus(to_r, channel_sum(multiply(to_h, centred)));
    const Tensor cube = multiply(reciprocal, square(reciprocal));
    out[2] = scale(multiply(wide_of(to_r), cube), -0.5);
  }
  return out;
}

Rows rows(const Attrs&, RowMask in) { return in ? Rows::mixes : Rows::none; }
// Moments and parameters.
RowMask wide_operands(const Attrs&, size_t) { return 0b1110; }
RowMask relu_wide_operands(const Attrs&, size_t) { return 0b101110; }

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  result.bytes += 2 * static_cast<double>(in[0].bytes());  // x and dy are read twice
  result.flops = 10 * static_cast<double>(in[0].elements());
  return result;
}

enum class Mask : uint8_t { none, x, y };
Sample sample(const char* name, const Shape& shape, Mask mask, bool benchmark = false) {
  const Meta x{Dtype::float32, shape}, c = channels_of(x);
  Sample made{
      name, {{x}, {c}, {c, Fill::positive}, {c}, {x}}, {{"epsilon", 1e-3}}, 4e-6, benchmark};
  if (mask != Mask::none) made.in.push_back({mask == Mask::x ? c : x});
  return made;
}
std::vector<Sample> samples() {
  constexpr Mask mask = Mask::none;
  return {sample("matrix", {5, 7}, mask),
          sample("images", {2, 3, 5, 3}, mask),
          sample("one_channel", {4, 3, 1}, mask),
          sample("one_row", {1, 19}, mask),
          sample("sixteen", {9, 5, 16}, mask),
          sample("wide", {3, 1031}, mask),
          sample("long", {700, 24}, mask),
          sample("resnet18_b32", {32, 16, 16, 64}, mask, true),
          sample("resnet18_b128", {128, 16, 16, 64}, mask, true),
          sample("resnet18_deep", {32, 2, 2, 512}, mask, true),
          sample("odd_channels", {32, 15, 15, 20}, mask, true)};
}
std::vector<Sample> masked_samples(Mask mask) {
  Sample clipped = sample("clipped", {5, 7, 18}, mask);
  clipped.attrs.set("most", 0.75);
  return {clipped,
          sample("images", {2, 3, 5, 3}, mask),
          sample("wide", {7, 1031}, mask),
          sample("long", {300, 64}, mask),
          sample("resnet18_b32", {32, 16, 16, 64}, mask, true),
          sample("resnet18_deep", {32, 2, 2, 512}, mask, true),
          sample("odd_channels", {32, 15, 15, 20}, mask, true)};
}
std::vector<Sample> relu_samples() { return masked_samples(Mask::x); }
std::vector<Sample> add_relu_samples() { return masked_samples(Mask::y); }

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::batch_norm_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::batch_norm_gradient_reference},
};
constexpr Variant kReluVariants[] = {
    {"simd", DeviceKind::cpu, cpu::batch_norm_relu_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::batch_norm_relu_gradient_reference},
};
constexpr Variant kAddReluVariants[] = {
    {"simd", DeviceKind::cpu, cpu::batch_norm_add_relu_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::batch_norm_add_relu_gradient_reference},
};
constexpr InOut kInPlace[] = {{4, 0}, {0, 0}};
// The masked dy is complete before dx is begun, and y is read for it alone.
constexpr InOut kAddReluInPlace[] = {{4, 3}, {5, 3}, {4, 0}, {5, 0}, {0, 0}};

}  // namespace
}  // namespace batch_norm_gradient_op

const Op kBatchNormGradient{
    .name = "batch_norm_gradient",
    .summary = "gradients of batch_norm for its input, gamma and beta",
    .infer = batch_norm_gradient_op::infer,
    .gradient = batch_norm_gradient_op::gradient_gradient,
    .in_place = batch_norm_gradient_op::kInPlace,
    .rows = batch_norm_gradient_op::rows,
    .wide_operands = batch_norm_gradient_op::wide_operands,
    .variants = batch_norm_gradient_op::kVariants,
    .cost = batch_norm_gradient_op::cost,
    .samples = batch_norm_gradient_op::samples,
};

const Op kBatchNormReluGradient{
    .name = "batch_norm_relu_gradient",
    .summary = "batch_norm_gradient behind the gradient of a relu, whose sign comes from x",
    .infer = batch_norm_gradient_op::relu_infer,
    .in_place = batch_norm_gradient_op::kInPlace,
    .rows = batch_norm_gradient_op::rows,
    .wide_operands = batch_norm_gradient_op::relu_wide_operands,
    .variants = batch_norm_gradient_op::kReluVariants,
    .cost = batch_norm_gradient_op::cost,
    .samples = batch_norm_gradient_op::relu_samples,
};

const Op kBatchNormAddReluGradient{
    .name = "batch_norm_add_relu_gradient",
    .summary = "batch_norm_gradient behind those of a relu and of an addition",
    .infer = batch_norm_gradient_op::add_relu_infer,
    .in_place = batch_norm_gradient_op::kAddReluInPlace,
    .rows = batch_norm_gradient_op::rows,
    .wide_operands = batch_norm_gradient_op::wide_operands,
    .variants = batch_norm_gradient_op::kAddReluVariants,
    .cost = batch_norm_gradient_op::cost,
    .samples = batch_norm_gradient_op::add_relu_samples,
};

BatchNormGradient batch_norm_gradient(const Tensor& x, const Tensor& mean, const Tensor& variance,
                                      const Tensor& gamma, const Tensor& dy, double epsilon) {
  const Tensors out =
      apply(kBatchNormGradient, {x, mean, variance, gamma, dy}, {{"epsilon", epsilon}});
  return {out[0], out[1], out[2]};
}

}  // namespace pl
