// one_hot: class numbers to rows with a 1 at that class; a number outside gives a row of zeros.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kOneHot;

// labels int32 of any shape S. Result (S..., depth).
Tensor one_hot(const Tensor& labels, Dim depth, Dtype dtype = Dtype::float32);

namespace cpu {
std::unique_ptr<Kernel> one_hot_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
