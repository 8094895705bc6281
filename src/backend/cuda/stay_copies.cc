#include "backend/cuda/stay_copies.h"

#include "backend/cuda/cuda_check.h"

namespace pl {

StayCopies::StayCopies(cudaStream_t kernels) : kernels_(kernels) {
  for (Way* way : {&away_, &back_})
    cuda_check(cudaStreamCreateWithFlags(&way->stream, cudaStreamNonBlocking), "cudaStreamCreate");
  cuda_check(cudaEventCreateWithFlags(&reached_, cudaEventDisableTiming), "cudaEventCreate");
}

StayCopies::~StayCopies() {
  for (Way* way : {&away_, &back_}) {
    for (cudaEvent_t event : way->done)
      if (event) cudaEventDestroy(event);
    if (way->stream) cudaStreamDestroy(way->stream);
  }
  if (reached_) cudaEventDestroy(reached_);
}

void StayCopies::copy(Way& way, size_t stay, void* to, const void* from, Bytes bytes,
                      cudaMemcpyKind kind) {
  if (way.done.size() <= stay) {
    way.done.resize(stay + 1, nullptr);
    way.going.resize(stay + 1, false);
  }
  if (!way.done[stay])
    cuda_check(cudaEventCreateWithFlags(&way.done[stay], cudaEventDisableTiming),
               "cudaEventCreate");
  cuda_check(cudaEventRecord(reached_, kernels_), "cudaEventRecord");
  cuda_check(cudaStreamWaitEvent(way.stream, reached_, 0), "cudaStreamWaitEvent");
  cuda_check(cudaMemcpyAsync(to, from, static_cast<size_t>(bytes), kind, way.stream),
             "copy of a value that leaves or comes back");
  cuda_check(cudaEventRecord(way.done[stay], way.stream), "cudaEventRecord");
  way.going[stay] = way.used = true;
}

void StayCopies::send(size_t stay, void* host, const void* from, Bytes bytes) {
  copy(away_, stay, host, from, bytes, cudaMemcpyDeviceToHost);
}

void StayCopies::bring(size_t stay, void* to, const void* host, Bytes bytes) {
  copy(back_, stay, to, host, bytes, cudaMemcpyHostToDevice);
}

void StayCopies::wait(Way& way, size_t stay) {
  if (stay >= way.going.size() || !way.going[stay]) return;  // it was joined
  cuda_check(cudaStreamWaitEvent(kernels_, way.done[stay], 0), "cudaStreamWaitEvent");
  way.going[stay] = false;
}

void StayCopies::join() {
  for (Way* way : {&away_, &back_}) {
    if (!way->used) continue;
    cuda_check(cudaEventRecord(reached_, way->stream), "cudaEventRecord");
    cuda_check(cudaStreamWaitEvent(kernels_, reached_, 0), "cudaStreamWaitEvent");
    way->used = false;
    way->going.assign(way->going.size(), false);
  }
}

}  // namespace pl
