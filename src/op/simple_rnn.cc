#include "op/simple_rnn.h"

#include "graph/graph.h"
#include "op/infer.h"
#include "op/recurrent_weight_gradient.h"

namespace pl {
namespace simple_rnn_op {
namespace {

constexpr RecurrentOperand kMore[] = {kFirstState, kStepMask, kDropped};
constexpr RecurrentOperand kGradientMore[] = {kStepMask, kDropped, gradient_of_steps(0),
                                              gradient_of_last(1)};
constexpr RecurrentKind kForward{"simple_rnn", 1, 2, kMore};
constexpr RecurrentKind kBackward{"simple_rnn_gradient", 1, 2, kGradientMore};

// Inputs: z (B, T, H), u (H, H), [h0 (B, H)], [mask (B, T)], [dropped (B, 1, H)]. Outputs: h
// (B, T, H), last_h (B, H).
Metas infer(const Metas& in, const Attrs& attrs) {
  const RecurrentSizes s = check_recurrent(kForward, in, attrs);
  return checked(kForward.op, {s.sequence(), s.state()});
}
// Inputs: h (B, T, H), u, [mask], [dropped], [dh (B, T, H)], [dlast_h (B, H)]. Outputs: dz
// (B, T, H), dh0 (B, H).
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  const RecurrentSizes s = check_recurrent(kBackward, in, attrs);
  return checked(kBackward.op, {s.sequence(), s.state()});
}

Tensors gradient(const GradientCall& call) {
  RecurrentForm p;
  place_operands(kForward, call.attrs, p);
  const Tensors back =
      recurrent_backward(kSimpleRnnGradient, kBackward, kForward, call, {call.out[0], call.in[1]});
  Tensors out(call.in.size());
  if (call.wants(1))
    out[1] = recurrent_weight_gradient(call.out[0], back[0], recurrent_weight_options(call, p));
  out[0] = back[0];
  if (p.h0 >= 0) out[index(p.h0)] = back[1];
  return out;
}

Rows rows(const Attrs& attrs, RowMask in) { return recurrent_rows(kForward, attrs, in); }
Rows gradient_rows(const Attrs& attrs, RowMask in) { return recurrent_rows(kBackward, attrs, in); }

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  return recurrent_cost(1, 20, in, out);
}

const std::vector<RecurrentCase>& cases() {
  const Attr on = int64_t{1}, relu = std::string("relu");
  static const std::vector<RecurrentCase> list = {
      {"plain", 3, 4, 5},
      {"mask", 3, 6, 3, {{"mask", on}, {"state", on}}},
      {"backwards", 2, 5, 3, {{"backwards", on}, {"mask", on}}},
      {"flip", 2, 5, 3, {{"backwards", on}, {"flip", on}, {"state", on}}},
      {"dropped", 2, 4, 3, {{"dropped", on}, {"mask", on}}},
      {"relu", 2, 3, 4, {{"activation", relu}}},
      {"no_steps", 2, 0, 3, {{"state", on}}},
      {"no_rows", 0, 3, 3},
      {"wide", 9, 2, 37},
      {"two_panels", 7, 3, 83, {{"mask", on}}},
  };
  return list;
}

std::vector<Sample> samples() { return recurrent_samples(kForward, cases()); }

std::vector<Sample> gradient_samples() {
  std::vector<RecurrentCase> list = cases();
  for (RecurrentCase& c : list) {
    std::erase_if(c.attrs, [](const auto& attr) { return attr.first == "state"; });
    c.attrs.emplace_back("dh", int64_t{1});
    c.attrs.emplace_back("dlast_h", int64_t{1});
  }
  return recurrent_samples(kBackward, list);
}

constexpr Variant kVariants[] = {{"simd", DeviceKind::cpu, cpu::simple_rnn_simd},
                                 {"reference", DeviceKind::cpu, cpu::simple_rnn_reference}};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::simple_rnn_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::simple_rnn_gradient_reference}};

}  // namespace
}  // namespace simple_rnn_op

namespace cpu {
RecurrentForm simple_rnn_form(const PrepareCall& call) {
  return recurrent_form(simple_rnn_op::kForward, call.in, call.attrs);
}
RecurrentForm simple_rnn_gradient_form(const PrepareCall& call) {
  return recurrent_form(simple_rnn_op::kBackward, call.in, call.attrs);
}
}  // namespace cpu

const Op kSimpleRnn{
    .name = "simple_rnn",
    .summary = "activation(z + h_previous x u) over sequences of projected inputs",
    .infer = simple_rnn_op::infer,
    .gradient = simple_rnn_op::gradient,
    .rows = simple_rnn_op::rows,
    .variants = simple_rnn_op::kVariants,
    .cost = simple_rnn_op::cost,
    .samples = simple_rnn_op::samples,
};

const Op kSimpleRnnGradient{
    .name = "simple_rnn_gradient",
    .summary = "gradients of simple_rnn's projected inputs and first state",
    .infer = simple_rnn_op::gradient_infer,
    .rows = simple_rnn_op::gradient_rows,
    .variants = simple_rnn_op::kGradientVariants,
    .cost = simple_rnn_op::cost,
    .samples = simple_rnn_op::gradient_samples,
};

SimpleRnnResult simple_rnn(const Tensor& z, const Tensor& u, const SimpleRnnExtras& extras,
                           const RecurrentOptions& options) {
  Attrs attrs = recurrent_attrs(options);
  Tensors in{z, u};
  add_operand("state", extras.h0, in, attrs);
  add_operand("mask", extras.mask, in, attrs);
  add_operand("dropped", extras.dropped, in, attrs);
  const Tensors out = apply(kSimpleRnn, std::move(in), std::move(attrs));
  return {out[0], out[1]};
}

}  // namespace pl
