#include "backend/cuda/cuda_libraries.h"

#include <dlfcn.h>

#include <mutex>

#include "backend/backend.h"
#include "base/error.h"

namespace pl {

void* open_first(std::initializer_list<const char*> names) {
  for (const char* name : names) {
    if (void* handle = ::dlopen(name, RTLD_NOW | RTLD_LOCAL)) return handle;
    const std::string path = std::string("/usr/local/cuda/lib64/") + name;
    if (void* handle = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return handle;
  }
  return nullptr;
}

namespace {

void* open_library(std::initializer_list<const char*> names) {
  if (void* handle = open_first(names)) return handle;
  const char* why = ::dlerror();
  throw BackendError("[cuda] " + std::string(*names.begin()) +
                     ": expected it among the system's libraries, received " +
                     (why ? why : "none") + "; LD_LIBRARY_PATH takes its folder");
}

// Libraries of the toolkit that this was built with: others have other structures.
std::string of_toolkit(const char* name) { return name + std::to_string(CUDART_VERSION / 1000); }

template <class F>
void find(void* library, const char* name, F& function) {
  function = reinterpret_cast<F>(::dlsym(library, name));
  if (!function)
    throw BackendError("[cuda] " + std::string(name) +
                       ": expected this function in the library, received an older one");
}

}  // namespace

namespace {

// What kernels die of. It is told by whatever is called next, and by all that follows.
bool is_fault(cudaError_t status) {
  switch (status) {
    case cudaErrorIllegalAddress:
    case cudaErrorMisalignedAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
      return true;
    default:
      return false;
  }
}

}  // namespace

void cuda_check(cudaError_t status, const char* what) {
  if (status == cudaSuccess) return;
  cudaGetLastError();  // told here: the next launch is not to blame
  const std::string text = "[cuda] " + std::string(what) + ": " + cudaGetErrorName(status) + ": " +
                           cudaGetErrorString(status);
  if (is_fault(status)) throw DeviceFault(text);
  throw BackendError(text);
}

void cuda_fault_check() {
  // A library may have a runtime of its own, whose last error is not ours: the device is asked.
  if (const cudaError_t status = cudaDeviceSynchronize(); is_fault(status))
    cuda_check(status, "work before it");
  cudaGetLastError();
}

void cublas_check(cublasStatus_t status, const char* what) {
  if (status == CUBLAS_STATUS_SUCCESS) return;
  cuda_fault_check();
  throw BackendError("[cublas] " + std::string(what) + ": status " + std::to_string(status));
}

struct CudaLibraries::State {
  std::mutex blas_mutex, rtc_mutex, dnn_mutex;  // of what has their names
  void *blas = nullptr, *rtc = nullptr, *dnn = nullptr;
  BlasLtApi blas_api{};
  NvrtcApi rtc_api{};
};

CudaLibraries::CudaLibraries() : state_(std::make_unique<State>()) {}
// Libraries stay open: closing those that have a context is asking for trouble at exit.
CudaLibraries::~CudaLibraries() = default;

const BlasLtApi& CudaLibraries::blas_lt() {
  State& s = *state_;
  const std::lock_guard lock(s.blas_mutex);
  if (s.blas) return s.blas_api;
  const std::string name = of_toolkit("libcublasLt.so.");
  void* library = open_library({name.c_str(), "libcublasLt.so"});
  BlasLtApi& api = s.blas_api;
  find(library, "cublasLtCreate", api.create);
  find(library, "cublasLtDestroy", api.destroy);
  find(library, "cublasLtMatmul", api.matmul);
  find(library, "cublasLtMatmulDescCreate", api.matmul_desc_create);
  find(library, "cublasLtMatmulDescDestroy", api.matmul_desc_destroy);
  find(library, "cublasLtMatmulDescSetAttribute", api.matmul_desc_set);
  find(library, "cublasLtMatrixLayoutCreate", api.layout_create);
  find(library, "cublasLtMatrixLayoutDestroy", api.layout_destroy);
  find(library, "cublasLtMatrixLayoutSetAttribute", api.layout_set);
  find(library, "cublasLtMatmulPreferenceCreate", api.preference_create);
  find(library, "cublasLtMatmulPreferenceDestroy", api.preference_destroy);
  find(library, "cublasLtMatmulPreferenceSetAttribute", api.preference_set);
  find(library, "cublasLtMatmulAlgoGetHeuristic", api.heuristic);
  find(library, "cublasLtMatmulAlgoConfigGetAttribute", api.algo_get);
  find(library, "cublasLtGetVersion", api.version);
  s.blas = library;
  return api;
}

const NvrtcApi& CudaLibraries::nvrtc() {
  State& s = *state_;
  const std::lock_guard lock(s.rtc_mutex);
  if (s.rtc) return s.rtc_api;
  const std::string name = of_toolkit("libnvrtc.so.");
  void* library = open_library({name.c_str(), "libnvrtc.so"});
  NvrtcApi& api = s.rtc_api;
  find(library, "nvrtcCreateProgram", api.create_program);
  find(library, "nvrtcCompileProgram", api.compile_program);
  find(library, "nvrtcDestroyProgram", api.destroy_program);
  find(library, "nvrtcGetProgramLogSize", api.log_size);
  find(library, "nvrtcGetProgramLog", api.log);
  find(library, "nvrtcGetCUBINSize", api.cubin_size);
  find(library, "nvrtcGetCUBIN", api.cubin);
  find(library, "nvrtcVersion", api.version);
  s.rtc = library;
  return api;
}

void* CudaLibraries::dnn() {
  const std::lock_guard lock(state_->dnn_mutex);
  if (!state_->dnn) state_->dnn = open_library({"libcudnn.so.9", "libcudnn.so"});
  return state_->dnn;
}

std::string CudaLibraries::versions() {
  auto text = [](const std::string& name, const auto& version) {
    try {
      return name + " " + std::to_string(version());
    } catch (const BackendError&) {  // told where it is needed
      return name + " none";
    }
  };
  return text("cuBLASLt", [&] { return blas_lt().version(); }) + ", " + text("cuDNN", [&] {
           decltype(&cudnnGetVersion) version = nullptr;
           find(dnn(), "cudnnGetVersion", version);
           return version();
         });
}

// cuDNN opens its parts, some hundred MB, when it is first asked for a plan.
void CudaLibraries::open_ahead() {
  try {
    blas_lt();
    dnn();
    for (const char* part :
         {"libcudnn_graph.so.9", "libcudnn_heuristic.so.9",
          "libcudnn_engines_runtime_compiled.so.9", "libcudnn_engines_precompiled.so.9"})
      open_first({part});
    nvrtc();                       // which it compiles attention with
  } catch (const BackendError&) {  // told where it is needed
  }
}

}  // namespace pl
