// Products of matrices of int32 or int64, which wrap: what matmul and batch_matmul run on them.
#pragma once

#include "backend/backend.h"
#include "op/op.h"

namespace pl::cpu {

// `products` products side by side: number i is of a's matrix i and b's matrix i % inner.
struct IntegerProduct {
  Dtype dtype;
  Dim m, n, k;
  bool transpose_a, transpose_b;
  Dim products = 1, inner = 1;

  Bytes workspace_bytes(int threads) const;
  // Each c (M, N) = op(a) x op(b).
  void run(int threads, const void* a, const void* b, void* c, void* workspace) const;
};

}  // namespace pl::cpu
