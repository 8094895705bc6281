#include "backend/cuda/dnn_handle.h"

#include <dlfcn.h>

#include <string>

#include "base/error.h"

namespace pl {
namespace {

// The rest of its functions are cudnn-frontend's to find.
template <class Function>
void find(void* library, const char* name, Function& function) {
  function = reinterpret_cast<Function>(::dlsym(library, name));
  if (!function) throw BackendError("[cudnn] expected " + std::string(name) + ", received none");
}

void check_status(cudnnStatus_t status, const char* what) {
  if (status != CUDNN_STATUS_SUCCESS)
    throw BackendError("[cudnn] " + std::string(what) + ": status " + std::to_string(status));
}

}  // namespace

DnnHandle::DnnHandle(void* library, cudaStream_t stream) {
  decltype(&cudnnCreate) create = nullptr;
  decltype(&cudnnSetStream) set_stream = nullptr;
  find(library, "cudnnCreate", create);
  find(library, "cudnnSetStream", set_stream);
  find(library, "cudnnDestroy", destroy_);
  check_status(create(&handle_), "cudnnCreate");
  if (const cudnnStatus_t status = set_stream(handle_, stream); status != CUDNN_STATUS_SUCCESS) {
    destroy_(handle_);
    check_status(status, "cudnnSetStream");
  }
}
DnnHandle::~DnnHandle() { destroy_(handle_); }

}  // namespace pl
