#include "backend/cuda/device_memory.h"

#include <unistd.h>

#include <cstring>

#include "backend/cuda/cuda_libraries.h"
#include "base/error.h"

namespace pl {
namespace {

std::string who_holds(int device) {
  std::string text;
  for (const DeviceHolder& holder : device_holders(device)) {
    if (holder.process == static_cast<unsigned>(::getpid())) continue;
    text += (text.empty() ? "" : ", ") + ("process " + std::to_string(holder.process)) + " holds " +
            format_bytes(holder.bytes);
  }
  return text.empty() ? "" : " (" + text + ")";
}

}  // namespace

CudaMemory::CudaMemory(int device, Bytes bytes) {
  bytes_ = bytes;
  if (bytes == 0) return;
  void* data = nullptr;
  const cudaError_t status = cudaMalloc(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();  // it was told here
    size_t free = 0, total = 0;
    cuda_check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    throw DoesNotFit("[memory] expected " + format_bytes(bytes) +
                     " of the device's memory in one " +
                     "piece, received none: " + format_bytes(static_cast<Bytes>(free)) + " of " +
                     format_bytes(static_cast<Bytes>(total)) + " are free" + who_holds(device) +
                     "; a --memory that the free bytes allow fits");
  }
  cuda_check(status, "cudaMalloc");
  data_ = static_cast<char*>(data);
}

CudaMemory::~CudaMemory() {
  if (data_) cudaFree(data_);
}

PinnedMemory::PinnedMemory(Bytes bytes) {
  bytes_ = bytes;
  if (bytes == 0) return;
  void* data = nullptr;
  const cudaError_t status = cudaMallocHost(&data, static_cast<size_t>(bytes));
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw DoesNotFit(
        "[memory] expected " + format_bytes(bytes) +
        " of pinned host memory, received none; use a smaller batch, or less --host-memory");
  }
  cuda_check(status, "cudaMallocHost");
  data_ = static_cast<char*>(data);
  std::memset(data_, 0, static_cast<size_t>(bytes));
}

PinnedMemory::~PinnedMemory() {
  if (data_) cudaFreeHost(data_);
}

}  // namespace pl
