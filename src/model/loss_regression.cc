// Losses over numbers, as Keras computes them.
#include "model/loss_formulas.h"
#include "op/functions.h"

namespace pl::formula {

Tensor widened(const Tensor& x) { return cast(x, wide(x.dtype())); }
Tensor targets_like(const Tensor& y_true, const Tensor& y_pred) {
  return cast(y_true, y_pred.dtype());
}

LossResult mean_squared_error(const Call& call) {
  const Tensor p = widened(call.y_pred);
  const Tensor error = square(subtract(p, targets_like(call.y_true, p)));
  if (error.shape().rank() < 2) return {error, {}, {}};
  return {reduce_mean(error, {-1}), {}, {}};
}

}  // namespace pl::formula
