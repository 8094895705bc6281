// CUDA's libraries, opened when first used: a program that stays on the CPU neither loads nor needs
// them. Each struct has the functions that we call, with the types of the headers' declarations.
// For `*_cuda.*` files and this folder alone: it includes CUDA's headers.
#pragma once

#include <cublasLt.h>
#include <cuda_runtime_api.h>
#include <cudnn.h>
#include <nvrtc.h>

#include <initializer_list>
#include <memory>
#include <string>

#include "backend/cuda/cuda_check.h"

namespace pl {

void cublas_check(cublasStatus_t status, const char* what);

struct BlasLtApi {
  decltype(&cublasLtCreate) create;
  decltype(&cublasLtDestroy) destroy;
  decltype(&cublasLtMatmul) matmul;
  decltype(&cublasLtMatmulDescCreate) matmul_desc_create;
  decltype(&cublasLtMatmulDescDestroy) matmul_desc_destroy;
  decltype(&cublasLtMatmulDescSetAttribute) matmul_desc_set;
  decltype(&cublasLtMatrixLayoutCreate) layout_create;
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy;
  decltype(&cublasLtMatrixLayoutSetAttribute) layout_set;
  decltype(&cublasLtMatmulPreferenceCreate) preference_create;
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy;
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set;
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic;
  decltype(&cublasLtMatmulAlgoConfigGetAttribute) algo_get;
  decltype(&cublasLtGetVersion) version;
};

struct NvrtcApi {
  decltype(&nvrtcCreateProgram) create_program;
  decltype(&nvrtcCompileProgram) compile_program;
  decltype(&nvrtcDestroyProgram) destroy_program;
  decltype(&nvrtcGetProgramLogSize) log_size;
  decltype(&nvrtcGetProgramLog) log;
  decltype(&nvrtcGetCUBINSize) cubin_size;
  decltype(&nvrtcGetCUBIN) cubin;
  decltype(&nvrtcVersion) version;
};

class CudaLibraries {
 public:
  CudaLibraries();
  ~CudaLibraries();
  const BlasLtApi& blas_lt();
  const NvrtcApi& nvrtc();
  void* dnn();  // dlopen's handle of cuDNN, for cudnn-frontend's own loader
  // "cuBLASLt 130002, cuDNN 91300": what decides which algorithms calls get.
  std::string versions();
  // Opens those that most models need: a quarter of a second, and from a disk a second and more,
  // that need not be waited for. All of these may be called from any thread.
  void open_ahead();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

// dlopen's handle of the first that the loader finds, or of the one in the toolkit's usual place;
// null: none.
void* open_first(std::initializer_list<const char*> names);

}  // namespace pl
