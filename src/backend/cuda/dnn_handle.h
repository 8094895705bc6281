// cuDNN's handle. For `*_cuda.*` files and this folder alone: it includes CUDA's headers.
#pragma once

#include <cuda_runtime_api.h>
#include <cudnn.h>

namespace pl {

class DnnHandle {
 public:
  // `library`: dlopen's, of cuDNN. What runs with the handle runs on `stream`.
  DnnHandle(void* library, cudaStream_t stream);
  DnnHandle(const DnnHandle&) = delete;
  DnnHandle& operator=(const DnnHandle&) = delete;
  ~DnnHandle();
  cudnnHandle_t get() const { return handle_; }

 private:
  cudnnHandle_t handle_ = nullptr;
  decltype(&cudnnDestroy) destroy_ = nullptr;
};

}  // namespace pl
