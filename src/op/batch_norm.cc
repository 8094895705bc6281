#include "op/batch_norm.h"

#include "op/batch_norm_gradient.h"
#include "op/infer.h"
#include "op/pointwise.h"
#include "op/reduce.h"
#include "op/relu.h"
#include "op/scale.h"

namespace pl {

Meta channels_of(const Meta& x) { return {wide(x.dtype), Shape{x.shape.back()}}; }

double rows_of(const Shape& x) {
  return static_cast<double>(x.elements()) / static_cast<double>(x.back());
}

void expect_channels(const char* op, const Metas& in, const Attrs& attrs) {
  const Meta& x = in[0];
  if (!is_real(x.dtype) || x.shape.rank() < 2 || x.shape.back() < 1)
    reject(op, "x (..., C) with two dimensions or more, float32 or float64", in, attrs);
  checked(op, {x});
}

void expect_most(const char* op, const Metas& in, const Attrs& attrs) {
  if (!(attrs.real("most", 1) > 0)) reject(op, "most above 0", in, attrs);
}

namespace batch_norm_op {
namespace {

// Moments of nothing are no numbers.
void expect_rows(const char* op, const Metas& in, const Attrs& attrs) {
  expect_channels(op, in, attrs);
  if (in[0].elements() == 0) reject(op, "at least one sample", in, attrs);
}

void expect_epsilon(const char* op, const Metas& in, const Attrs& attrs) {
  if (!(attrs.real("epsilon", -1) >= 0)) reject(op, "epsilon >= 0", in, attrs);
}

// Inputs: x, gamma, beta. Outputs: y, mean, variance.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_operands("batch_norm", 3, 3, in, attrs);
  expect_rows("batch_norm", in, attrs);
  const Meta channels = channels_of(in[0]);
  if (in[1] != channels || in[2] != channels)
    reject("batch_norm", "gamma and beta " + channels.text(), in, attrs);
  expect_epsilon("batch_norm", in, attrs);
  return {in[0], channels, channels};
}

// Input: x. Outputs: mean, variance.
Metas moments_infer(const Metas& in, const Attrs& attrs) {
  expect_operands("batch_moments", 1, 1, in, attrs);
  expect_rows("batch_moments", in, attrs);
  return {channels_of(in[0]), channels_of(in[0])};
}

// Inputs: x, mean, variance, gamma, beta, and for batch_norm_add what is added.
Metas apply_infer_of(const char* op, size_t operands, const Metas& in, const Attrs& attrs) {
  expect_operands(op, operands, operands, in, attrs);
  expect_channels(op, in, attrs);
  const Meta channels = channels_of(in[0]);
  for (size_t i = 1; i < 5; ++i)
    if (in[i] != channels)
      reject(op, "mean, variance, gamma and beta " + channels.text(), in, attrs);
  if (in.size() > 5 && in[5] != in[0]) reject(op, "x's shape for what is added", in, attrs);
  if (attrs.has("activation") && attrs.text("activation") != "relu")
    reject(op, "activation relu or none", in, attrs);
  expect_most(op, in, attrs);
  expect_epsilon(op, in, attrs);
  return {in[0]};
}
Metas apply_infer(const Metas& in, const Attrs& attrs) {
  return apply_infer_of("batch_norm_apply", 5, in, attrs);
}
Metas add_infer(const Metas& in, const Attrs& attrs) {
  return apply_infer_of("batch_norm_add", 6, in, attrs);
}

Tensor sum_of(const Tensor& a, const Tensor& b) {
  if (!a.defined()) return b;
  return b.defined() ? add(a, b) : a;
}

// What reaches x through its moments: mean' = 1 / rows, variance' = 2 * (x - mean) / rows.
Tensor through_moments(const Tensor& x, const Tensor& mean, const Tensor& dmean,
                       const Tensor& dvariance) {
  const double share = 1 / rows_of(x.shape());
  Tensor dx;
  if (dvariance.defined()) dx = multiply(subtract(x, mean), scale(dvariance, 2 * share));
  if (dmean.defined()) dx = add(dx.defined() ? dx : scale(x, 0), scale(dmean, share));
  return dx;
}

Tensors gradient(const GradientCall& call) {
  const Tensor &x = call.in[0], &dy = call.dout[0];
  Tensors out(3);
  if (dy.defined()) {
    const auto all = batch_norm_gradient(x, call.out[1], call.out[2], call.in[1], dy,
                                         call.attrs.real("epsilon"));
    out = {all.dx, all.dgamma, all.dbeta};
  }
  if (call.wants(0))
    out[0] = sum_of(out[0], through_moments(x, call.out[1], call.dout[1], call.dout[2]));
  return out;
}

Tensors moments_gradient(const GradientCall& call) {
  return {through_moments(call.in[0], call.out[0], call.dout[0], call.dout[1])};
}

// With given moments all is plain: y = (x - mean) * r * gamma + beta, r = 1 / sqrt(variance + e).
Tensors apply_gradient(const GradientCall& call) {
  const Tensor &x = call.in[0], &mean = call.in[1], &variance = call.in[2], &gamma = call.in[3];
  Tensor dy = call.dout[0];
  if (call.attrs.has("activation")) dy = relu_gradient(call.out[0], dy);
  if (call.attrs.has("most"))  // most - y is positive
    dy = relu_gradient(scale(call.out[0], -1, call.attrs.real("most")), dy);
  const Tensor spread = scale(variance, 1, call.attrs.real("epsilon"));
  const Tensor factor = divide(gamma, sqrt(spread));
  Tensors out(call.in.size());
  if (call.wants(0)) out[0] = multiply(dy, factor);
  if (call.wants(1) || call.wants(4)) out[4] = sum_to(dy, gamma.shape());
  if (call.wants(1)) out[1] = negative(multiply(out[4], factor));
  if (call.wants(2) || call.wants(3)) {
    const Tensor along = sum_to(multiply(dy, subtract(x, mean)), gamma.shape());
    out[3] = divide(along, sqrt(spread));
    out[2] = scale(divide(multiply(out[3], gamma), spread), -0.5);
  }
  if (call.in.size() > 5) out[5] = dy;
  return out;
}

// Moments and parameters.
RowMask wide_operands(const Attrs&, size_t) { return 0b11110; }

// Moments are those of the whole batch.
Rows rows_mixed(const Attrs&, RowMask in) { return in ? Rows::mixes : Rows::none; }
// Moments and parameters belong to all samples.
Rows apply_rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 0b1 ? Rows::maps : Rows::mixes;
}
Rows add_rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 0b100001 ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  result.bytes += static_cast<double>(in[0].bytes());  // x is read twice
  result.flops = 7 * static_cast<double>(in[0].elements());
  return result;
}
Cost moments_cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  result.flops = 4 * static_cast<double>(in[0].elements());
  return result;
}
Cost apply_cost(const Metas& in, const Metas& out, const Attrs&) {
  return pointwise_cost(in, out, 3 + static_cast<double>(in.size() - 5));
}

struct Size {
  const char* name;
  Shape x;
  bool benchmark = false;
};
std::vector<Size> sizes() {
  return {{"matrix", {5, 7}},
          {"images", {2, 3, 5, 3}},
          {"one_channel", {4, 3, 1}},
          {"one_row", {1, 19}},
          {"sixteen", {9, 5, 16}},
          {"wide", {3, 1031}},
          {"long", {700, 24}},
          {"four", {2, 2, 3, 64}},
          {"resnet18_b32", {32, 16, 16, 64}, true},
          {"resnet18_b128", {128, 16, 16, 64}, true},
          {"resnet18_deep", {32, 2, 2, 512}, true},
          {"odd_channels", {32, 15, 15, 20}, true}};
}

std::vector<Sample> samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes()) {
    const Meta x{Dtype::float32, size.x};
    // With one row the variance is 0, and epsilon alone decides.
    const double epsilon = size.x[0] == 1 ? 0.5 : 1e-3;
    out.push_back({size.name,
                   {{x}, {channels_of(x)}, {channels_of(x)}},
                   {{"epsilon", epsilon}},
                   2e-6,
                   size.benchmark});
  }
  return out;
}

std::vector<Sample> moments_samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes())
    out.push_back({size.name, {{{Dtype::float32, size.x}}}, {}, 1e-6, size.benchmark});
  return out;
}

Sample apply_sample(const char* name, const Shape& shape, bool added, bool relu, bool benchmark) {
  const Meta x{Dtype::float32, shape}, c = channels_of(x);
  Sample made{
      name, {{x}, {c}, {c, Fill::positive}, {c}, {c}}, {{"epsilon", 1e-3}}, 2e-6, benchmark};
  if (added) made.in.push_back({x});
  if (relu) made.attrs.set("activation", std::string("relu"));
  return made;
}
std::vector<Sample> apply_samples() {
  std::vector<Sample> out;
  for (const Size& size : sizes())
    out.push_back(apply_sample(size.name, size.x, false, false, size.benchmark));
  out.push_back(apply_sample("no_rows", {0, 4}, false, false, false));
  out.push_back(apply_sample("relu", {3, 5, 7}, false, true, false));
  out.push_back(apply_sample("clipped", {4, 5, 19}, false, true, false));
  out.back().attrs.set("most", 0.75);
  out.push_back(apply_sample("resnet18_b32_relu", {32, 16, 16, 64}, false, true, true));
  return out;
}
std::vector<Sample> add_samples() {
  return {apply_sample("images", {2, 3, 5, 3}, true, false, false),
          apply_sample("relu", {4, 3, 2, 17}, true, true, false),
          apply_sample("relu_wide", {5, 80}, true, true, false),
          apply_sample("resnet18_b32_relu", {32, 16, 16, 64}, true, true, true)};
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::batch_norm_simd},
    {"reference", DeviceKind::cpu, cpu::batch_norm_reference},
};
constexpr Variant kMomentsVariants[] = {
    {"simd", DeviceKind::cpu, cpu::batch_moments_simd},
    {"reference", DeviceKind::cpu, cpu::batch_moments_reference},
};
constexpr Variant kApplyVariants[] = {
    {"simd", DeviceKind::cpu, cpu::batch_norm_apply_simd},
    {"reference", DeviceKind::cpu, cpu::batch_norm_apply_reference},
};
constexpr InOut kInPlace[] = {{0, 0}};
constexpr InOut kAddInPlace[] = {{0, 0}, {5, 0}};

}  // namespace
}  // namespace batch_norm_op

const Op kBatchNorm{
    .name = "batch_norm",
    .summary = "mean 0 and variance 1 of each channel over the batch, then gamma and beta",
    .infer = batch_norm_op::infer,
    .gradient = batch_norm_op::gradient,
    .in_place = batch_norm_op::kInPlace,
    .rows = batch_norm_op::rows_mixed,
    .wide_operands = batch_norm_op::wide_operands,
    .variants = batch_norm_op::kVariants,
    .cost = batch_norm_op::cost,
    .samples = batch_norm_op::samples,
};

const Op kBatchMoments{
    .name = "batch_moments",
    .summary = "mean and variance of each channel over the batch",
    .infer = batch_norm_op::moments_infer,
    .gradient = batch_norm_op::moments_gradient,
    .rows = batch_norm_op::rows_mixed,
    .variants = batch_norm_op::kMomentsVariants,
    .cost = batch_norm_op::moments_cost,
    .samples = batch_norm_op::moments_samples,
};

const Op kBatchNormApply{
    .name = "batch_norm_apply",
    .summary = "channels normalised with given mean and variance, then gamma and beta",
    .infer = batch_norm_op::apply_infer,
    .gradient = batch_norm_op::apply_gradient,
    .in_place = batch_norm_op::kInPlace,
    .rows = batch_norm_op::apply_rows,
    .wide_operands = batch_norm_op::wide_operands,
    .variants = batch_norm_op::kApplyVariants,
    .cost = batch_norm_op::apply_cost,
    .samples = batch_norm_op::apply_samples,
};

const Op kBatchNormAdd{
    .name = "batch_norm_add",
    .summary = "batch_norm_apply, plus a tensor of its shape",
    .infer = batch_norm_op::add_infer,
    .gradient = batch_norm_op::apply_gradient,
    .in_place = batch_norm_op::kAddInPlace,
    .rows = batch_norm_op::add_rows,
    .wide_operands = batch_norm_op::wide_operands,
    .variants = batch_norm_op::kApplyVariants,
    .cost = batch_norm_op::apply_cost,
    .samples = batch_norm_op::add_samples,
};

BatchMoments batch_moments(const Tensor& x) {
  const Tensors out = apply(kBatchMoments, {x});
  return {out[0], out[1]};
}

BatchNormResult batch_norm(const Tensor& x, const Tensor& gamma, const Tensor& beta,
                           double epsilon) {
  const Tensors out = apply(kBatchNorm, {x, gamma, beta}, {{"epsilon", epsilon}});
  return {out[0], out[1], out[2]};
}

Tensor batch_norm_apply(const Tensor& x, const Tensor& mean, const Tensor& variance,
                        const Tensor& gamma, const Tensor& beta, double epsilon) {
  return apply(kBatchNormApply, {x, mean, variance, gamma, beta}, {{"epsilon", epsilon}})[0];
}

}  // namespace pl
