#include "op/recurrent_weight_gradient.h"

#include "graph/graph.h"
#include "op/infer.h"

namespace pl {
namespace recurrent_weight_gradient_op {
namespace {

// Inputs: h (B, T, H), dz (B, T, N), [h0 (B, H)], [dropped (B, columns / H, H)]. Output (H,
// columns).
Metas weight_infer(const Metas& in, const Attrs& attrs) {
  constexpr const char* op = "recurrent_weight_gradient";
  OptionalOperands more(attrs, 2);
  const int h0 = more.take("h0"), dropped = more.take("dropped");
  expect_operands(op, static_cast<size_t>(more.count()), static_cast<size_t>(more.count()), in,
                  attrs);
  const Shape &h = in[0].shape, &dz = in[1].shape;
  if (!is_real(in[0].dtype) || in[1].dtype != in[0].dtype || h.rank() != 3 || dz.rank() != 3 ||
      dz[0] != h[0] || dz[1] != h[1])
    reject(op, "h (B, T, H) and dz (B, T, N) of one floating dtype", in, attrs);
  checked(op, in);
  const Dim columns = attrs.integer("columns", 0);
  if (columns < 0 || columns > dz[2]) reject(op, "columns of dz", in, attrs);
  if (h0 >= 0 && in[index(h0)] != Meta{in[0].dtype, Shape{h[0], h[2]}})
    reject(op, "h0 (B, H)", in, attrs);
  const Dim counted = columns == 0 ? dz[2] : columns;
  if (dropped >= 0 && (h[2] == 0 || counted % h[2] != 0 ||
                       in[index(dropped)] != Meta{in[0].dtype, Shape{h[0], counted / h[2], h[2]}}))
    reject(op, "factors (B, columns / H, H)", in, attrs);
  const Dtype dtype = result_dtype(op, in[0].dtype, in, attrs);
  return checked(op, {{dtype, Shape{h[2], counted}}});
}

Rows weight_rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  OptionalOperands more(attrs, 2);
  more.take("h0"), more.take("dropped");
  return in == (RowMask{1} << more.count()) - 1 ? Rows::sums : Rows::mixes;
}

Cost weight_cost(const Metas& in, const Metas& out, const Attrs&) {
  Cost result = pointwise_cost(in, out, 0);
  const Shape& h = in[0].shape;
  result.flops = 2 * static_cast<double>(h[0] * h[1]) * static_cast<double>(out[0].elements());
  return result;
}

std::vector<Sample> weight_samples() {
  const Attrs backwards{{"backwards", int64_t{1}}};
  Attrs flip = backwards, state = backwards, dropped{{"dropped", int64_t{1}}},
        columns{{"columns", int64_t{6}}};
  flip.set("flip", int64_t{1});
  state.set("h0", int64_t{1});
  std::vector<Sample> result = {
      {"plain", {sample_real({2, 5, 3}), sample_real({2, 5, 12})}, {}},
      {"backwards", {sample_real({2, 5, 3}), sample_real({2, 5, 12})}, backwards},
      {"flip", {sample_real({2, 5, 3}), sample_real({2, 5, 12})}, flip},
      {"state", {sample_real({3, 4, 3}), sample_real({3, 4, 12}), sample_real({3, 3})}, state},
      {"columns", {sample_real({2, 5, 3}), sample_real({2, 5, 9})}, columns},
      {"dropped",
       {sample_real({2, 5, 3}),
        sample_real({2, 5, 12}),
        {{Dtype::float32, {2, 4, 3}}, Fill::positive}},
       dropped},
      {"one_step", {sample_real({3, 1, 4}), sample_real({3, 1, 8})}, {}},
      {"no_rows", {sample_real({0, 5, 3}), sample_real({0, 5, 12})}, {}},
      {"pieces", {sample_real({3, 350, 3}), sample_real({3, 350, 4})}, backwards, 2e-5},
      {"lstm_b64", {sample_real({64, 128, 256}), sample_real({64, 128, 1024})}, {}, 1e-5, true}};
  return result;
}

constexpr Variant kWeightVariants[] = {
    {"onednn", DeviceKind::cpu, cpu::recurrent_weight_gradient_onednn},
    {"reference", DeviceKind::cpu, cpu::recurrent_weight_gradient_reference},
};

}  // namespace
}  // namespace recurrent_weight_gradient_op

const Op kRecurrentWeightGradient{
    .name = "recurrent_weight_gradient",
    .summary = "sum over samples and steps of the previous state times a step's gradient",
    .infer = recurrent_weight_gradient_op::weight_infer,
    .rows = recurrent_weight_gradient_op::weight_rows,
    .variants = recurrent_weight_gradient_op::kWeightVariants,
    .cost = recurrent_weight_gradient_op::weight_cost,
    .samples = recurrent_weight_gradient_op::weight_samples,
};

RecurrentWeightOptions recurrent_weight_options(const GradientCall& call,
                                                const RecurrentForm& places) {
  auto operand = [&](int at) { return at < 0 ? Tensor() : call.in[index(at)]; };
  return {.backwards = call.attrs.integer("backwards", 0) != 0,
          .flip = call.attrs.integer("flip", 0) != 0,
          .h0 = operand(places.h0),
          .dropped = operand(places.dropped),
          .dtype = call.dtype_of(1)};
}

Tensor recurrent_weight_gradient(const Tensor& h, const Tensor& dz,
                                 const RecurrentWeightOptions& options) {
  Attrs attrs = recurrent_attrs({.backwards = options.backwards, .flip = options.flip});
  if (options.columns > 0) attrs.set("columns", options.columns);
  if (options.dtype && *options.dtype != h.dtype())
    attrs.set("dtype", std::string(name_of(*options.dtype)));
  Tensors in{h, dz};
  add_operand("h0", options.h0, in, attrs);
  add_operand("dropped", options.dropped, in, attrs);
  return apply(kRecurrentWeightGradient, std::move(in), std::move(attrs))[0];
}

}  // namespace pl
