// Products with what follows them, for devices whose libraries do both at once. The planner makes
// them; nobody calls them by hand.
#pragma once

#include "op/matmul.h"

namespace pl {

extern const Op kMatmulAdd;
extern const Op kMatmulGeluGradient;

// matmul(a, b) + c [+ bias (N,)], c like the product.
Tensor matmul_add(const Tensor& a, const Tensor& b, const Tensor& c, MatmulOptions options = {},
                  const Tensor& bias = {});

// gelu_gradient(x, matmul(a, b)), gelu by tanh; x like the product.
Tensor matmul_gelu_gradient(const Tensor& a, const Tensor& b, const Tensor& x,
                            MatmulOptions options = {});

namespace cpu {
std::unique_ptr<Kernel> matmul_add_composed(const PrepareCall&);
std::unique_ptr<Kernel> matmul_gelu_gradient_composed(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
