// Prepare functions of all CUDA kernels, as op/cuda_catalogue.cc lists them.
#pragma once

#include "op/op.h"

namespace pl::cuda {

std::unique_ptr<Kernel> fill(const PrepareCall&);
std::unique_ptr<Kernel> scale(const PrepareCall&);
std::unique_ptr<Kernel> relu(const PrepareCall&);
std::unique_ptr<Kernel> relu_gradient(const PrepareCall&);

}  // namespace pl::cuda
