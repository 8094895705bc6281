// argsort: which elements of the last axis come first, second, ... in order. Equal ones stay in
// their order, NaN is the largest.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kArgsort;

// x (..., n) of any dtype. Result int32 (..., count): the places of the first `count`.
Tensor argsort(const Tensor& x, Dim count, bool descending = false);

namespace cpu {
std::unique_ptr<Kernel> argsort_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
