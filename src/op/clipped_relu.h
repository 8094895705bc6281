// clipped_relu: min(max(x, 0), most); relu6 has most = 6. The gradient reads the output: the input
// need not be kept.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kClippedRelu;
extern const Op kClippedReluGradient;

Tensor clipped_relu(const Tensor& x, double most);  // most > 0; NaN stays NaN
Tensor clipped_relu_gradient(const Tensor& y, const Tensor& dy, double most);

namespace cpu {
std::unique_ptr<Kernel> clipped_relu_simd(const PrepareCall&);
std::unique_ptr<Kernel> clipped_relu_reference(const PrepareCall&);
std::unique_ptr<Kernel> clipped_relu_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> clipped_relu_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
