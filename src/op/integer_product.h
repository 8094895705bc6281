// Products of matrices of int32 or int64, which wrap: what matmul and batch_matmul run on them.
#pragma once

#include "backend/backend.h"
#include "op/op.h"

namespace pl::cpu {

struct IntegerProduct {
  Dtype dtype;
  Dim m, n, k;
  bool transpose_a, transpose_b;

  Bytes workspace_bytes() const;
  // c (M, N) = op(a) x op(b).
  void run(int threads, const void* a, const void* b, void* c, void* workspace) const;
};

}  // namespace pl::cpu
