// Hinge losses, overlap losses and the circle loss, as Keras computes them.
#include "base/error.h"
#include "model/loss_formulas.h"
#include "op/functions.h"

namespace pl::formula {
namespace {

// 0 and 1 become -1 and 1, when the whole batch has no other target.
Tensor signed_targets(const Call& call, const Tensor& p) {
  const Tensor y = targets_like(call.y_true, p);
  Tensor binary = call.binary;
  if (!binary.defined()) {
    const Tensor known = add(equal_mask(y, constant(0, y)), equal_mask(y, constant(1, y)));
    binary = equal_mask(reduce_sum(scale(known, -1, 1)), constant(0, y));
  }
  return add(y, multiply(scale(y, 1, -1), cast(binary, y.dtype())));
}

Tensor margins(const Call& call) {
  const Tensor p = widened(call.y_pred);
  return maximum(scale(multiply(signed_targets(call, p), p), -1, 1), constant(0, p));
}

std::vector<int64_t> axes_of(const Call& call) {
  if (!call.loss.options.has("axis")) return {};
  return call.loss.options.list("axis");
}

}  // namespace

LossResult hinge(const Call& call) { return {mean_of_last(margins(call)), {}, {}}; }
LossResult squared_hinge(const Call& call) { return {mean_of_last(square(margins(call))), {}, {}}; }

LossResult categorical_hinge(const Call& call) {
  const Tensor p = widened(call.y_pred), y = targets_like(call.y_true, p);
  const Tensor right = reduce_sum(multiply(y, p), {-1});
  const Tensor wrong = reduce_max(multiply(scale(y, -1, 1), p), {-1});
  return {maximum(scale(subtract(wrong, right), 1, 1), constant(0, p)), {}, {}};
}

// 1 - 2 |y p| / (|y| + |p|), sums over `axis`, by default over everything.
LossResult dice(const Call& call) {
  const Tensor p = widened(call.y_pred), y = targets_like(call.y_true, p);
  const std::vector<int64_t> axes = axes_of(call);
  const Tensor both = reduce_sum(multiply(y, p), axes);
  const Tensor sizes = scale(add(reduce_sum(y, axes), reduce_sum(p, axes)), 1, kEpsilon);
  return {scale(divide(both, sizes), -2, 1), {}, {}};
}

LossResult tversky(const Call& call) {
  const Tensor p = widened(call.y_pred), y = targets_like(call.y_true, p);
  const std::vector<int64_t> axes = axes_of(call);
  const Tensor both = reduce_sum(multiply(y, p), axes);
  const Tensor missed = reduce_sum(multiply(scale(p, -1, 1), y), axes);
  const Tensor added = reduce_sum(multiply(p, scale(y, -1, 1)), axes);
  const Tensor all = add(
      both, add(scale(missed, call.option("alpha", 0.5)), scale(added, call.option("beta", 0.5))));
  return {scale(divide(both, scale(all, 1, kEpsilon)), -1, 1), {}, {}};
}

namespace {

// log(sum of e^x over the columns where the mask is 1); far below zero where there are none.
Tensor masked_log_sum(const Tensor& x, const Tensor& mask) {
  constexpr double kNothing = -1e30;
  const Tensor kept = add(multiply(x, mask), scale(mask, -kNothing, kNothing));
  const Tensor most = reduce_max(kept, {1}, true);
  const Tensor sum = reduce_sum(exp(subtract(kept, most)), {1}, true);
  return reshape(add(log(sum), most), {x.shape()[0]});
}

}  // namespace

// y_pred (B, D): embeddings of length 1; y_true (B,): their classes.
LossResult circle(const Call& call) {
  const Tensor p = widened(call.y_pred);
  if (p.shape().rank() != 2)
    throw UserError("[compile] circle: expected embeddings (batch, features), received " +
                    p.meta().text());
  const Dim rows = p.shape()[0];
  const double margin = call.option("margin", 0.4), gamma = call.option("gamma", 80);
  const Tensor labels = cast(call.y_true, Dtype::int32);
  const Tensor same =
      cast(equal_mask(reshape(labels, {rows, 1}), reshape(labels, {1, rows})), p.dtype());
  const Tensor negative_pairs = scale(same, -1, 1);
  Tensor positive_pairs = same;
  if (call.loss.options.integer("remove_diagonal", 1)) {
    const Tensor lower = causal_mask_gradient(fill(Shape{rows, rows}, 1, p.dtype()));
    positive_pairs = multiply(same, scale(multiply(lower, transpose(lower)), -1, 1));
  }
  const Tensor zero = constant(0, p);
  const Tensor distance = maximum(scale(matmul(p, transpose(p)), -1, 1), zero);
  const Tensor near = maximum(multiply(scale(distance, 1, margin), positive_pairs), zero);
  const Tensor far = maximum(multiply(scale(distance, -1, 1 + margin), negative_pairs), zero);
  const Tensor pulled = scale(multiply(near, scale(distance, -1, margin)), -gamma);
  const Tensor pushed = scale(multiply(far, scale(distance, -1, 1 - margin)), gamma);
  const Tensor values =
      softplus(add(masked_log_sum(pulled, positive_pairs), masked_log_sum(pushed, negative_pairs)));
  // Through integers: a mask has no slope.
  const Tensor counts = cast(greater_mask(values, zero), Dtype::int32);
  return {values, {}, cast(counts, values.dtype())};
}

}  // namespace pl::formula
