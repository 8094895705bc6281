#include "op/ctc_loss.h"

#include "op/infer.h"

namespace pl {
namespace ctc_loss_op {
namespace {

void expect_call(const char* op, size_t operands, const Metas& in, const Attrs& attrs) {
  expect_operands(op, operands, operands, in, attrs);
  const Shape &logits = in[0].shape, &labels = in[1].shape;
  if (!is_real(in[0].dtype) || logits.rank() != 3 || logits[2] < 1 || in[1].dtype != Dtype::int32 ||
      labels.rank() != 2 || labels[0] != logits[0])
    reject(op, "logits (B, T, C), float32 or float64, and labels int32 (B, L)", in, attrs);
  checked(op, in);
}

// Inputs: logits (B, T, C), labels int32 (B, L). Output (B,).
Metas infer(const Metas& in, const Attrs& attrs) {
  expect_call("ctc_loss", 2, in, attrs);
  return {{in[0].dtype, Shape{in[0].shape[0]}}};
}

// Inputs: logits, labels, dloss (B,). Output (B, T, C).
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  expect_call("ctc_loss_gradient", 3, in, attrs);
  if (in[2] != Meta{in[0].dtype, Shape{in[0].shape[0]}})
    reject("ctc_loss_gradient", "dloss (B,) of the logits' dtype", in, attrs);
  return {in[0]};
}

Tensors gradient(const GradientCall& call) {
  return {ctc_loss_gradient(call.in[0], call.in[1], call.dout[0]), Tensor()};
}

// Each step has an exponential a class, and three for each of 2 L + 1 states.
Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  const Shape& s = in[0].shape;
  const double states = 2 * static_cast<double>(in[1].shape[1]) + 1;
  result.flops = static_cast<double>(s[0] * s[1]) * (20 * static_cast<double>(s[2]) + 60 * states);
  return result;
}

struct Size {
  const char* name;
  Dim batch, steps, classes, labels;
  bool benchmark = false;
};

std::vector<Sample> samples_of(bool backward) {
  std::vector<Sample> out;
  for (const Size& s :
       {Size{"words", 3, 9, 5, 4}, Size{"one_label", 2, 3, 4, 1}, Size{"no_labels", 2, 3, 4, 0},
        Size{"one_class", 2, 4, 1, 2}, Size{"long", 2, 40, 7, 13}, Size{"no_rows", 0, 5, 4, 2},
        Size{"speech_b32", 32, 200, 32, 40, true}}) {
    Sample sample{s.name, {}, {}, 1e-5, s.benchmark};
    sample.in = {{{Dtype::float32, Shape{s.batch, s.steps, s.classes}}},
                 {{Dtype::int32, Shape{s.batch, s.labels}}, Fill::labels}};
    if (backward) sample.in.push_back({{Dtype::float32, Shape{s.batch}}});
    out.push_back(std::move(sample));
  }
  return out;
}
std::vector<Sample> samples() { return samples_of(false); }
std::vector<Sample> gradient_samples() { return samples_of(true); }

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::ctc_loss_reference}};
constexpr Variant kGradientVariants[] = {
    {"reference", DeviceKind::cpu, cpu::ctc_loss_gradient_reference}};
constexpr InOut kGradientInPlace[] = {{0, 0}};

}  // namespace
}  // namespace ctc_loss_op

const Op kCtcLoss{
    .name = "ctc_loss",
    .summary = "connectionist temporal classification of labels under softmax(logits)",
    .infer = ctc_loss_op::infer,
    .gradient = ctc_loss_op::gradient,
    .rows = rows_map,
    .variants = ctc_loss_op::kVariants,
    .cost = ctc_loss_op::cost,
    .samples = ctc_loss_op::samples,
};

const Op kCtcLossGradient{
    .name = "ctc_loss_gradient",
    .summary = "(softmax(logits) - how likely a step spells a class) * dloss",
    .infer = ctc_loss_op::gradient_infer,
    .in_place = ctc_loss_op::kGradientInPlace,
    .rows = rows_map,
    .variants = ctc_loss_op::kGradientVariants,
    .cost = ctc_loss_op::cost,
    .samples = ctc_loss_op::gradient_samples,
};

Tensor ctc_loss(const Tensor& logits, const Tensor& labels) {
  return apply(kCtcLoss, {logits, labels})[0];
}
Tensor ctc_loss_gradient(const Tensor& logits, const Tensor& labels, const Tensor& dloss) {
  return apply(kCtcLossGradient, {logits, labels, dloss})[0];
}

}  // namespace pl
