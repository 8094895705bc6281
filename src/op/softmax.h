// softmax over the last axis, and its gradient, which reads softmax's *output*.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kSoftmax;
extern const Op kSoftmaxGradient;

Tensor softmax(const Tensor& x);                             // (..., C)
Tensor softmax_gradient(const Tensor& y, const Tensor& dy);  // y * (dy - sum(y * dy))

namespace cpu {
std::unique_ptr<Kernel> softmax_simd(const PrepareCall&);
std::unique_ptr<Kernel> softmax_reference(const PrepareCall&);
std::unique_ptr<Kernel> softmax_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> softmax_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
