// Losses over numbers and distributions, as Keras computes them, and what all formulas share.
#include <cmath>

#include "model/loss_formulas.h"
#include "op/functions.h"

namespace pl::formula {

Tensor widened(const Tensor& x) { return cast(x, wide(x.dtype())); }

Tensor targets_like(const Tensor& y_true, const Tensor& y_pred) {
  const Tensor y = cast(y_true, y_pred.dtype());
  const int difference = y.shape().rank() - y_pred.shape().rank();
  const bool one = (difference == 1 && y.shape().back() == 1) ||
                   (difference == -1 && y_pred.shape().back() == 1);
  return one ? reshape(y, y_pred.shape().dims()) : y;
}

Tensor constant(double value, const Tensor& like) { return fill(Shape{}, value, like.dtype()); }

Tensor clip(const Tensor& x, double low, double high) {
  return minimum(maximum(x, constant(low, x)), constant(high, x));
}

Tensor power(const Tensor& x, double exponent) {
  if (exponent == 1) return x;
  if (exponent == 2) return square(x);
  constexpr double kLeast = 1e-30;  // log and its slope stay finite
  return exp(scale(log(maximum(x, constant(kLeast, x))), exponent));
}

Tensor mean_of_last(const Tensor& x) { return x.shape().rank() < 2 ? x : reduce_mean(x, {-1}); }

Tensor normalized(const Tensor& x, int64_t axis) {
  const Tensor squares = reduce_sum(square(x), {axis}, true);
  return divide(x, sqrt(maximum(squares, constant(kEpsilon * kEpsilon, x))));
}

namespace {

struct Pair {
  Tensor y, p;
};
Pair operands(const Call& call) {
  const Tensor p = widened(call.y_pred);
  return {targets_like(call.y_true, p), p};
}

}  // namespace

LossResult mean_squared_error(const Call& call) {
  const auto [y, p] = operands(call);
  return {mean_of_last(square(subtract(p, y))), {}, {}};
}

LossResult mean_absolute_error(const Call& call) {
  const auto [y, p] = operands(call);
  return {mean_of_last(abs(subtract(p, y))), {}, {}};
}

LossResult mean_absolute_percentage_error(const Call& call) {
  const auto [y, p] = operands(call);
  const Tensor share = abs(divide(subtract(y, p), maximum(abs(y), constant(kEpsilon, y))));
  return {scale(mean_of_last(share), 100), {}, {}};
}

LossResult mean_squared_logarithmic_error(const Call& call) {
  const auto [y, p] = operands(call);
  auto log_1 = [](const Tensor& x) { return log(scale(maximum(x, constant(kEpsilon, x)), 1, 1)); };
  return {mean_of_last(square(subtract(log_1(p), log_1(y)))), {}, {}};
}

LossResult cosine_similarity(const Call& call) {
  const auto [y, p] = operands(call);
  const int64_t axis = call.loss.options.integer("axis", -1);
  const Tensor product = multiply(normalized(y, axis), normalized(p, axis));
  return {negative(reduce_sum(product, {axis})), {}, {}};
}

// With c = min(|e|, delta): c * c / 2 + delta * (|e| - c).
LossResult huber(const Call& call) {
  const auto [y, p] = operands(call);
  const double delta = call.option("delta", 1);
  const Tensor size = abs(subtract(p, y)), c = minimum(size, constant(delta, size));
  return {mean_of_last(add(scale(square(c), 0.5), scale(subtract(size, c), delta))), {}, {}};
}

// log(cosh(e)) = |e| + log(1 + e^-2|e|) - log(2)
LossResult log_cosh(const Call& call) {
  const auto [y, p] = operands(call);
  const Tensor e = subtract(p, y);
  return {mean_of_last(scale(add(e, softplus(scale(e, -2))), 1, -std::log(2.0))), {}, {}};
}

LossResult kl_divergence(const Call& call) {
  auto [y, p] = operands(call);
  y = clip(y, kEpsilon, 1);
  p = clip(p, kEpsilon, 1);
  return {reduce_sum(multiply(y, log(divide(y, p))), {-1}), {}, {}};
}

LossResult poisson(const Call& call) {
  const auto [y, p] = operands(call);
  return {mean_of_last(subtract(p, multiply(y, log(scale(p, 1, kEpsilon))))), {}, {}};
}

}  // namespace pl::formula
