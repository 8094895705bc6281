// What the host side of CUDA kernels shares: a prepared kernel that launches on the backend's
// stream, grid sizes, and dispatch over dtypes. For `*_cuda.*` files alone.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime_api.h>

#include <algorithm>
#include <memory>
#include <utility>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_check.h"
#include "base/error.h"
#include "op/op.h"

namespace pl::cuda {

using Bf16 = __nv_bfloat16;
using Half = __half;

inline CudaBackend& backend_of(const PrepareCall& call) {
  return static_cast<CudaBackend&>(call.backend);
}

// Where a kernel's launches go.
struct Launch {
  cudaStream_t stream;
  int processors;  // of the device

  // Blocks of `threads` for `items`, at most enough to fill the device several times over: kernels
  // step by the grid.
  unsigned blocks(int64_t items, int threads, int most_per_processor = 16) const {
    const int64_t wanted = (items + threads - 1) / threads;
    const int64_t most = static_cast<int64_t>(processors) * most_per_processor;
    return static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, most));
  }
};

// A grid has at most so many blocks along y and z: kernels step by it there too.
inline unsigned grid_down(int64_t blocks) {
  return static_cast<unsigned>(std::clamp<int64_t>(blocks, 1, 65535));
}

// Throws BackendError if a launch was refused, DeviceFault if work before it has failed.
inline void check_launch(const char* what) { cuda_check(cudaGetLastError(), what); }

// Shared memory that a launch of the kernel may ask for, beside what the kernel declares. It is all
// granted here, since the grant is the function's, whatever the next call of it needs.
inline int64_t shared_room(const CudaBackend& backend, const void* kernel) {
  backend.use();
  int most = 0;
  cudaFuncAttributes of_kernel{};
  cuda_check(cudaDeviceGetAttribute(&most, cudaDevAttrMaxSharedMemoryPerBlockOptin,
                                    backend.device().index),
             "cudaDeviceGetAttribute");
  cuda_check(cudaFuncGetAttributes(&of_kernel, kernel), "cudaFuncGetAttributes");
  most -= static_cast<int>(of_kernel.sharedSizeBytes);
  cuda_check(cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize, most),
             "cudaFuncSetAttribute");
  return most;
}

template <class F>
class LaunchKernel final : public Kernel {
 public:
  LaunchKernel(CudaBackend& backend, F function)
      : backend_(backend), function_(std::move(function)) {}
  void run(void* const* in, void* const* out, void* workspace) override {
    function_(Launch{backend_.stream(), backend_.multiprocessors()}, in, out,
              static_cast<char*>(workspace));
    check_launch(key.c_str());
  }

 private:
  CudaBackend& backend_;
  F function_;
};

// Wraps a callable void(const Launch&, void* const* in, void* const* out, char* workspace).
template <class F>
std::unique_ptr<Kernel> make_kernel(const PrepareCall& call, F function,
                                    Bytes workspace_bytes = 0) {
  auto kernel = std::make_unique<LaunchKernel<F>>(backend_of(call), std::move(function));
  kernel->workspace_bytes = workspace_bytes;
  kernel->footprint = static_cast<Bytes>(sizeof(LaunchKernel<F>));
  return kernel;
}

// Calls `body.template operator()<T>()` with T of the dtype; null for others.
template <class F>
std::unique_ptr<Kernel> dispatch_real(Dtype dtype, F body) {
  switch (dtype) {
    case Dtype::float32:
      return body.template operator()<float>();
    case Dtype::float64:
      return body.template operator()<double>();
    case Dtype::bfloat16:
      return body.template operator()<Bf16>();
    case Dtype::float16:
      return body.template operator()<Half>();
    default:
      return nullptr;
  }
}
template <class F>
std::unique_ptr<Kernel> dispatch_number(Dtype dtype, F body) {
  switch (dtype) {
    case Dtype::int32:
      return body.template operator()<int32_t>();
    case Dtype::int64:
      return body.template operator()<int64_t>();
    default:
      return dispatch_real(dtype, body);
  }
}
// What variables are: float32 or float64.
template <class F>
std::unique_ptr<Kernel> dispatch_variable(Dtype dtype, F body) {
  if (dtype == Dtype::float32) return body.template operator()<float>();
  if (dtype == Dtype::float64) return body.template operator()<double>();
  return nullptr;
}
// An unsigned T of the dtype's size, for kernels that only move elements.
template <class F>
std::unique_ptr<Kernel> dispatch_size(Dtype dtype, F body) {
  switch (size_of(dtype)) {
    case 1:
      return body.template operator()<uint8_t>();
    case 2:
      return body.template operator()<uint16_t>();
    case 4:
      return body.template operator()<uint32_t>();
    default:
      return body.template operator()<uint64_t>();
  }
}

template <class T>
const T* input(void* const* in, int i) {
  return i < 0 ? nullptr : static_cast<const T*>(in[i]);
}
template <class T>
T* output(void* const* out, int i) {
  return i < 0 ? nullptr : static_cast<T*>(out[i]);
}

}  // namespace pl::cuda
