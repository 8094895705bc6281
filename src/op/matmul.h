// matmul: C = op(A) x op(B) [+ bias] [then relu]. Dense layers and their gradients. Operands with
// more than two dimensions are matrices whose rows are counted by all dimensions but the last.
#pragma once

#include <optional>

#include "op/op.h"

namespace pl {

extern const Op kMatmul;

struct MatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
  std::optional<Dtype> dtype = {};  // of the result: a's, or float32 for 16-bit operands
};

// a (M, K), b (K, N), each possibly transposed; bias (N,) may be undefined. Result (M, N). Reals,
// int32 or int64; integers wrap.
// a may also be (..., K), for a result (..., N); or, with transpose_a, (..., M) with b (..., N) of
// the same leading dimensions, for a result (M, N) that sums over them.
Tensor matmul(const Tensor& a, const Tensor& b, MatmulOptions options = {},
              const Tensor& bias = {});

// What kernels know of a call: the sizes of the matrices.
struct MatmulForm {
  Dim m, n, k;
  bool transpose_a, transpose_b, bias, relu;
};
MatmulForm matmul_form(const Metas& in, const Attrs& attrs);
Attrs matmul_attrs(const MatmulOptions& options, Dtype operands);

namespace cpu {
std::unique_ptr<Kernel> matmul_onednn(const PrepareCall&);
std::unique_ptr<Kernel> matmul_integers(const PrepareCall&);
std::unique_ptr<Kernel> matmul_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
