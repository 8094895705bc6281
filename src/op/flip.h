// flip: the elements of some axes in the opposite order.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kFlip;

// Axes may count from the end; each once.
Tensor flip(const Tensor& x, std::vector<int64_t> axes);

namespace cpu {
std::unique_ptr<Kernel> flip_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
