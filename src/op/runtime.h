// Runtime: what eager code runs on, threads and memory. While one lives, ops on values and tensors
// made on its thread belong to it. Where none lives, ops run on one of the thread's own, with all
// cores and without a limit.
//
//   Runtime runtime({.memory = "64MiB"});
//   const Tensor y = matmul(x, w);
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "backend/cpu/cpu_backend.h"
#include "op/kernel_cache.h"

namespace pl {

struct RuntimeOptions {
  std::string memory = "";  // "64MiB": the most that values, their workspaces, tapes and prepared
                            // kernels may hold; empty: no limit
  int threads = 0;          // 0: all cores
  std::string device_memory = "";  // the same for values, workspaces and functions on a GPU
};

// A device other than the processor, as a Runtime uses it.
struct RuntimeDevice {
  // `chooses`: the backend of `of` whose kernels run. `host`: what they hold is charged to it.
  RuntimeDevice(std::shared_ptr<DeviceSpace> of, Backend& chooses, std::optional<Bytes> limit,
                std::shared_ptr<ValueMemory> host);
  std::shared_ptr<DeviceSpace> space;
  std::shared_ptr<ValueMemory> memory;
  KernelCache kernels;
  bool waits;  // behind each op: PLIMSOLL_SYNC
};

// For one thread at a time; values may die on any. Runtimes nest: the innermost counts.
class Runtime {
 public:
  explicit Runtime(const RuntimeOptions& options = {});
  ~Runtime();
  Runtime(const Runtime&) = delete;
  Runtime& operator=(const Runtime&) = delete;
  static Runtime* current();  // null when there is none
  static Runtime& here();     // that, or the thread's own, from its first use to the thread's end

  CpuBackend& backend() { return backend_; }
  const std::shared_ptr<ValueMemory>& values() const { return memory_; }
  MemoryFigures memory() const { return memory_->figures(); }
  void trim();  // gives cached kernels and pages of dead values back to the system
  int64_t next_draw() { return ++draws_; }  // of random numbers on values
  size_t cached_kernels() const { return kernels_.size(); }

  // Prepared for the call's operands and attributes, now or before.
  KernelCache::Found kernel(const Op& op, const Tensors& in, const Attrs& attrs,
                            const ValueMemory& results);

  // From the first value there until the Runtime ends, with kernels that give the same bits in
  // every run, unless whoever asks first has other ones.
  RuntimeDevice& device(const std::shared_ptr<DeviceSpace>& space, Backend* chooses = nullptr);
  MemoryFigures device_memory() const;  // of all of them

 private:
  enum class Scope : uint8_t { whole, none };  // none: the thread's own
  Runtime(const RuntimeOptions& options, Scope scope);

  CpuBackend backend_;
  std::string device_memory_;
  std::shared_ptr<ValueMemory> memory_;
  KernelCache kernels_;
  std::vector<std::unique_ptr<RuntimeDevice>> devices_;
  std::optional<MemoryScope> memory_scope_;
  std::optional<BackendScope> backend_scope_;
  Runtime* previous_ = nullptr;
  int64_t draws_ = 0;
};

// The device on which ops run while it is in scope: "cpu", "cuda", "cuda:1", or TensorFlow's
// "/GPU:0". An op's operands that lie elsewhere are copied there, its results stay there. Without a
// scope an op runs where the first of its operands that lies on a device does, else on the
// processor. A variable is updated where it lies. Throws UserError where there is no such device.
class DeviceScope {
 public:
  explicit DeviceScope(const std::string& name);
  explicit DeviceScope(std::shared_ptr<DeviceSpace> space);  // null: the processor
  ~DeviceScope();
  DeviceScope(const DeviceScope&) = delete;
  DeviceScope& operator=(const DeviceScope&) = delete;
  static const DeviceScope* current();  // null when there is none
  const std::shared_ptr<DeviceSpace>& space() const { return space_; }

 private:
  std::shared_ptr<DeviceSpace> space_;
  const DeviceScope* previous_;
};
[[nodiscard]] inline DeviceScope device(const std::string& name) { return DeviceScope(name); }

// Where an op with these operands runs; null: on the processor.
const std::shared_ptr<DeviceSpace>& device_of(const Tensors& operands);
// Not initialised, in that memory; on a device a Runtime must live.
Tensor value_on(const std::shared_ptr<DeviceSpace>& space, const Meta& meta);
void copy_value(const Tensor& to, const Tensor& from);  // of one meta, wherever they lie

}  // namespace pl
