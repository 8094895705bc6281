// Prepare functions of all CUDA kernels, as op/cuda_catalogue.cc lists them.
#pragma once

#include "op/op.h"
#include "op/tile_program.h"

namespace pl::cuda {

using Prepared = std::unique_ptr<Kernel>;

// pointwise_cuda.cu
Prepared pointwise(const PrepareCall&, TileOp op);
template <TileOp op>
Prepared pointwise(const PrepareCall& call) {
  return pointwise(call, op);
}
Prepared broadcast_to(const PrepareCall&);
Prepared transpose(const PrepareCall&);

// elements_cuda.cu
Prepared cast(const PrepareCall&);
Prepared fill(const PrepareCall&);
Prepared dropout(const PrepareCall&);  // and its gradient
Prepared random(const PrepareCall&);
Prepared relu_bits(const PrepareCall&);
Prepared relu_bits_gradient(const PrepareCall&);
Prepared one_hot(const PrepareCall&);
Prepared causal_mask(const PrepareCall&);

// moves_cuda.cu
Prepared copy_operand(const PrepareCall&);  // the last one: assign, reshape
Prepared concatenate(const PrepareCall&);
Prepared slice(const PrepareCall&);
Prepared slice_gradient(const PrepareCall&);
Prepared pad(const PrepareCall&);
Prepared crop(const PrepareCall&);
Prepared own_rows(const PrepareCall&);
Prepared place_rows(const PrepareCall&);

// reduce_cuda.cu
Prepared reduce_sum(const PrepareCall&);
Prepared reduce_max(const PrepareCall&);

}  // namespace pl::cuda
