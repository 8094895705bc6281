// batch_matmul: one matrix product for each index of the leading dimensions.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kBatchMatmul;

struct BatchMatmulOptions {
  bool transpose_a = false;
  bool transpose_b = false;
};

// a (..., M, K), b (..., K, N), each possibly transposed in its last two dimensions. Result
// (..., M, N). b may lack leading dimensions of a; its matrices are then used again. Reals, int32
// or int64; integers wrap.
Tensor batch_matmul(const Tensor& a, const Tensor& b, BatchMatmulOptions options = {});

// What kernels know of a call: `outer` times `inner` products, of which b has `inner` matrices.
struct BatchMatmulForm {
  Dim outer, inner, m, n, k;
  bool transpose_a, transpose_b;
};
BatchMatmulForm batch_matmul_form(const Metas& in, const Attrs& attrs);

namespace cpu {
std::unique_ptr<Kernel> batch_matmul_onednn(const PrepareCall&);
std::unique_ptr<Kernel> batch_matmul_integers(const PrepareCall&);
std::unique_ptr<Kernel> batch_matmul_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
