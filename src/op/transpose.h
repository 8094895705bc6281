// transpose: dimension i of the result is dimension perm[i] of the operand.
#pragma once

#include <vector>

#include "op/op.h"

namespace pl {

extern const Op kTranspose;

// Without a perm the dimensions are reversed; negative ones count from the end. x itself when
// nothing moves.
Tensor transpose(const Tensor& x, std::vector<int64_t> perm = {});

namespace cpu {
std::unique_ptr<Kernel> transpose_blocked(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
