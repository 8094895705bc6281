#include "op/simple_rnn.h"

#include "graph/graph.h"
#include "op/infer.h"
#include "op/recurrent_weight_gradient.h"

namespace pl {
namespace {

using cpu::SimpleRnnForm;

// Operands behind z and u, or behind h and u.
struct Places : SimpleRnnForm {
  int count;
};

Places places_of(const Attrs& attrs) {
  OptionalOperands more(attrs, 2);
  Places p{};
  p.h0 = more.take("state");
  p.mask = more.take("mask");
  p.dropped = more.take("dropped");
  p.dh = more.take("dh");
  p.dlast_h = more.take("dlast_h");
  p.count = more.count();
  return p;
}

// Inputs: z (B, T, H) and u (H, H), or of the gradient h and u; [h0 (B, H)], [mask (B, T)],
// [dropped (B, 1, H)]; of the gradient [dh (B, T, H)], [dlast_h (B, H)]. Outputs (B, T, H), (B, H).
Metas metas_of(const char* op, const Metas& in, const Attrs& attrs) {
  const Places p = places_of(attrs);
  expect_operands(op, index(p.count), index(p.count), in, attrs);
  const RecurrentSizes sizes = recurrent_sizes(op, 1, in[0], in[1], in, attrs);
  recurrent_form(op, in[0].shape, sizes.units, in, attrs);
  auto expect = [&](const char* what, int at, const Meta& meta) {
    expect_recurrent_meta(op, what, at, meta, in, attrs);
  };
  expect("h0", p.h0, sizes.state());
  expect("a mask", p.mask, sizes.mask());
  expect("factors", p.dropped, sizes.dropped());
  expect("dh", p.dh, sizes.sequence());
  expect("dlast_h", p.dlast_h, sizes.state());
  return checked(op, {sizes.sequence(), sizes.state()});
}
Metas infer(const Metas& in, const Attrs& attrs) { return metas_of("simple_rnn", in, attrs); }
Metas gradient_infer(const Metas& in, const Attrs& attrs) {
  return metas_of("simple_rnn_gradient", in, attrs);
}

Tensors gradient(const GradientCall& call) {
  const Places p = places_of(call.attrs);
  auto operand = [&](int at) { return at < 0 ? Tensor() : call.in[index(at)]; };
  Attrs attrs = recurrent_shared_attrs(call.attrs);
  Tensors in{call.out[0], call.in[1]};
  add_operand("mask", operand(p.mask), in, attrs);
  add_operand("dropped", operand(p.dropped), in, attrs);
  add_operand("dh", call.dout[0], in, attrs);
  add_operand("dlast_h", call.dout[1], in, attrs);
  const Tensors back = apply(kSimpleRnnGradient, std::move(in), std::move(attrs));
  Tensors out(call.in.size());
  if (call.wants(1))
    out[1] = recurrent_weight_gradient(call.out[0], back[0],
                                       {.backwards = call.attrs.integer("backwards", 0) != 0,
                                        .flip = call.attrs.integer("flip", 0) != 0,
                                        .h0 = operand(p.h0),
                                        .dropped = operand(p.dropped),
                                        .dtype = call.dtype_of(1)});
  out[0] = back[0];
  if (p.h0 >= 0) out[index(p.h0)] = back[1];
  return out;
}

Rows rows(const Attrs& attrs, RowMask in) {
  return recurrent_rows(RowMask{2}, places_of(attrs).count, in);
}

// A product with u for each step, and some 20 operations for each unit.
Cost cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  const double units = static_cast<double>(in[1].shape[0]);
  result.flops = static_cast<double>(in[0].elements()) * (2 * units + 20);
  return result;
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
  };
  return list;
}

std::vector<Sample> samples_of(bool backward) {
  std::vector<Sample> result;
  for (const RecurrentCase& c : cases()) {
    Sample sample = recurrent_sample(c);
    const Shape sequence{c.batch, c.steps, c.units}, state{c.batch, c.units};
    // States are below 1, and sums of products with them are to stay small.
    sample.in = {sample_real(sequence, backward ? Fill::probabilities : Fill::normal),
                 sample_real({c.units, c.units})};
    if (backward && sample.attrs.has("state")) sample.attrs.set("state", int64_t{0});
    RecurrentCase extras = c;
    if (backward) std::erase_if(extras.attrs, [](const auto& a) { return a.first == "state"; });
    Sample more = recurrent_sample(extras);
    add_recurrent_extras(extras, 1, 1, more);
    sample.in.insert(sample.in.end(), more.in.begin(), more.in.end());
    if (backward) {
      sample.attrs.set("dh", int64_t{1});
      sample.in.push_back(sample_real(sequence));
      sample.attrs.set("dlast_h", int64_t{1});
      sample.in.push_back(sample_real(state));
    }
    result.push_back(std::move(sample));
  }
  return result;
}
std::vector<Sample> samples() { return samples_of(false); }
std::vector<Sample> gradient_samples() { return samples_of(true); }

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::simple_rnn_reference}};
constexpr Variant kGradientVariants[] = {
    {"reference", DeviceKind::cpu, cpu::simple_rnn_gradient_reference}};

}  // namespace

namespace cpu {
SimpleRnnForm simple_rnn_form(const PrepareCall& call) {
  SimpleRnnForm f = places_of(call.attrs);
  f.sequence =
      recurrent_form("simple_rnn", call.in[0].shape, call.in[1].shape[0], call.in, call.attrs);
  return f;
}
SimpleRnnForm simple_rnn_gradient_form(const PrepareCall& call) { return simple_rnn_form(call); }
}  // namespace cpu

const Op kSimpleRnn{
    .name = "simple_rnn",
    .summary = "activation(z + h_previous x u) over sequences of projected inputs",
    .infer = infer,
    .gradient = gradient,
    .rows = rows,
    .variants = kVariants,
    .cost = cost,
    .samples = samples,
};

const Op kSimpleRnnGradient{
    .name = "simple_rnn_gradient",
    .summary = "gradients of simple_rnn's projected inputs and first state",
    .infer = gradient_infer,
    .rows = rows,
    .variants = kGradientVariants,
    .cost = cost,
    .samples = gradient_samples,
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
