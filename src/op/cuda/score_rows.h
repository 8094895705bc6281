// Rows of logits turned into losses and gradients, for kernels that make logits in pieces.
#pragma once

#include "op/cuda/kernel-inl.h"

namespace pl::cuda {

// One number a row each; those of real numbers in wide(dtype).
struct HeadRows {
  const int32_t* labels;
  const void* dloss;  // null: the logits stay as they are
  void* loss;
  float* correct;
};

// Logits (rows, classes) become their gradients.
void launch_head_rows(const Launch& launch, Dtype dtype, const HeadRows& head, void* logits,
                      int64_t rows, int64_t classes);

}  // namespace pl::cuda
