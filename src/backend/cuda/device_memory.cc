#include "backend/cuda/device_memory.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <future>
#include <thread>
#include <vector>

#include "backend/cuda/cuda_check.h"
#include "backend/cuda/device_holders.h"
#include "base/error.h"

namespace pl {

CudaMemory::CudaMemory(const DeviceHolders& holders, Bytes bytes) {
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
                     format_bytes(static_cast<Bytes>(total)) + " are free" + holders.others_text() +
                     "; a --memory that the free bytes allow fits");
  }
  cuda_check(status, "cudaMalloc");
  data_ = static_cast<char*>(data);
}

CudaMemory::~CudaMemory() {
  if (data_) cudaFree(data_);
}

namespace {

constexpr Bytes kManyPages = 64 * kMiB;

// Zeroed pages, made by several threads: the system takes half a second for a GiB on one.
Reservation many_pages(Bytes bytes) {
  Reservation pages(bytes);
  ::madvise(pages.data(), static_cast<size_t>(bytes), MADV_HUGEPAGE);
  const Bytes parts = std::clamp<Bytes>(std::thread::hardware_concurrency(), 1, 16);
  const Bytes part = align_up((bytes + parts - 1) / parts, 2 * kMiB);
  std::vector<std::future<void>> others;
  for (Bytes first = 0; first < bytes; first += part)
    others.push_back(std::async(std::launch::async, [&pages, first, part, bytes] {
      for (Bytes at = first; at < std::min(bytes, first + part); at += 4 * kKiB)
        pages.data()[at] = 0;
    }));
  for (std::future<void>& other : others) other.get();
  return pages;
}

void check_pinned(cudaError_t status, Bytes bytes, const char* call) {
  if (status == cudaErrorMemoryAllocation) {
    cudaGetLastError();
    throw DoesNotFit(
        "[memory] expected " + format_bytes(bytes) +
        " of pinned host memory, received none; use a smaller batch, or less --host-memory");
  }
  cuda_check(status, call);
}

}  // namespace

PinnedMemory::PinnedMemory(Bytes bytes) {
  bytes_ = bytes;
  if (bytes == 0) return;
  const auto size = static_cast<size_t>(bytes);
  if (bytes >= kManyPages) {
    // Touching more than there is ends the process instead of the call.
    if (const HostRoom room = host_room(); bytes > room.least())
      throw DoesNotFit("[memory] expected " + format_bytes(bytes) + " of pinned host memory, " +
                       room.tightest() + " has room for " + format_bytes(room.least()) +
                       "; use less --host-memory, or --offload off");
    pages_ = many_pages(bytes);
    check_pinned(cudaHostRegister(pages_.data(), size, cudaHostRegisterPortable), bytes,
                 "cudaHostRegister");
    data_ = pages_.data();
    return;
  }
  void* data = nullptr;
  check_pinned(cudaMallocHost(&data, size), bytes, "cudaMallocHost");
  data_ = static_cast<char*>(data);
  std::memset(data_, 0, size);
}

PinnedMemory::~PinnedMemory() {
  if (pages_.data() && data_)
    cudaHostUnregister(data_);
  else if (data_)
    cudaFreeHost(data_);
}

}  // namespace pl
