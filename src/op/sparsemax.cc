#include "op/sparsemax.h"

#include "op/fill.h"
#include "op/infer.h"
#include "op/pointwise.h"
#include "op/reduce.h"

namespace pl {
namespace sparsemax_op {
namespace {

Metas infer(const Metas& in, const Attrs& attrs) {
  expect_one_real("sparsemax", in, attrs);
  if (in[0].shape.rank() < 1 || in[0].shape.back() < 1)
    reject("sparsemax", "(..., C) with at least one class", in, attrs);
  return checked("sparsemax", {in[0]});
}

Tensors gradient(const GradientCall& call) {
  const Tensor &y = call.out[0], &dy = call.dout[0];
  const Tensor support = greater_mask(y, fill({}, 0, y.dtype()));
  const Tensor mean =
      divide(reduce_sum(multiply(dy, support), {-1}, true), reduce_sum(support, {-1}, true));
  return {multiply(support, subtract(dy, mean))};
}

// Attribute `vector`: 1 for a single dimension, whose samples then are the classes.
Rows rows(const Attrs& attrs, RowMask in) {
  if (!in) return Rows::none;
  return attrs.integer("vector", 0) ? Rows::mixes : Rows::maps;
}

Cost cost(const Metas& in, const Metas& out, const Attrs&) { return pointwise_cost(in, out, 12); }

std::vector<Sample> samples() {
  auto sample = [](const char* name, Shape shape, bool benchmark = false) {
    Sample result{name, {{{Dtype::float32, shape}}}, {}, 1e-6, benchmark};
    if (shape.rank() == 1) result.attrs.set("vector", int64_t{1});
    return result;
  };
  return {sample("vector", {7}),     sample("odd", {3, 37}),  sample("one", {4, 1}),
          sample("deep", {2, 3, 5}), sample("empty", {0, 4}), sample("large", {256, 1000}, true)};
}

constexpr Variant kVariants[] = {{"reference", DeviceKind::cpu, cpu::sparsemax_reference}};
constexpr InOut kInPlace[] = {{0, 0}};

}  // namespace
}  // namespace sparsemax_op

const Op kSparsemax{
    .name = "sparsemax",
    .summary = "the point of the simplex nearest to the last axis",
    .infer = sparsemax_op::infer,
    .gradient = sparsemax_op::gradient,
    .in_place = sparsemax_op::kInPlace,
    .rows = sparsemax_op::rows,
    .cut = Cut::rows,
    .variants = sparsemax_op::kVariants,
    .cost = sparsemax_op::cost,
    .samples = sparsemax_op::samples,
};

Tensor sparsemax(const Tensor& x) {
  Attrs attrs;
  if (x.defined() && x.shape().rank() == 1) attrs.set("vector", int64_t{1});
  return apply(kSparsemax, {x}, std::move(attrs))[0];
}

}  // namespace pl
