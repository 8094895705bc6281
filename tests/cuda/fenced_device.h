// Buffers on a device with fences around them, and calls of kernels on them.
#pragma once

#include <cuda_runtime_api.h>

#include <cstring>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "base/error.h"
#include "op/op.h"
#include "tests/guarded_call.h"

namespace pl::test {

inline constexpr unsigned char kNanPoison = 0xFF, kOtherPoison = 0x55, kMark = 0xA7;
inline constexpr Bytes kFence = 256;

inline void check(cudaError_t status) {
  if (status != cudaSuccess) throw BackendError(cudaGetErrorString(status));
}

// Buffers on the device, one behind the other, with fences right up to their edges.
class FencedDevice {
 public:
  explicit FencedDevice(CudaBackend& backend) : backend_(backend) {}

  // `beside`: bytes from an aligned address.
  char* add(Bytes bytes, const void* from, unsigned char poison, Bytes beside = 0) {
    const Bytes need = end_ + align_up(bytes + beside, kFence) + 2 * kFence;
    if (need > size_) throw InternalError("[test] the device's buffers are too small");
    char* data = memory() + end_ + kFence + beside;
    check(cudaMemset(data - kFence, kMark, static_cast<size_t>(kFence)));
    check(cudaMemset(data + bytes, kMark, static_cast<size_t>(kFence)));
    if (bytes > 0 && from)
      check(cudaMemcpy(data, from, static_cast<size_t>(bytes), cudaMemcpyHostToDevice));
    if (bytes > 0 && !from) check(cudaMemset(data, poison, static_cast<size_t>(bytes)));
    end_ = need;
    return data;
  }
  void clear(Bytes wanted) {
    end_ = 0;
    if (wanted <= size_) return;
    memory_.reset();
    memory_ = backend_.reserve(align_up(wanted, 64 * kMiB));
    backend_.synchronize();  // zeros are on their way
    size_ = align_up(wanted, 64 * kMiB);
  }
  static std::vector<unsigned char> content(const char* data, Bytes bytes) {
    std::vector<unsigned char> result(static_cast<size_t>(bytes));
    if (bytes > 0) check(cudaMemcpy(result.data(), data, result.size(), cudaMemcpyDeviceToHost));
    return result;
  }
  static bool intact(const char* data, Bytes bytes) {
    for (const char* at : {data - kFence, data + bytes})
      for (unsigned char byte : content(at, kFence))
        if (byte != kMark) return false;
    return true;
  }

 private:
  char* memory() const { return memory_->data(); }
  CudaBackend& backend_;
  std::unique_ptr<DeviceMemory> memory_;
  Bytes size_ = 0, end_ = 0;
};

// What lies beside its aligned place by so many bytes; null: nothing.
inline GuardedResult run_on_device(FencedDevice& buffers, Kernel& kernel, const Tensors& in,
                                   const Metas& out, unsigned char poison,
                                   std::span<const InOut> in_place = {},
                                   const Alignments* beside = nullptr) {
  Bytes wanted = kernel.workspace_bytes + 4 * kFence;
  for (const Tensor& tensor : in) wanted += tensor.meta().bytes() + 4 * kFence;
  for (const Meta& meta : out) wanted += meta.bytes() + 4 * kFence;
  buffers.clear(wanted);
  std::vector<void*> ins, outs;
  for (size_t i = 0; i < in.size(); ++i)
    ins.push_back(
        buffers.add(in[i].meta().bytes(), in[i].data(), poison, beside ? beside->in[i] : Bytes{0}));
  for (size_t o = 0; o < out.size(); ++o)
    outs.push_back(
        buffers.add(out[o].bytes(), nullptr, poison, beside ? beside->out[o] : Bytes{0}));
  const std::vector<void*> own = outs;
  std::vector<bool> replaced(in.size());
  for (const InOut& pair : in_place) {
    outs[static_cast<size_t>(pair.out)] = ins[static_cast<size_t>(pair.in)];
    replaced[static_cast<size_t>(pair.in)] = true;
  }
  char* workspace = buffers.add(kernel.workspace_bytes, nullptr, poison);
  check(cudaDeviceSynchronize());
  kernel.run(ins.data(), outs.data(), workspace);
  check(cudaDeviceSynchronize());

  GuardedResult result;
  if (!FencedDevice::intact(workspace, kernel.workspace_bytes))
    result.fault = "wrote outside its workspace";
  for (size_t i = 0; i < ins.size(); ++i) {
    const Bytes bytes = in[i].meta().bytes();
    const char* data = static_cast<char*>(ins[i]);
    if (!FencedDevice::intact(data, bytes))
      result.fault = "wrote around input " + std::to_string(i);
    if (!replaced[i] && bytes > 0 &&
        std::memcmp(FencedDevice::content(data, bytes).data(), in[i].data(),
                    static_cast<size_t>(bytes)) != 0)
      result.fault = "changed input " + std::to_string(i);
  }
  for (size_t o = 0; o < outs.size(); ++o) {
    if (!FencedDevice::intact(static_cast<char*>(own[o]), out[o].bytes()))
      result.fault = "wrote outside output " + std::to_string(o);
    result.out.push_back(FencedDevice::content(static_cast<char*>(outs[o]), out[o].bytes()));
  }
  return result;
}

}  // namespace pl::test
