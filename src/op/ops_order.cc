// Functions of ops.h about the order of elements.
#include "base/error.h"
#include "op/argsort.h"
#include "op/flip.h"
#include "op/gather.h"
#include "op/ops_parts.h"

namespace pl::ops {

Tensor flip(const Tensor& x, const Axis& axis) {
  const WordScope word("flip");
  return pl::flip(x, axes_of("flip", axis, rank_of(x)));
}

Tensor argsort(const Tensor& x, int64_t axis) {
  const WordScope word("argsort");
  const int64_t at = axis_of("argsort", axis, rank_of(x));
  if (at != x.shape().rank() - 1) return swapaxes(ops::argsort(swapaxes(x, at, -1)), at, -1);
  return pl::argsort(x, x.shape().back());
}

Tensor sort(const Tensor& x, int64_t axis) {
  const WordScope word("sort");
  const int64_t at = axis_of("sort", axis, rank_of(x));
  return gather_each(x, ops::argsort(x, at), at);
}

TopK top_k(const Tensor& x, int64_t k) {
  const WordScope word("top_k");
  if (rank_of(x) < 1 || k < 0 || k > x.shape().back())
    throw UserError("[top_k] expected a k from 0 to the last dimension of x, received " +
                    std::to_string(k) + " for " + x.meta().text());
  const Tensor indices = pl::argsort(x, k, true);
  return {gather_each(x, indices, x.shape().rank() - 1), indices};
}

}  // namespace pl::ops
