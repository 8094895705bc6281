// Kernels of a device whose code is not part of the program: ops' records do not know of them, and
// a build without that device has the same records.
#pragma once

#include <span>

#include "op/op.h"

namespace pl {

// For the op of that name: the library that lists it may have records of its own.
struct DeviceKernel {
  const Op* op;
  Variant variant;
};

// Several of an op are tried in order, fastest first.
struct DeviceKernels {
  std::span<const DeviceKernel> list;
};

const DeviceKernels& cuda_kernels();  // op/cuda_catalogue.cc, which CUDA's library alone has

}  // namespace pl
