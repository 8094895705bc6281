#include "op/log_softmax.h"

#include "op/infer.h"
#include "op/pointwise.h"
#include "op/reduce.h"

namespace pl {
namespace log_softmax_op {
namespace {

Metas infer(const Metas& in, const Attrs& attrs) {
  expect_one_real("log_softmax", in, attrs);
  if (in[0].shape.rank() < 1 || in[0].shape.back() < 1)
    reject("log_softmax", "(..., C) with at least one class", in, attrs);
  return checked("log_softmax", {in[0]});
}

Tensors gradient(const GradientCall& call) {
  const Tensor &y = call.out[0], &dy = call.dout[0];
  return {subtract(dy, multiply(exp(y), reduce_sum(dy, {-1}, true)))};
}

// Attribute `vector`: 1 for a single dimension, whose samples then are the classes.
Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  return attrs.integer("vector", 0) ? Rows::mixes : Rows::maps;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 25); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, bool benchmark = false) {
    Sample result{name, {{{Dtype::float32, shape}}}, {}, 1e-6, benchmark};
    if (shape.rank() == 1) result.attrs.set("vector", int64_t{1});
    return result;
  };
  return {sample("vector", {7}),
          sample("odd", {3, 37}),
          sample("one", {4, 1}),
          sample("deep", {2, 3, 5}),
          sample("wide", {3, 700}),
          sample("empty", {0, 4}),
          sample("large", {256, 1000}, true)};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::log_softmax_reference}};
constexpr InOut kInPlace[] = {{0, 0}};

}  // namespace
}  // namespace log_softmax_op

const Op kLogSoftmax{
    .name = "log_softmax",
    .summary = "logarithm of softmax over the last axis",
    .infer = log_softmax_op::infer,
    .gradient = log_softmax_op::gradient,
    .in_place = log_softmax_op::kInPlace,
    .rows = log_softmax_op::rows,
    .cut = Cut::rows,
    .variants = log_softmax_op::kVariants,
    .cost = log_softmax_op::cost,
    .samples = log_softmax_op::samples,
};

Tensor log_softmax(const Tensor& x) {
  Attrs attrs;
  if (x.defined() && x.shape().rank() == 1) attrs.set("vector", int64_t{1});
  return apply(kLogSoftmax, {x}, std::move(attrs))[0];
}

}  // namespace pl
