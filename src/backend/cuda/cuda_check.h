#pragma once

#include <cuda_runtime_api.h>

namespace pl {

// Throws BackendError "[cuda] <what>: <name>: <text>" unless the call succeeded.
void cuda_check(cudaError_t status, const char* what);

}  // namespace pl
