// leaky_relu: x where it is positive, alpha * x elsewhere. The example of docs/add-an-op.md.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kLeakyRelu;
extern const Op kLeakyReluGradient;

// 0 < alpha < 1. The gradient reads the output, whose sign is the input's.
Tensor leaky_relu(const Tensor& x, double alpha);
Tensor leaky_relu_gradient(const Tensor& y, const Tensor& dy, double alpha);

namespace cpu {
std::unique_ptr<Kernel> leaky_relu_reference(const PrepareCall&);
std::unique_ptr<Kernel> leaky_relu_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
