// Kernels compiled while the program runs, by NVRTC, and kept between runs in the cache folder.
#pragma once

#include <memory>
#include <string>
#include <vector>

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

// The cache's files: code with a sum over it and over `identity`, what it was made of. Empty: there
// is none, or it is damaged, or another's.
std::vector<char> read_code(const std::string& path, const std::string& identity);
// A cache may fail: then it is made again next time. The name appears when the file is whole.
void write_code(const std::string& path, const std::string& identity,
                const std::vector<char>& code);

}  // namespace pl::cuda
