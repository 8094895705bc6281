#pragma once

#include <cuda_runtime_api.h>

namespace pl {

// Throws BackendError "[cuda] <what>: <name>: <text>" unless the call succeeded: a DeviceFault
// where it tells of work that was asked for before.
void cuda_check(cudaError_t status, const char* what);
// For a library's failure: throws DeviceFault if the device had failed before.
void cuda_fault_check();

}  // namespace pl
