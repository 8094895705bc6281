#include "op/gru.h"

#include "graph/graph.h"
#include "op/concatenate.h"
#include "op/infer.h"
#include "op/matmul.h"
#include "op/recurrent_weight_gradient.h"
#include "op/reduce.h"

namespace pl {
namespace gru_op {
namespace {

// The bias is float32 for 16-bit operands: it is added before anything is rounded.
constexpr RecurrentOperand kMore[] = {{"bias", "a bias", &RecurrentForm::bias,
                                       [](const RecurrentSizes& s) {
                                         return Meta{wide(s.dtype), Shape{3 * s.units}};
                                       }},
                                      kFirstState,
                                      kStepMask,
                                      kDropped};
constexpr RecurrentOperand kGradientMore[] = {
    kFirstState,
    kStepMask,
    kDropped,
    gradient_of_steps(0),
    gradient_of_last(3),
    {"dgates", "dgates", &RecurrentForm::dgates,
     [](const RecurrentSizes& s) { return s.sequence(3); }, 1},
    {"dinner", "dinner", &RecurrentForm::dcells,
     [](const RecurrentSizes& s) { return s.sequence(); }, 2}};
constexpr RecurrentKind kForward{"gru", 3, 2, kMore};
constexpr RecurrentKind kBackward{"gru_gradient", 3, 4, kGradientMore};

// Inputs: z (B, T, 3 H), u (H, 3 H), [bias (3 H)], [h0 (B, H)], [mask (B, T)], [dropped (B, 3, H)].
// Outputs: h (B, T, H); gates (B, T, 3 H) behind their activations (zeros in steps left out); inner
// (B, T, H), what the reset gate multiplies (reset_after) or gives (else), zeros likewise; last_h
// (B, H).
Metas infer(const Metas& in, const Attrs& attrs) {
  const RecurrentSizes s = check_recurrent(kForward, in, attrs);
  if (attrs.integer("bias", 0) && attrs.integer("reset_before", 0))
    reject(kForward.op, "a bias of the product with the state with reset_after alone", in, attrs);
  return checked(kForward.op, {s.sequence(), s.sequence(3), s.sequence(), s.state()});
}

// Inputs: gates (B, T, 3 H), inner and h (B, T, H), u, [h0], [mask], [dropped], and the gradients
// of outputs that have one. Outputs: dz (B, T, 3 H); dn (B, T, H), the gradient of the candidate's
// product with the state; dh0 (B, H).
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  const RecurrentSizes s = check_recurrent(kBackward, in, attrs);
  return checked(kBackward.op, {s.sequence(3), s.sequence(), s.state()});
}

// dU in two parts: of the gates, and of the candidate.
Tensor weight_gradient(const GradientCall& call, const RecurrentForm& p, const Tensor& dz,
                       const Tensor& dn) {
  const Tensor &h = call.out[0], &inner = call.out[2];
  RecurrentWeightOptions options = recurrent_weight_options(call, p);
  const Tensor dropped = options.dropped;
  options.columns = 2 * h.shape()[2];
  if (dropped.defined()) options.dropped = slice(dropped, 1, 0, 2);
  const Tensor of_gates = recurrent_weight_gradient(h, dz, options);
  if (call.attrs.integer("reset_before", 0))
    return concatenate(
        {of_gates, matmul(inner, dn, {.transpose_a = true, .dtype = call.dtype_of(1)})}, 1);
  options.columns = 0;
  if (dropped.defined()) options.dropped = slice(dropped, 1, 2, 1);
  return concatenate({of_gates, recurrent_weight_gradient(h, dn, options)}, 1);
}

Tensors gradient(const GradientCall& call) {
  RecurrentForm p;
  place_operands(kForward, call.attrs, p);
  const Tensors back = recurrent_backward(kGruGradient, kBackward, kForward, call,
                                          {call.out[1], call.out[2], call.out[0], call.in[1]});
  Tensors out(call.in.size());
  if (call.wants(1)) out[1] = weight_gradient(call, p, back[0], back[1]);
  if (p.bias >= 0 && call.wants(p.bias)) {
    const Dim units = call.out[0].shape()[2];
    const Tensor of_gates = reduce_sum(back[0], {0, 1}, false, call.in[index(p.bias)].dtype());
    const Tensor of_candidate = reduce_sum(back[1], {0, 1}, false, call.in[index(p.bias)].dtype());
    out[index(p.bias)] = concatenate({slice(of_gates, 0, 0, 2 * units), of_candidate}, 0);
  }
  out[0] = back[0];
  if (p.h0 >= 0) out[index(p.h0)] = back[2];
  return out;
}

Rows rows(const Attrs& attrs, RowMask in) { return recurrent_rows(kForward, attrs, in); }
Rows gradient_rows(const Attrs& attrs, RowMask in) { return recurrent_rows(kBackward, attrs, in); }
RowMask wide_operands(const Attrs& attrs, size_t) {
  RecurrentForm p;
  place_operands(kForward, attrs, p);
  return p.bias < 0 ? 0 : RowMask{1} << p.bias;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  return recurrent_cost(3, 80, in, out);
}

const std::vector<RecurrentCase>& cases() {
  const Attr on = int64_t{1};
  const Attr relu = std::string("relu"), hard = std::string("hard_sigmoid");
  static const std::vector<RecurrentCase> list = {
      {"plain", 3, 4, 5},
      {"bias", 3, 4, 4, {{"bias", on}}},
      {"state", 2, 3, 4, {{"state", on}}},
      {"mask", 3, 6, 3, {{"mask", on}, {"state", on}, {"bias", on}}},
      {"backwards", 2, 5, 3, {{"backwards", on}, {"mask", on}}},
      {"flip", 2, 5, 3, {{"backwards", on}, {"flip", on}, {"state", on}}},
      {"dropped", 2, 4, 3, {{"dropped", on}, {"mask", on}, {"bias", on}}},
      {"relu", 2, 3, 4, {{"activation", relu}, {"recurrent_activation", hard}}},
      {"before", 3, 4, 5, {{"reset_before", on}, {"state", on}}},
      {"before_mask", 2, 5, 3, {{"reset_before", on}, {"mask", on}, {"backwards", on}}},
      {"before_dropped", 2, 3, 3, {{"reset_before", on}, {"dropped", on}}},
      {"one_step", 4, 1, 7},
      {"no_steps", 2, 0, 3, {{"state", on}}},
      {"no_rows", 0, 3, 3, {{"bias", on}}},
      {"blocks", 17, 3, 37, {{"mask", on}, {"bias", on}}},
      {"wide", 9, 2, 83},
      {"b64_t128_h256", 64, 128, 256, {{"bias", on}}, true},
  };
  return list;
}

std::vector<Sample> samples() { return recurrent_samples(kForward, cases()); }

std::vector<Sample> gradient_samples() {
  std::vector<RecurrentCase> list;
  for (RecurrentCase c : cases()) {
    if (std::string(c.name) == "bias") continue;
    std::erase_if(c.attrs, [](const auto& attr) { return attr.first == "bias"; });
    auto add = [&](const char* name) { c.attrs.emplace_back(name, int64_t{1}); };
    add("dh");
    if (c.units != 5) add("dlast_h");
    if (c.units == 7) add("dgates"), add("dinner");
    list.push_back(std::move(c));
  }
  return recurrent_samples(kBackward, list);
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::gru_simd},
    {"reference", DeviceKind::cpu, cpu::gru_reference},
};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::gru_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::gru_gradient_reference},
};
constexpr InOut kInPlace[] = {{0, 1}};                  // gates where z was
constexpr InOut kGradientInPlace[] = {{0, 0}, {1, 1}};  // dz where gates were, dn where inner was

}  // namespace
}  // namespace gru_op

namespace cpu {
RecurrentForm gru_form(const PrepareCall& call) {
  return recurrent_form(gru_op::kForward, call.in, call.attrs);
}
RecurrentForm gru_gradient_form(const PrepareCall& call) {
  return recurrent_form(gru_op::kBackward, call.in, call.attrs);
}
}  // namespace cpu

const Op kGru{
    .name = "gru",
    .summary = "gated recurrent units over sequences of projected inputs",
    .infer = gru_op::infer,
    .gradient = gru_op::gradient,
    .in_place = gru_op::kInPlace,
    .rows = gru_op::rows,
    .wide_operands = gru_op::wide_operands,
    .variants = gru_op::kVariants,
    .cost = gru_op::cost,
    .samples = gru_op::samples,
};

const Op kGruGradient{
    .name = "gru_gradient",
    .summary = "gradients of gru's projected inputs and first state, step by step backwards",
    .infer = gru_op::gradient_infer,
    .in_place = gru_op::kGradientInPlace,
    .rows = gru_op::gradient_rows,
    .variants = gru_op::kGradientVariants,
    .cost = gru_op::cost,
    .samples = gru_op::gradient_samples,
};

GruResult gru(const Tensor& z, const Tensor& u, const GruExtras& extras,
              const GruOptions& options) {
  Attrs attrs = recurrent_attrs(options);
  if (!options.reset_after) attrs.set("reset_before", int64_t{1});
  Tensors in{z, u};
  add_operand("bias", extras.bias, in, attrs);
  add_operand("state", extras.h0, in, attrs);
  add_operand("mask", extras.mask, in, attrs);
  add_operand("dropped", extras.dropped, in, attrs);
  const Tensors out = apply(kGru, std::move(in), std::move(attrs));
  return {out[0], out[3]};
}

}  // namespace pl
