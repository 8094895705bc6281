// accumulate: a running sum that lives outside the step's own bytes, such as the gradients of a
// batch that is worked off in pieces.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kAccumulate;

namespace cpu {
std::unique_ptr<Kernel> accumulate_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
