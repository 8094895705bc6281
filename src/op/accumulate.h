// accumulate: a running sum that lives outside the step's own bytes, such as the gradients of a
// batch that is worked off in pieces.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kAccumulate;

// sum + term, the sum's next version.
Tensor accumulate(const Tensor& sum, const Tensor& term);

namespace cpu {
std::unique_ptr<Kernel> accumulate_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
