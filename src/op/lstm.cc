#include "op/lstm.h"

#include <algorithm>

#include "graph/graph.h"
#include "op/infer.h"
#include "op/recurrent_weight_gradient.h"

namespace pl {
namespace {

using cpu::LstmForm;

// Operands behind z and u, or behind gates, c and u.
struct Places : LstmForm {
  int count;
};

Places places_of(const Attrs& attrs) {
  OptionalOperands more(attrs, 2);
  Places p{};
  p.h0 = more.take("state");
  p.c0 = more.take("state");
  p.mask = more.take("mask");
  p.dropped = more.take("dropped");
  p.count = more.count();
  return p;
}

Places gradient_places_of(const Attrs& attrs) {
  OptionalOperands more(attrs, 3);
  Places p{};
  p.h0 = -1;
  p.c0 = more.take("state");
  p.mask = more.take("mask");
  p.dropped = more.take("dropped");
  p.dh = more.take("dh");
  p.dlast_h = more.take("dlast_h");
  p.dlast_c = more.take("dlast_c");
  p.dgates = more.take("dgates");
  p.dc = more.take("dc");
  p.count = more.count();
  return p;
}

// Inputs: z (B, T, 4 H), u (H, 4 H), [h0, c0 (B, H)], [mask (B, T)], [dropped (B, 4, H)]. Outputs:
// h (B, T, H), gates (B, T, 4 H) behind their activations (zeros in steps left out), c (B, T, H),
// last_h and last_c (B, H).
Metas infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "lstm";
  const Places p = places_of(attrs);
  expect_operands(op, index(p.count), index(p.count), in, attrs);
  const RecurrentSizes sizes = recurrent_sizes(op, 4, in[0], in[1], in, attrs);
  recurrent_form(op, in[0].shape, sizes.units, in, attrs);
  auto expect = [&](const char* what, int at, const Meta& meta) {
    expect_recurrent_meta(op, what, at, meta, in, attrs);
  };
  expect("h0", p.h0, sizes.state());
  expect("c0", p.c0, sizes.state());
  expect("a mask", p.mask, sizes.mask());
  expect("factors", p.dropped, sizes.dropped());
  return checked(
      op, {sizes.sequence(), sizes.sequence(4), sizes.sequence(), sizes.state(), sizes.state()});
}

// Inputs: gates (B, T, 4 H), c (B, T, H), u, [c0], [mask], [dropped], and the gradients of outputs
// that have one. Outputs: dz (B, T, 4 H), dh0 and dc0 (B, H).
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "lstm_gradient";
  const Places p = gradient_places_of(attrs);
  expect_operands(op, index(p.count), index(p.count), in, attrs);
  const RecurrentSizes sizes = recurrent_sizes(op, 4, in[0], in[2], in, attrs);
  recurrent_form(op, in[0].shape, sizes.units, in, attrs);
  auto expect = [&](const char* what, int at, const Meta& meta) {
    expect_recurrent_meta(op, what, at, meta, in, attrs);
  };
  expect("c", 1, sizes.sequence());
  expect("c0", p.c0, sizes.state());
  expect("a mask", p.mask, sizes.mask());
  expect("factors", p.dropped, sizes.dropped());
  expect("dh", p.dh, sizes.sequence());
  expect("dlast_h", p.dlast_h, sizes.state());
  expect("dlast_c", p.dlast_c, sizes.state());
  expect("dgates", p.dgates, sizes.sequence(4));
  expect("dc", p.dc, sizes.sequence());
  return checked(op, {sizes.sequence(4), sizes.state(), sizes.state()});
}

Tensors gradient(const GradientCall& call) {
  const Places p = places_of(call.attrs);
  auto operand = [&](int at) { return at < 0 ? Tensor() : call.in[index(at)]; };
  Attrs attrs = recurrent_shared_attrs(call.attrs);
  Tensors in{call.out[1], call.out[2], call.in[1]};
  add_operand("state", operand(p.c0), in, attrs);
  add_operand("mask", operand(p.mask), in, attrs);
  add_operand("dropped", operand(p.dropped), in, attrs);
  add_operand("dh", call.dout[0], in, attrs);
  add_operand("dlast_h", call.dout[3], in, attrs);
  add_operand("dlast_c", call.dout[4], in, attrs);
  add_operand("dgates", call.dout[1], in, attrs);
  add_operand("dc", call.dout[2], in, attrs);
  const Tensors back = apply(kLstmGradient, std::move(in), std::move(attrs));
  Tensors out(call.in.size());
  if (call.wants(1))
    out[1] = recurrent_weight_gradient(call.out[0], back[0],
                                       {.backwards = call.attrs.integer("backwards", 0) != 0,
                                        .flip = call.attrs.integer("flip", 0) != 0,
                                        .h0 = operand(p.h0),
                                        .dropped = operand(p.dropped),
                                        .dtype = call.dtype_of(1)});
  out[0] = back[0];
  if (p.h0 >= 0) out[index(p.h0)] = back[1], out[index(p.c0)] = back[2];
  return out;
}

Rows rows(const Attrs& attrs, RowMask in) {
  return recurrent_rows(RowMask{2}, places_of(attrs).count, in);
}
Rows gradient_rows(const Attrs& attrs, RowMask in) {
  return recurrent_rows(RowMask{4}, gradient_places_of(attrs).count, in);
}

// A product with u for each step, and some 100 operations for each unit.
Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  const double units = static_cast<double>(in[0].shape.back()) / 4;
  const double steps = static_cast<double>(in[0].elements()) / std::max(1.0, 4 * units);
  result.flops = steps * units * (8 * units + 100);
  return result;
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

std::vector<Sample> samples() {
  std::vector<Sample> result;
  for (const RecurrentCase& c : cases()) {
    Sample sample = recurrent_sample(c);
    sample.in = {sample_real({c.batch, c.steps, 4 * c.units}), sample_real({c.units, 4 * c.units})};
    add_recurrent_extras(c, 4, 2, sample);
    result.push_back(std::move(sample));
  }
  return result;
}

std::vector<Sample> gradient_samples() {
  std::vector<Sample> result;
  for (const RecurrentCase& c : cases()) {
    Sample sample = recurrent_sample(c);
    const Shape sequence{c.batch, c.steps, c.units}, state{c.batch, c.units};
    // Gates are below 1: numbers like them, or states grow from step to step.
    sample.in = {sample_real({c.batch, c.steps, 4 * c.units}, Fill::probabilities),
                 sample_real(sequence), sample_real({c.units, 4 * c.units})};
    add_recurrent_extras(c, 4, 1, sample);
    auto add = [&](const char* name, const Shape& shape) {
      sample.attrs.set(name, int64_t{1});
      sample.in.push_back(sample_real(shape));
    };
    add("dh", sequence);
    if (c.units != 5) add("dlast_h", state);
    if (c.units == 4 || c.units == 37) add("dlast_c", state);
    if (c.units == 7) add("dgates", {c.batch, c.steps, 4 * c.units});
    if (c.units == 7) add("dc", sequence);
    result.push_back(std::move(sample));
  }
  return result;
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

namespace cpu {
LstmForm lstm_form(const PrepareCall& call) {
  LstmForm f = places_of(call.attrs);
  f.sequence = recurrent_form("lstm", call.in[0].shape, call.in[1].shape[0], call.in, call.attrs);
  return f;
}
LstmForm lstm_gradient_form(const PrepareCall& call) {
  LstmForm f = gradient_places_of(call.attrs);
  f.sequence =
      recurrent_form("lstm_gradient", call.in[0].shape, call.in[2].shape[0], call.in, call.attrs);
  return f;
}
}  // namespace cpu

const Op kLstm{
    .name = "lstm",
    .summary = "long short-term memory over sequences of projected inputs",
    .infer = infer,
    .gradient = gradient,
    .in_place = kInPlace,
    .rows = rows,
    .variants = kVariants,
    .cost = cost,
    .samples = samples,
};

const Op kLstmGradient{
    .name = "lstm_gradient",
    .summary = "gradients of lstm's projected inputs and first state, step by step backwards",
    .infer = gradient_infer,
    .in_place = kGradientInPlace,
    .rows = gradient_rows,
    .variants = kGradientVariants,
    .cost = cost,
    .samples = gradient_samples,
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
