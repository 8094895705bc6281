// Copies of values that leave for pinned host memory and come back, on two streams beside the one
// where kernels run: one for each direction, which a GPU has copy engines for.
#pragma once

#include <cuda_runtime_api.h>

#include <vector>

#include "base/bytes.h"

namespace pl {

class StayCopies {
 public:
  explicit StayCopies(cudaStream_t kernels);
  ~StayCopies();
  StayCopies(const StayCopies&) = delete;
  StayCopies& operator=(const StayCopies&) = delete;

  // As DeviceWork has them. While the kernels' stream is recorded, so are these.
  void send(size_t stay, void* host, const void* from, Bytes bytes);
  void bring(size_t stay, void* to, const void* host, Bytes bytes);
  void wait_away(size_t stay) { wait(away_, stay); }
  void wait_back(size_t stay) { wait(back_, stay); }
  void join();

 private:
  struct Way {
    cudaStream_t stream = nullptr;
    // Per stay: reached behind its copy. An event of a copy that was joined counts no more: it may
    // be of a recording that has ended.
    std::vector<cudaEvent_t> done;
    std::vector<bool> going;
    bool used = false;  // since the last join
  };
  void copy(Way& way, size_t stay, void* to, const void* from, Bytes bytes, cudaMemcpyKind kind);
  void wait(Way& way, size_t stay);

  cudaStream_t kernels_;
  cudaEvent_t reached_ = nullptr;
  Way away_, back_;
};

}  // namespace pl
