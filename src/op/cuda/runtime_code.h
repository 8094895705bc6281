// Kernels compiled while the program runs, by NVRTC, and kept between runs in the cache folder.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

namespace pl::cuda {

// Machine code of one source; shared by all kernels that have the same.
class RuntimeCode {
 public:
  virtual ~RuntimeCode() = default;
  // What cudaLaunchKernel takes.
  virtual const void* function(const std::string& name) = 0;
};

// `source`: CUDA C++ without includes; its kernels are extern "C".
std::shared_ptr<RuntimeCode> compile(Backend& backend, const std::string& source);

}  // namespace pl::cuda
