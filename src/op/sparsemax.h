// sparsemax over the last axis: the nearest point of the simplex, max(x - t, 0) with the t that
// makes the sum 1. Its gradient reads the *output*: dy less its mean over the elements that are not
// 0.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kSparsemax;

Tensor sparsemax(const Tensor& x);  // (..., C)

namespace cpu {
std::unique_ptr<Kernel> sparsemax_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
