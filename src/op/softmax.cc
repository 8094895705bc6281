#include "op/softmax.h"

#include "op/infer.h"
#include "op/pointwise.h"
#include "op/reduce.h"

namespace pl {
namespace softmax_op {
namespace {

Metas infer(const Metas& in, const Attrs& attrs) {
  expect_one_real("softmax", in, attrs);
  if (in[0].shape.rank() < 1) reject("softmax", "at least one dimension", in, attrs);
  return checked("softmax", {in[0]});
}

// Inputs: y (softmax's output), dy.
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  expect_operands("softmax_gradient", 2, 2, in, attrs);
  if (!is_real(in[0].dtype) || in[0] != in[1] || in[0].shape.rank() < 1)
    reject("softmax_gradient", "y and dy of one shape and float32 or float64", in, attrs);
  return checked("softmax_gradient", {in[0]});
}

Tensors gradient(const GradientCall& call) { return {softmax_gradient(call.out[0], call.dout[0])}; }

// With s = sum(y * dy): dx = y * (dy - s). For a cotangent g of dx:
//   to dy: y * (g - sum(y * g)), the same function;   to y: g * (dy - s) - dy * sum(y * g).
Tensors gradient_gradient(const GradientCall& call) {
  const Tensor &y = call.in[0], &dy = call.in[1], &g = call.dout[0];
  Tensors out(2);
  if (call.wants(1)) out[1] = softmax_gradient(y, g);
  if (call.wants(0)) {
    const Tensor s = reduce_sum(multiply(y, dy), {-1}, true);
    const Tensor t = reduce_sum(multiply(y, g), {-1}, true);
    out[0] = subtract(multiply(g, subtract(dy, s)), multiply(dy, t));
  }
  return out;
}

// Attribute `vector`: 1 for a single dimension, whose samples then are the classes.
Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  return attrs.integer("vector", 0) ? Rows::mixes : Rows::maps;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 25); }
Cost gradient_cost(const Metas& in, const Metas& out, const Attrs&) {
  return pointwise_cost(in, out, 4);
}

std::vector<Sample> samples_with(std::vector<Fill> fills) {
  auto sample = [&](const char* name, Shape shape, bool benchmark = false) {
    Sample result{name, {}, {}, 1e-6, benchmark};
    for (Fill fill : fills) result.in.push_back({{Dtype::float32, shape}, fill});
    return result;
  };
  return {sample("vector", {5}),       sample("matrix", {3, 10}),
          sample("one_class", {4, 1}), sample("sequence", {2, 3, 17}),
          sample("empty", {0, 4}),     sample("no_classes", {3, 0}),
          sample("blocks", {2, 1100}), sample("wide", {128, 1000}, true)};
}
std::vector<Sample> samples() { return samples_with({Fill::normal}); }
std::vector<Sample> gradient_samples() { return samples_with({Fill::probabilities, Fill::normal}); }

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::softmax_simd},
    {"reference", DeviceKind::cpu, cpu::softmax_reference},
};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::softmax_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::softmax_gradient_reference},
};
constexpr InOut kInPlace[] = {{0, 0}};
constexpr InOut kGradientInPlace[] = {{1, 0}, {0, 0}};

Attrs attrs_for(const Tensor& x) {
  if (x.shape().rank() != 1) return {};
  return {{"vector", int64_t{1}}};
}

}  // namespace
}  // namespace softmax_op

const Op kSoftmax{
    .name = "softmax",
    .summary = "probabilities from scores, over the last axis",
    .infer = softmax_op::infer,
    .gradient = softmax_op::gradient,
    .in_place = softmax_op::kInPlace,
    .rows = softmax_op::rows,
    .cut = Cut::rows,
    .variants = softmax_op::kVariants,
    .cost = softmax_op::cost,
    .samples = softmax_op::samples,
};

const Op kSoftmaxGradient{
    .name = "softmax_gradient",
    .summary = "gradient of softmax from its output",
    .infer = softmax_op::gradient_infer,
    .gradient = softmax_op::gradient_gradient,
    .in_place = softmax_op::kGradientInPlace,
    .rows = softmax_op::rows,
    .cut = Cut::rows,
    .variants = softmax_op::kGradientVariants,
    .cost = softmax_op::gradient_cost,
    .samples = softmax_op::gradient_samples,
};

Tensor softmax(const Tensor& x) { return apply(kSoftmax, {x}, softmax_op::attrs_for(x))[0]; }
Tensor softmax_gradient(const Tensor& y, const Tensor& dy) {
  return apply(kSoftmaxGradient, {y, dy}, softmax_op::attrs_for(y))[0];
}

}  // namespace pl
