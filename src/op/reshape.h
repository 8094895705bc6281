// reshape: the same elements in the same order, seen in another shape. Costs nothing: the result is
// the operand's bytes.
#pragma once

#include <vector>

#include "op/op.h"

namespace pl {

extern const Op kReshape;

// One dimension may be -1: whatever is left. x itself when it has that shape.
Tensor reshape(const Tensor& x, std::vector<Dim> shape);
// x, as a constant to gradients.
Tensor stop_gradient(const Tensor& x);

namespace cpu {
std::unique_ptr<Kernel> reshape_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
