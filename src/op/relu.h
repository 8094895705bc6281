// relu and its gradient. The gradient reads relu's *output*: the input need not be kept.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kRelu;
extern const Op kReluGradient;

Tensor relu(const Tensor& x);                             // -0.0 becomes 0.0, NaN stays
Tensor relu_gradient(const Tensor& y, const Tensor& dy);  // dy where y > 0, else 0

namespace cpu {
std::unique_ptr<Kernel> relu_simd(const PrepareCall&);
std::unique_ptr<Kernel> relu_reference(const PrepareCall&);
std::unique_ptr<Kernel> relu_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> relu_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
