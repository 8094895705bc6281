// broadcast_to: a tensor repeated along dimensions of 1 and new leading ones, by NumPy's rule.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kBroadcastTo;

// `rows`: dimension 0 of `shape` counts the samples of the batch being traced although x carries
// none, as when the gradient of a sum over samples goes back to each of them. x itself when it has
// `shape`.
Tensor broadcast_to(const Tensor& x, const Shape& shape, bool rows = false);

namespace cpu {
std::unique_ptr<Kernel> broadcast_to_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
