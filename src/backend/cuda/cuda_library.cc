// The program's side: finds and opens the library.
#include "backend/cuda/cuda_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <string>

#include "backend/cuda/cuda_interface.h"
#include "base/error.h"

namespace pl {
namespace {

constexpr const char* kVariable = "PLIMSOLL_CUDA_LIBRARY";

// By the variable, else where the program's run path and the system's say: beside it, ../lib, ...
// Opened again at each call, which costs microseconds and needs no state; it is never closed.
struct Opened {
  const CudaLibrary* library = nullptr;
  std::string why_not;
};

Opened open_library() {
  const char* path = std::getenv(kVariable);
  if (!path || !*path) path = kCudaLibraryFile;
  void* handle = ::dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (!handle) {
    const char* why = ::dlerror();
    return {nullptr, why ? why : "it does not open"};
  }
  auto answer = reinterpret_cast<CudaLibraryFunction>(::dlsym(handle, kCudaLibrarySymbol));
  const CudaLibrary* library = answer ? answer() : nullptr;
  if (!library || std::string_view(library->interface) != cuda_interface())
    return {nullptr, std::string(path) + " is of another build than this program"};
  return {library, ""};
}

}  // namespace

std::unique_ptr<Backend> open_cuda(int index, CudaOptions options) {
  const Opened opened = open_library();
  if (!opened.library)
    throw UserError(
        "[backend] --device cuda: expected " + std::string(kCudaLibraryFile) +
        " beside the program, in ../lib or named by " + kVariable + ", received none (" +
        opened.why_not +
        "); build with -DPLIMSOLL_CUDA=ON where a CUDA toolkit is, or use --device cpu");
  return opened.library->make(index, options);
}

int cuda_devices() {
  const Opened opened = open_library();
  return opened.library ? opened.library->devices() : 0;
}

}  // namespace pl
