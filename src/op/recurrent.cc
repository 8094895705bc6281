#include "op/recurrent.h"

#include <utility>

#include "graph/graph.h"
#include "op/infer.h"

namespace pl {
namespace {

constexpr std::pair<const char*, Squash> kSquashes[] = {{"linear", Squash::linear},
                                                        {"tanh", Squash::tanh},
                                                        {"sigmoid", Squash::sigmoid},
                                                        {"relu", Squash::relu},
                                                        {"hard_sigmoid", Squash::hard_sigmoid}};

}  // namespace

std::optional<Squash> squash_from_name(std::string_view name) {
  for (const auto& [known, squash] : kSquashes)
    if (name == known) return squash;
  return std::nullopt;
}

Attrs recurrent_attrs(const RecurrentOptions& options) {
  Attrs attrs;
  if (options.activation != "tanh") attrs.set("activation", options.activation);
  if (options.recurrent_activation != "sigmoid")
    attrs.set("recurrent_activation", options.recurrent_activation);
  if (options.backwards) attrs.set("backwards", int64_t{1});
  if (options.backwards && options.flip) attrs.set("flip", int64_t{1});
  return attrs;
}

RecurrentForm recurrent_form(const char* op, const Shape& sequence, Dim units, const Metas& in,
                             const Attrs& attrs) {
  const auto activation = squash_from_name(attrs.text("activation", "tanh"));
  const auto recurrent = squash_from_name(attrs.text("recurrent_activation", "sigmoid"));
  if (!activation || !recurrent)
    reject(op, std::string("activations among ") + kSquashNames, in, attrs);
  return {.batch = sequence[0],
          .steps = sequence[1],
          .units = units,
          .backwards = attrs.integer("backwards", 0) != 0,
          .flip = attrs.integer("flip", 0) != 0,
          .reset_after = attrs.integer("reset_before", 0) == 0,
          .activation = *activation,
          .recurrent_activation = *recurrent};
}

void add_operand(const char* name, const Tensor& tensor, Tensors& in, Attrs& attrs) {
  if (!tensor.defined()) return;
  in.push_back(tensor);
  attrs.set(name, int64_t{1});
}

int place_operands(const RecurrentKind& kind, const Attrs& attrs, RecurrentForm& form) {
  OptionalOperands more(attrs, kind.always);
  for (const RecurrentOperand& operand : kind.more) form.*operand.place = more.take(operand.attr);
  return more.count();
}

RecurrentSizes check_recurrent(const RecurrentKind& kind, const Metas& in, const Attrs& attrs) {
  RecurrentForm form;
  const size_t count = index(place_operands(kind, attrs, form));
  expect_operands(kind.op, count, count, in, attrs);
  const Dim gates = kind.gates;
  const Meta &sequence = in[0], &u = in[index(kind.u())];
  const Shape &s = sequence.shape, &w = u.shape;
  if (!is_real(sequence.dtype) || s.rank() != 3 || u.dtype != sequence.dtype || w.rank() != 2 ||
      w[0] < 1 || w[0] > s[2] || s[2] != gates * w[0] || w[1] != gates * w[0]) {
    const std::string width = (gates == 1 ? "" : std::to_string(gates) + " ") + "H";
    reject(kind.op,
           "a sequence (B, T, " + width + ") and weights (H, " + width + ") of one floating dtype",
           in, attrs);
  }
  checked(kind.op, in);
  recurrent_form(kind.op, s, w[0], in, attrs);
  const RecurrentSizes sizes{sequence.dtype, s[0], s[1], w[0], gates};
  auto expect = [&](const char* what, int at, const Meta& meta) {
    if (at >= 0 && in[index(at)] != meta)
      reject(kind.op, std::string(what) + " of " + meta.text(), in, attrs);
  };
  for (int i = 1; i < kind.u(); ++i) expect("a sequence", i, sizes.sequence());
  for (const RecurrentOperand& operand : kind.more)
    expect(operand.what, form.*operand.place, operand.meta(sizes));
  return sizes;
}

RecurrentForm recurrent_form(const RecurrentKind& kind, const Metas& in, const Attrs& attrs) {
  RecurrentForm form =
      recurrent_form(kind.op, in[0].shape, in[index(kind.u())].shape[0], in, attrs);
  place_operands(kind, attrs, form);
  return form;
}

Rows recurrent_rows(const RecurrentKind& kind, const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  RecurrentForm form;
  RowMask sampled = (RowMask{1} << place_operands(kind, attrs, form)) - 1;
  sampled &= ~(RowMask{1} << kind.u());
  if (form.bias >= 0) sampled &= ~(RowMask{1} << form.bias);
  return in == sampled ? Rows::maps : Rows::mixes;
}

Cost recurrent_cost(Dim gates, double per_unit, const Metas& in, const Metas& out) {
  Cost result = pointwise_cost(in, out, 0);
  const auto count = static_cast<double>(gates);
  const double units = static_cast<double>(in[0].shape.back()) / count;
  result.flops = static_cast<double>(in[0].elements()) / count * (2 * count * units + per_unit);
  return result;
}

Tensors recurrent_backward(const Op& op, const RecurrentKind& backward,
                           const RecurrentKind& forward, const GradientCall& call, Tensors always) {
  RecurrentForm form;
  place_operands(forward, call.attrs, form);
  Attrs attrs;
  for (const char* name : {"activation", "recurrent_activation"})
    if (call.attrs.has(name)) attrs.set(name, call.attrs.text(name));
  for (const char* name : {"backwards", "flip", "reset_before"})
    if (call.attrs.integer(name, 0)) attrs.set(name, int64_t{1});
  for (const RecurrentOperand& operand : backward.more) {
    const int at = form.*operand.place;
    if (operand.of_output >= 0)
      add_operand(operand.attr, call.dout[index(operand.of_output)], always, attrs);
    else if (at >= 0)
      add_operand(operand.attr, call.in[index(at)], always, attrs);
  }
  return apply(op, std::move(always), std::move(attrs));
}

SampleInput sample_real(Shape shape, Fill fill) {
  return {{Dtype::float32, std::move(shape)}, fill};
}

std::vector<Sample> recurrent_samples(const RecurrentKind& kind,
                                      const std::vector<RecurrentCase>& cases) {
  const bool backward = !kind.more.empty() && kind.more.back().of_output >= 0;
  std::vector<Sample> result;
  for (const RecurrentCase& c : cases) {
    Sample sample{c.name, {}, {}, 1e-5, c.benchmark};
    for (const auto& [name, value] : c.attrs) sample.attrs.set(name, value);
    const RecurrentSizes sizes{Dtype::float32, c.batch, c.steps, c.units, kind.gates};
    // Of a gradient these are gates or states, below 1: numbers like them, or sums grow from step
    // to step.
    sample.in = {{sizes.sequence(kind.gates), backward ? Fill::probabilities : Fill::normal}};
    for (int i = 1; i < kind.u(); ++i) sample.in.push_back({sizes.sequence(), Fill::normal});
    sample.in.push_back(sample_real({c.units, kind.gates * c.units}));
    for (const RecurrentOperand& operand : kind.more) {
      if (!sample.attrs.has(operand.attr)) continue;
      const bool factors = operand.place == &RecurrentForm::dropped;
      sample.in.push_back({operand.meta(sizes), factors ? Fill::one_hot : Fill::normal});
    }
    result.push_back(std::move(sample));
  }
  return result;
}

}  // namespace pl
