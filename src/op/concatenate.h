// concatenate: tensors one behind the other along an axis; slice: a part of a tensor along one, and
// its gradient, which puts that part back among zeros.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kConcatenate;
extern const Op kSlice;
extern const Op kSliceGradient;

// At least one tensor; equal dtypes, and equal shapes but for the axis, which may count from the
// end.
Tensor concatenate(const Tensors& parts, int64_t axis = -1);

// Elements [begin, begin + size) along the axis.
Tensor slice(const Tensor& x, int64_t axis, Dim begin, Dim size);
// Zeros with `size` elements along the axis, dy from `begin` on.
Tensor slice_gradient(const Tensor& dy, int64_t axis, Dim begin, Dim size);

namespace cpu {
std::unique_ptr<Kernel> concatenate_reference(const PrepareCall&);
std::unique_ptr<Kernel> slice_reference(const PrepareCall&);
std::unique_ptr<Kernel> slice_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
