#include "op/dropout.h"

#include "op/infer.h"
#include "op/recorder.h"
#include "op/step_params.h"

namespace pl {
namespace dropout_op {
namespace {

// Inputs: x, step_params. Attributes: rate, stream; rows, 0 when x carries no rows: then the
// element index does not count from the micro-batch's first sample. Of a band of image rows:
// height, rows of the whole image; starts, the first row of each band.
Metas infer(const char* op, const Metas& in, const Attrs& attrs) {
  expect_operands(op, 2, 2, in, attrs);
  if (!is_real(in[0].dtype)) reject(op, "a float32 or float64 tensor", in, attrs);
  if (in[1] != step_params_meta())
    reject(op, "step parameters " + step_params_meta().text() + " second", in, attrs);
  const double rate = attrs.real("rate");
  if (!(rate >= 0 && rate < 1)) reject(op, "a rate in [0, 1)", in, attrs);
  if (attrs.has("starts") && (in[0].shape.rank() < 2 || !attrs.has("height")))
    reject(op, "bands of images (B, H, ...) with their height", in, attrs);
  return checked(op, {in[0]});
}

Metas infer_forward(const Metas& in, const Attrs& attrs) { return infer("dropout", in, attrs); }
Metas infer_gradient(const Metas& in, const Attrs& attrs) {
  return infer("dropout_gradient", in, attrs);
}

// Linear, and diagonal: the gradient is the same function, of the gradient.
Tensors gradient(const GradientCall& call) {
  return {apply(kDropoutGradient, {call.dout[0], call.in[1]}, call.attrs)[0], Tensor()};
}

Rows rows(const Attrs&, RowMask in) {
  if (!in) return Rows::none;
  return in == 1 ? Rows::maps : Rows::mixes;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 25); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, double rate, bool benchmark = false) {
    return Sample{name,
                  {{{Dtype::float32, shape}}, {step_params_meta(), Fill::step_params}},
                  {{"rate", rate}, {"stream", int64_t{0x5eed5eed5eed}}},
                  1e-6,
                  benchmark};
  };
  return {sample("half", {5, 13}, 0.5),
          sample("fifth", {2, 3, 7}, 0.2),
          sample("none", {3, 3}, 0),
          sample("most", {200}, 0.95),
          sample("scalar", {}, 0.5),
          sample("empty", {0, 3}, 0.5),
          sample("large", {256, 4096}, 0.5, true)};
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::dropout_simd},
    {"reference", DeviceKind::cpu, cpu::dropout_reference},
};
constexpr InOut kInPlace[] = {{0, 0}};

Attrs attrs_for(const Tensor& x, double rate, int64_t stream) {
  Attrs attrs{{"rate", rate}, {"stream", stream}};
  if (x.is_symbol() && !carries_rows(x)) attrs.set("rows", int64_t{0});
  return attrs;
}

}  // namespace
}  // namespace dropout_op

const Op kDropout{
    .name = "dropout",
    .summary = "zeroes a share of the elements, scales the rest",
    .infer = dropout_op::infer_forward,
    .gradient = dropout_op::gradient,
    .in_place = dropout_op::kInPlace,
    .rows = dropout_op::rows,
    .effects = {.random = true},
    .variants = dropout_op::kVariants,
    .cost = dropout_op::cost,
    .samples = dropout_op::samples,
};

const Op kDropoutGradient{
    .name = "dropout_gradient",
    .summary = "dropout's mask, made again, on the gradient",
    .infer = dropout_op::infer_gradient,
    .gradient = dropout_op::gradient,
    .in_place = dropout_op::kInPlace,
    .rows = dropout_op::rows,
    .effects = {.random = true},
    .variants = dropout_op::kVariants,
    .cost = dropout_op::cost,
    .samples = dropout_op::samples,
};

Tensor dropout(const Tensor& x, const Tensor& step_params, double rate, int64_t stream) {
  return apply(kDropout, {x, step_params}, dropout_op::attrs_for(x, rate, stream))[0];
}

Tensor dropout_gradient(const Tensor& dy, const Tensor& step_params, double rate, int64_t stream) {
  return apply(kDropoutGradient, {dy, step_params}, dropout_op::attrs_for(dy, rate, stream))[0];
}

}  // namespace pl
