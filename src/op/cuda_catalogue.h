// Kernels of ops for CUDA, in one list beside the ops' records: those do not know of CUDA, and a
// build without it has the same records and an empty list.
#pragma once

#include <span>

#include "op/op.h"

namespace pl {

struct CudaVariant {
  const Op* op;
  Variant variant;
};

// Several of an op are tried in order, fastest first. Empty in a build without CUDA.
std::span<const CudaVariant> cuda_variants();

}  // namespace pl
