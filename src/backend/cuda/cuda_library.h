// All code that needs CUDA is a library of its own, opened when a GPU is asked for: a program that
// stays on the CPU holds nothing of it, and is the same whether or not it was built with CUDA.
#pragma once

#include <memory>

#include "backend/backend.h"

namespace pl {

struct CudaOptions {
  bool deterministic = true;  // only algorithms that give the same bits again
};

// Throws UserError where the library is not to be found, or the machine has no such device.
std::unique_ptr<Backend> open_cuda(int index = 0, CudaOptions options = {});
int cuda_devices();  // 0 without the library or a driver

// What the library answers.
struct CudaLibrary {
  const char* interface;  // both sides were compiled from the same headers
  int (*devices)();
  std::unique_ptr<Backend> (*make)(int index, CudaOptions options);
};
constexpr const char* kCudaLibraryFile = "libplimsoll_cuda.so";
constexpr const char* kCudaLibrarySymbol = "plimsoll_cuda_library";
using CudaLibraryFunction = const CudaLibrary* (*)();

}  // namespace pl
