// The library's side of cuda_library.h: the one symbol that it exports.
#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_interface.h"

namespace pl {
namespace {

std::unique_ptr<Backend> make(int index, CudaOptions options) {
  return std::make_unique<CudaBackend>(index, options);
}

}  // namespace
}  // namespace pl

extern "C" __attribute__((visibility("default"))) const pl::CudaLibrary* plimsoll_cuda_library() {
  static const pl::CudaLibrary library{pl::cuda_interface().data(), pl::cuda_device_count,
                                       pl::make};
  return &library;
}
