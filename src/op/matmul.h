// matmul: C = op(A) x op(B) [+ bias] [then relu], matrices only. Dense layers and their gradients.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kMatmul;

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// a (M, K), b (K, N), each possibly transposed; bias (N,) may be undefined. Result (M, N).
Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {},
              const Tensor& bias = {});

namespace cpu {
std::unique_ptr<Kernel> matmul_onednn(const PrepareCall&);
std::unique_ptr<Kernel> matmul_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
