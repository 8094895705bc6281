#include "op/lstm.h"

#include "graph/graph.h"
#include "op/infer.h"
#include "op/recurrent_weight_gradient.h"

namespace pl {
namespace lstm_op {
namespace {

constexpr RecurrentOperand kMore[] = {kFirstState, kFirstCell, kStepMask, kDropped};
constexpr RecurrentOperand kGradientMore[] = {
    kFirstCell,
    kStepMask,
    kDropped,
    gradient_of_steps(0),
    gradient_of_last(3),
    {"dlast_c", "dlast_c", &RecurrentForm::dlast_c,
     [](const RecurrentSizes& s) { return s.state(); }, 4},
    {"dgates", "dgates", &RecurrentForm::dgates,
     [](const RecurrentSizes& s) { return s.sequence(4); }, 1},
    {"dc", "dc", &RecurrentForm::dcells, [](const RecurrentSizes& s) { return s.sequence(); }, 2}};
constexpr RecurrentKind kForward{"lstm", 4, 2, kMore};
constexpr RecurrentKind kBackward{"lstm_gradient", 4, 3, kGradientMore};

// Inputs: z (B, T, 4 H), u (H, 4 H), [h0, c0 (B, H)], [mask (B, T)], [dropped (B, 4, H)]. Outputs:
// h (B, T, H), gates (B, T, 4 H) behind their activations (zeros in steps left out), c (B, T, H),
// last_h and last_c (B, H).
Metas infer(const Metas& in, const Attrs& attrs) {
  const RecurrentSizes s = check_recurrent(kForward, in, attrs);
  return checked(kForward.op, {s.sequence(), s.sequence(4), s.sequence(), s.state(), s.state()});
}

// Inputs: gates (B, T, 4 H), c (B, T, H), u, [c0], [mask], [dropped], and the gradients of outputs
// that have one. Outputs: dz (B, T, 4 H), dh0 and dc0 (B, H).
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  const RecurrentSizes s = check_recurrent(kBackward, in, attrs);
  return checked(kBackward.op, {s.sequence(4), s.state(), s.state()});
}

Tensors gradient(const GradientCall& call) {
  RecurrentForm p;
  place_operands(kForward, call.attrs, p);
  const Tensors back = recurrent_backward(kLstmGradient, kBackward, kForward, call,
                                          {call.out[1], call.out[2], call.in[1]});
  Tensors out(call.in.size());
  if (call.wants(1))
    out[1] = recurrent_weight_gradient(call.out[0], back[0], recurrent_weight_options(call, p));
  out[0] = back[0];
  if (p.h0 >= 0) out[index(p.h0)] = back[1], out[index(p.c0)] = back[2];
  return out;
}

Rows rows(const Attrs& attrs, RowMask in) { return recurrent_rows(kForward, attrs, in); }
Rows gradient_rows(const Attrs& attrs, RowMask in) { return recurrent_rows(kBackward, attrs, in); }

Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  return recurrent_cost(4, 100, in, out);
}

const std::vector<RecurrentCase>& cases() {
  const Attr on = int64_t{1};
  const Attr relu = std::string("relu"), hard = std::string("hard_sigmoid"),
             line = std::string("linear");
  static const std::vector<RecurrentCase> list = {
      {"plain", 3, 4, 5},
      {"state", 2, 3, 4, {{"state", on}}},
      {"mask", 3, 6, 3, {{"mask", on}, {"state", on}}},
      {"backwards", 2, 5, 3, {{"backwards", on}, {"mask", on}}},
      {"flip", 2, 5, 3, {{"backwards", on}, {"flip", on}, {"state", on}}},
      {"dropped", 2, 4, 3, {{"dropped", on}, {"mask", on}}},
      {"relu", 2, 3, 4, {{"activation", relu}, {"recurrent_activation", hard}}},
      {"linear", 2, 2, 3, {{"activation", line}}},
      {"one_step", 4, 1, 7},
      {"no_steps", 2, 0, 3, {{"state", on}}},
      {"no_rows", 0, 3, 3},
      {"blocks", 17, 3, 37, {{"mask", on}}},
      {"wide", 9, 2, 83},
      {"b64_t128_h256", 64, 128, 256, {}, true},
      {"b1_t128_h256", 1, 128, 256, {}, true},
  };
  return list;
}

std::vector<Sample> samples() { return recurrent_samples(kForward, cases()); }

std::vector<Sample> gradient_samples() {
  std::vector<RecurrentCase> list = cases();
  for (RecurrentCase& c : list) {
    auto add = [&](const char* name) { c.attrs.emplace_back(name, int64_t{1}); };
    add("dh");
    if (c.units != 5) add("dlast_h");
    if (c.units == 4 || c.units == 37) add("dlast_c");
    if (c.units == 7) add("dgates"), add("dc");
  }
  return recurrent_samples(kBackward, list);
}

constexpr Variant kVariants[] = {
    {"simd", DeviceKind::cpu, cpu::lstm_simd},
    {"reference", DeviceKind::cpu, cpu::lstm_reference},
};
constexpr Variant kGradientVariants[] = {
    {"simd", DeviceKind::cpu, cpu::lstm_gradient_simd},
    {"reference", DeviceKind::cpu, cpu::lstm_gradient_reference},
};
constexpr InOut kInPlace[] = {{0, 1}};          // gates where z was
constexpr InOut kGradientInPlace[] = {{0, 0}};  // dz where gates were

}  // namespace
}  // namespace lstm_op

namespace cpu {
RecurrentForm lstm_form(const PrepareCall& call) {
  return recurrent_form(lstm_op::kForward, call.in, call.attrs);
}
RecurrentForm lstm_gradient_form(const PrepareCall& call) {
  return recurrent_form(lstm_op::kBackward, call.in, call.attrs);
}
}  // namespace cpu

const Op kLstm{
    .name = "lstm",
    .summary = "long short-term memory over sequences of projected inputs",
    .infer = lstm_op::infer,
    .gradient = lstm_op::gradient,
    .in_place = lstm_op::kInPlace,
    .rows = lstm_op::rows,
    .variants = lstm_op::kVariants,
    .cost = lstm_op::cost,
    .samples = lstm_op::samples,
};

const Op kLstmGradient{
    .name = "lstm_gradient",
    .summary = "gradients of lstm's projected inputs and first state, step by step backwards",
    .infer = lstm_op::gradient_infer,
    .in_place = lstm_op::kGradientInPlace,
    .rows = lstm_op::gradient_rows,
    .variants = lstm_op::kGradientVariants,
    .cost = lstm_op::cost,
    .samples = lstm_op::gradient_samples,
};

LstmResult lstm(const Tensor& z, const Tensor& u, const LstmExtras& extras,
                const RecurrentOptions& options) {
  Attrs attrs = recurrent_attrs(options);
  Tensors in{z, u};
  add_operand("state", extras.h0, in, attrs);
  add_operand("state", extras.c0, in, attrs);
  add_operand("mask", extras.mask, in, attrs);
  add_operand("dropped", extras.dropped, in, attrs);
  const Tensors out = apply(kLstm, std::move(in), std::move(attrs));
  return {out[0], out[3], out[4]};
}

}  // namespace pl
