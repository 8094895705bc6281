// Runtime: what eager code runs on, threads and memory. While one lives, ops on values and tensors
// made on its thread belong to it.
//
//   Runtime runtime({.memory = "64MiB"});
//   const Tensor y = matmul(x, w);
#pragma once

#include <memory>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "op/kernel_cache.h"

namespace pl {

struct RuntimeOptions {
  std::string memory = "";  // "64MiB": the most that values, their workspaces, tapes and prepared
                            // kernels may hold; empty: no limit
  int threads = 0;          // 0: all cores
};

// For one thread at a time; values may die on any. Runtimes nest: the innermost counts.
class Runtime {
 public:
  explicit Runtime(const RuntimeOptions& options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  static Runtime* current();  // null when there is none

  CpuBackend& backend() { return backend_; }
  const std::shared_ptr<ValueMemory>& values() const { return memory_; }
  MemoryFigures memory() const { return memory_->figures(); }
  void trim();  // gives cached kernels and pages of dead values back to the system
  size_t cached_kernels() const { return kernels_.size(); }

  // Prepared for the call's operands and attributes, now or before.
  KernelCache::Found kernel(const Op& op, const Tensors& in, const Attrs& attrs);

 private:
  CpuBackend backend_;
  std::shared_ptr<ValueMemory> memory_;
  KernelCache kernels_;
  MemoryScope memory_scope_;
  BackendScope backend_scope_;
  Runtime* previous_;
};

// The device on which ops run while it is in scope. There is one now, the processor: "cpu",
// "cpu:0" or TensorFlow's "/CPU:0". Throws UserError for others.
class DeviceScope {
 public:
  explicit DeviceScope(const std::string& name);
};
[[nodiscard]] inline DeviceScope device(const std::string& name) { return DeviceScope(name); }

}  // namespace pl
