// Functions of ops.h about the order of elements.
#include "base/error.h"
#include "op/argsort.h"
#include "op/cast.h"
#include "op/flip.h"
#include "op/ops_parts.h"

namespace pl::ops {
namespace {

// As argsort() takes it: floating, integers without loss.
Tensor sortable(const Tensor& x) {
  return is_floating(x.dtype()) ? x : pl::cast(x, Dtype::float64);
}

}  // namespace

Tensor flip(const Tensor& x, const Axis& axis) {
  const WordScope word("flip");
  return pl::flip(x, axes_of("flip", axis, x.shape().rank()));
}

Tensor argsort(const Tensor& x, int64_t axis) {
  const WordScope word("argsort");
  const int64_t at = axis_of("argsort", axis, x.shape().rank());
  if (at != x.shape().rank() - 1) return swapaxes(ops::argsort(swapaxes(x, at, -1)), at, -1);
  return pl::argsort(sortable(x), x.shape().back());
}

Tensor sort(const Tensor& x, int64_t axis) {
  const WordScope word("sort");
  return take_along_axis(x, ops::argsort(x, axis), axis);
}

TopK top_k(const Tensor& x, int64_t k) {
  const WordScope word("top_k");
  if (x.shape().rank() < 1 || k < 1 || k > x.shape().back())
    throw UserError("[top_k] expected a k from 1 to the last dimension of x, received " +
                    std::to_string(k) + " for " + x.meta().text());
  const Tensor indices = pl::argsort(sortable(x), k, true);
  return {take_along_axis(x, indices), indices};
}

}  // namespace pl::ops
