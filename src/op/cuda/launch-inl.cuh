// What CUDA kernels share: preparing, grids, loads and stores as float. For `*_cuda.cu` files.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_runtime.h>

#include <algorithm>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_check.h"
#include "op/kernel.h"

namespace pl::cuda {

inline CudaBackend& backend_of(const PrepareCall& call) {
  return static_cast<CudaBackend&>(call.backend);
}

// Numbers are computed in float, but for double: load and store convert.
template <class T>
struct Compute {
  using type = float;
};
template <>
struct Compute<double> {
  using type = double;
};
template <class T>
using ComputeOf = typename Compute<T>::type;

__device__ inline float load(const float* p) { return *p; }
__device__ inline double load(const double* p) { return *p; }
__device__ inline float load(const __nv_bfloat16* p) { return __bfloat162float(*p); }
__device__ inline float load(const __half* p) { return __half2float(*p); }
__device__ inline void store(float* p, float x) { *p = x; }
__device__ inline void store(double* p, double x) { *p = x; }
__device__ inline void store(__nv_bfloat16* p, float x) { *p = __float2bfloat16(x); }
__device__ inline void store(__half* p, float x) { *p = __float2half(x); }

// Calls `body.template operator()<T>()` with the device's type of a float dtype; null for others.
template <class F>
std::unique_ptr<Kernel> dispatch_cuda(Dtype dtype, F body) {
  switch (dtype) {
    case Dtype::float32:
      return body.template operator()<float>();
    case Dtype::float64:
      return body.template operator()<double>();
    case Dtype::bfloat16:
      return body.template operator()<__nv_bfloat16>();
    case Dtype::float16:
      return body.template operator()<__half>();
    default:
      return nullptr;
  }
}

// Blocks for a grid-stride loop over `count` elements.
inline int blocks_for(int64_t count, int threads, int multiprocessors) {
  const int64_t wanted = (count + threads - 1) / threads;
  return static_cast<int>(std::clamp<int64_t>(wanted, 1, int64_t{multiprocessors} * 16));
}

// y[i] = body(i) in a grid-stride loop; `body` is a device lambda or functor.
template <class Body>
__global__ void elements_kernel(int64_t count, Body body) {
  const int64_t step = int64_t{gridDim.x} * blockDim.x;
  for (int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x; i < count; i += step) body(i);
}

// Launches body(i) for every i in [0, count). A failed launch becomes a BackendError.
template <class Body>
void launch_elements(const CudaBackend& backend, int64_t count, Body body) {
  if (count == 0) return;
  constexpr int kThreads = 256;
  const int blocks = blocks_for(count, kThreads, backend.multiprocessors());
  elements_kernel<<<blocks, kThreads, 0, backend.stream()>>>(count, body);
  cuda_check(cudaGetLastError(), "launch");
}

}  // namespace pl::cuda
