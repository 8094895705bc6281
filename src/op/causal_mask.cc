#include "op/causal_mask.h"

#include "op/infer.h"

namespace pl {
namespace causal_mask_op {
namespace {

// Input: x (..., T, S). Attribute zero: 1 when masked elements become 0 (the gradient) rather than
// minus infinity.
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_one_real("causal_mask", in, attrs);
  if (in[0].shape.rank() < 2) reject("causal_mask", "at least two dimensions", in, attrs);
  return checked("causal_mask", {in[0]});
}

Tensors gradient(const GradientCall& call) { return {causal_mask_gradient(call.dout[0])}; }

// Attribute `matrix`: 1 for two dimensions, whose samples then are the positions.
Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  return attrs.integer("matrix", 0) ? Rows::mixes : Rows::maps;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 0); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, int64_t zero, bool benchmark = false) {
    return Sample{name, {{{Dtype::float32, std::move(shape)}}}, {{"zero", zero}}, 0, benchmark};
  };
  return {sample("square", {3, 3}, 1),   sample("heads", {2, 3, 4, 4}, 1),
          sample("wide", {2, 3, 5}, 1),  sample("tall", {1, 5, 2}, 1),
          sample("empty", {0, 2, 2}, 1), sample("gpt_tiny_b8", {8, 4, 256, 256}, 0, true)};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::causal_mask_reference}};
constexpr InOut kInPlace[] = {{0, 0}};

Tensor masked(const Tensor& x, bool zero) {
  Attrs attrs;
  if (zero) attrs.set("zero", int64_t{1});
  if (x.defined() && x.shape().rank() == 2) attrs.set("matrix", int64_t{1});
  return apply(kCausalMask, {x}, std::move(attrs))[0];
}

}  // namespace
}  // namespace causal_mask_op

const Op kCausalMask{
    .name = "causal_mask",
    .summary = "minus infinity (or 0) where a later position is looked at",
    .infer = causal_mask_op::infer,
    .gradient = causal_mask_op::gradient,
    .in_place = causal_mask_op::kInPlace,
    .rows = causal_mask_op::rows,
    .variants = causal_mask_op::kVariants,
    .cost = causal_mask_op::cost,
    .samples = causal_mask_op::samples,
};

Tensor causal_mask(const Tensor& x) { return causal_mask_op::masked(x, false); }
Tensor causal_mask_gradient(const Tensor& dy) { return causal_mask_op::masked(dy, true); }

}  // namespace pl
