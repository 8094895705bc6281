#include "op/gru.h"

#include <algorithm>

#include "graph/graph.h"
#include "op/concatenate.h"
#include "op/infer.h"
#include "op/matmul.h"
#include "op/recurrent_weight_gradient.h"
#include "op/reduce.h"

namespace pl {
namespace {

using cpu::GruForm;

// Operands behind z and u, or behind gates, inner, h and u.
struct Places : GruForm {
  int count;
};

Places places_of(const Attrs& attrs) {
  OptionalOperands more(attrs, 2);
  Places p{};
  p.reset_after = attrs.integer("reset_before", 0) == 0;
  p.bias = more.take("bias");
  p.h0 = more.take("state");
  p.mask = more.take("mask");
  p.dropped = more.take("dropped");
  p.count = more.count();
  return p;
}

Places gradient_places_of(const Attrs& attrs) {
  OptionalOperands more(attrs, 4);
  Places p{};
  p.reset_after = attrs.integer("reset_before", 0) == 0;
  p.bias = -1;
  p.h0 = more.take("state");
  p.mask = more.take("mask");
  p.dropped = more.take("dropped");
  p.dh = more.take("dh");
  p.dlast_h = more.take("dlast_h");
  p.dgates = more.take("dgates");
  p.dinner = more.take("dinner");
  p.count = more.count();
  return p;
}

// Inputs: z (B, T, 3 H), u (H, 3 H), [bias (3 H)], [h0 (B, H)], [mask (B, T)], [dropped (B, 3, H)].
// Outputs: h (B, T, H); gates (B, T, 3 H) behind their activations (zeros in steps left out); inner
// (B, T, H), what the reset gate multiplies (reset_after) or gives (else), zeros likewise; last_h
// (B, H).
Metas infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "gru";
  const Places p = places_of(attrs);
  expect_operands(op, index(p.count), index(p.count), in, attrs);
  const RecurrentSizes sizes = recurrent_sizes(op, 3, in[0], in[1], in, attrs);
  recurrent_form(op, in[0].shape, sizes.units, in, attrs);
  if (p.bias >= 0 && (!p.reset_after || in[index(p.bias)].shape != Shape{3 * sizes.units} ||
                      in[index(p.bias)].dtype != wide(sizes.dtype)))
    reject(op, "a bias (3 H), float32 for 16-bit operands, with reset_after", in, attrs);
  expect_recurrent_meta(op, "h0", p.h0, sizes.state(), in, attrs);
  expect_recurrent_meta(op, "a mask", p.mask, sizes.mask(), in, attrs);
  expect_recurrent_meta(op, "factors", p.dropped, sizes.dropped(), in, attrs);
  return checked(op, {sizes.sequence(), sizes.sequence(3), sizes.sequence(), sizes.state()});
}

// Inputs: gates (B, T, 3 H), inner and h (B, T, H), u, [h0], [mask], [dropped], and the gradients
// of outputs that have one. Outputs: dz (B, T, 3 H); dn (B, T, H), the gradient of the candidate's
// product with the state; dh0 (B, H).
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "gru_gradient";
  const Places p = gradient_places_of(attrs);
  expect_operands(op, index(p.count), index(p.count), in, attrs);
  const RecurrentSizes sizes = recurrent_sizes(op, 3, in[0], in[3], in, attrs);
  recurrent_form(op, in[0].shape, sizes.units, in, attrs);
  auto expect = [&](const char* what, int at, const Meta& meta) {
    expect_recurrent_meta(op, what, at, meta, in, attrs);
  };
  expect("inner", 1, sizes.sequence());
  expect("h", 2, sizes.sequence());
  expect("h0", p.h0, sizes.state());
  expect("a mask", p.mask, sizes.mask());
  expect("factors", p.dropped, sizes.dropped());
  expect("dh", p.dh, sizes.sequence());
  expect("dlast_h", p.dlast_h, sizes.state());
  expect("dgates", p.dgates, sizes.sequence(3));
  expect("dinner", p.dinner, sizes.sequence());
  return checked(op, {sizes.sequence(3), sizes.sequence(), sizes.state()});
}

// dU in two parts: of the gates, and of the candidate.
Tensor weight_gradient(const GradientCall& call, const Places& p, const Tensor& dz,
                       const Tensor& dn) {
  const Tensor &h = call.out[0], &inner = call.out[2];
  const Dim units = h.shape()[2];
  RecurrentWeightOptions options{.backwards = call.attrs.integer("backwards", 0) != 0,
                                 .flip = call.attrs.integer("flip", 0) != 0,
                                 .columns = 2 * units,
                                 .dtype = call.dtype_of(1)};
  if (p.h0 >= 0) options.h0 = call.in[index(p.h0)];
  const Tensor dropped = p.dropped < 0 ? Tensor() : call.in[index(p.dropped)];
  if (dropped.defined()) options.dropped = slice(dropped, 1, 0, 2);
  const Tensor of_gates = recurrent_weight_gradient(h, dz, options);
  if (!p.reset_after)
    return concatenate(
        {of_gates, matmul(inner, dn, {.transpose_a = true, .dtype = call.dtype_of(1)})}, 1);
  options.columns = 0;
  if (dropped.defined()) options.dropped = slice(dropped, 1, 2, 1);
  return concatenate({of_gates, recurrent_weight_gradient(h, dn, options)}, 1);
}

Tensors gradient(const GradientCall& call) {
  const Places p = places_of(call.attrs);
  auto operand = [&](int at) { return at < 0 ? Tensor() : call.in[index(at)]; };
  Attrs attrs = recurrent_shared_attrs(call.attrs);
  Tensors in{call.out[1], call.out[2], call.out[0], call.in[1]};
  add_operand("state", operand(p.h0), in, attrs);
  add_operand("mask", operand(p.mask), in, attrs);
  add_operand("dropped", operand(p.dropped), in, attrs);
  add_operand("dh", call.dout[0], in, attrs);
  add_operand("dlast_h", call.dout[3], in, attrs);
  add_operand("dgates", call.dout[1], in, attrs);
  add_operand("dinner", call.dout[2], in, attrs);
  const Tensors back = apply(kGruGradient, std::move(in), std::move(attrs));
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

Rows rows(const Attrs& attrs, RowMask in) {
  const Places p = places_of(attrs);
  const RowMask bias = p.bias < 0 ? 0 : RowMask{1} << p.bias;
  return recurrent_rows(RowMask{2} | bias, p.count, in);
}
Rows gradient_rows(const Attrs& attrs, RowMask in) {
  return recurrent_rows(RowMask{8}, gradient_places_of(attrs).count, in);
}
// The bias is added before anything is rounded.
RowMask wide_operands(const Attrs& attrs, size_t) {
  const int bias = places_of(attrs).bias;
  return bias < 0 ? 0 : RowMask{1} << bias;
}

// A product with u for each step, and some 80 operations for each unit.
Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  const double units = static_cast<double>(in[0].shape.back()) / 3;
  const double steps = static_cast<double>(in[0].elements()) / std::max(1.0, 3 * units);
  result.flops = steps * units * (6 * units + 80);
  return result;
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

std::vector<Sample> samples() {
  std::vector<Sample> result;
  for (const RecurrentCase& c : cases()) {
    Sample sample = recurrent_sample(c);
    sample.in = {sample_real({c.batch, c.steps, 3 * c.units}), sample_real({c.units, 3 * c.units})};
    if (sample.attrs.has("bias")) sample.in.push_back(sample_real({3 * c.units}));
    add_recurrent_extras(c, 3, 1, sample);
    result.push_back(std::move(sample));
  }
  return result;
}

std::vector<Sample> gradient_samples() {
  std::vector<Sample> result;
  for (const RecurrentCase& c : cases()) {
    if (std::string(c.name) == "bias") continue;
    Sample sample = recurrent_sample(c);
    if (sample.attrs.has("bias")) sample.attrs.set("bias", int64_t{0});
    const Shape sequence{c.batch, c.steps, c.units}, state{c.batch, c.units};
    sample.in = {sample_real({c.batch, c.steps, 3 * c.units}, Fill::probabilities),
                 sample_real(sequence), sample_real(sequence), sample_real({c.units, 3 * c.units})};
    add_recurrent_extras(c, 3, 1, sample);
    auto add = [&](const char* name, const Shape& shape) {
      sample.attrs.set(name, int64_t{1});
      sample.in.push_back(sample_real(shape));
    };
    add("dh", sequence);
    if (c.units != 5) add("dlast_h", state);
    if (c.units == 7) add("dgates", {c.batch, c.steps, 3 * c.units});
    if (c.units == 7) add("dinner", sequence);
    result.push_back(std::move(sample));
  }
  return result;
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

namespace cpu {
GruForm gru_form(const PrepareCall& call) {
  GruForm f = places_of(call.attrs);
  f.sequence = recurrent_form("gru", call.in[0].shape, call.in[1].shape[0], call.in, call.attrs);
  return f;
}
GruForm gru_gradient_form(const PrepareCall& call) {
  GruForm f = gradient_places_of(call.attrs);
  f.sequence =
      recurrent_form("gru_gradient", call.in[0].shape, call.in[3].shape[0], call.in, call.attrs);
  return f;
}
}  // namespace cpu

const Op kGru{
    .name = "gru",
    .summary = "gated recurrent units over sequences of projected inputs",
    .infer = infer,
    .gradient = gradient,
    .in_place = kInPlace,
    .rows = rows,
    .wide_operands = wide_operands,
    .variants = kVariants,
    .cost = cost,
    .samples = samples,
};

const Op kGruGradient{
    .name = "gru_gradient",
    .summary = "gradients of gru's projected inputs and first state, step by step backwards",
    .infer = gradient_infer,
    .in_place = kGradientInPlace,
    .rows = gradient_rows,
    .variants = kGradientVariants,
    .cost = cost,
    .samples = gradient_samples,
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
