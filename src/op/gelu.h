// gelu: x times the probability that a standard normal number lies below x, and its gradient.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kGelu;
extern const Op kGeluGradient;

// approximate: x * sigmoid(2 u) with u = sqrt(2 / pi) * (x + 0.044715 x^3), the form with tanh.
Tensor gelu(const Tensor& x, bool approximate = false);
Tensor gelu_gradient(const Tensor& x, const Tensor& dy, bool approximate = false);

namespace cpu {
// Pieces of the kernels, for others that hold an activation in the cache: `tile` is what gelu_simd
// runs, `row` what the reference does. The result may lie on an operand.
void gelu_tile(const float* x, float* y, Dim count, bool approximate);
void gelu_gradient_tile(const float* x, const float* dy, float* dx, Dim count, bool approximate);
template <class T>
void gelu_row(const T* x, T* y, Dim count, bool approximate);
template <class T>
void gelu_gradient_row(const T* x, const T* dy, T* dx, Dim count, bool approximate);

std::unique_ptr<Kernel> gelu_simd(const PrepareCall&);
std::unique_ptr<Kernel> gelu_reference(const PrepareCall&);
std::unique_ptr<Kernel> gelu_gradient_simd(const PrepareCall&);
std::unique_ptr<Kernel> gelu_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
