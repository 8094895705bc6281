#include "op/runtime.h"

#include <algorithm>
#include <cstring>
#include <utility>

#include "backend/devices.h"

namespace pl {
namespace {

// Of the limit an eighth at most is for kernels.
constexpr size_t kMostKernels = 512;
constexpr Bytes kKernelShare = 8, kMostKernelBytes = 32 * kMiB;

thread_local Runtime* current_runtime = nullptr;
thread_local const DeviceScope* current_device = nullptr;

std::optional<Bytes> limit_of(const std::string& memory, const char* option) {
  if (memory.empty()) return std::nullopt;
  return parse_bytes(memory, option);
}

}  // namespace

Runtime::Runtime(const RuntimeOptions& options) : Runtime(options, Scope::whole) {}

Runtime::Runtime(const RuntimeOptions& options, Scope scope)
    : backend_(options.threads),
      device_memory_(options.device_memory),
      memory_(std::make_shared<ValueMemory>(limit_of(options.memory, "memory"))),
      kernels_(backend_, memory_, kMostKernels,
               std::min(kMostKernelBytes, memory_->room() / kKernelShare)) {
  if (scope == Scope::none) return;
  memory_scope_.emplace(memory_);
  backend_scope_.emplace(backend_);
  previous_ = std::exchange(current_runtime, this);
}

Runtime::~Runtime() {
  if (backend_scope_) current_runtime = previous_;
}

Runtime* Runtime::current() { return current_runtime; }

Runtime& Runtime::here() {
  if (current_runtime) return *current_runtime;
  static thread_local std::unique_ptr<Runtime> own;
  if (!own) own.reset(new Runtime({}, Scope::none));
  return *own;
}

KernelCache::Found Runtime::kernel(const Op& op, const Tensors& in, const Attrs& attrs,
                                   const ValueMemory& results) {
  backend_.use();
  return kernels_.find(op, in, attrs, results);
}

RuntimeDevice::RuntimeDevice(std::shared_ptr<DeviceSpace> of, Backend& chooses,
                             std::optional<Bytes> limit, std::shared_ptr<ValueMemory> host)
    : space(std::move(of)),
      memory(std::make_shared<ValueMemory>(limit, space)),
      kernels(chooses, std::move(host), kMostKernels, kMostKernelBytes),
      waits(waits_behind_each_op()) {}

RuntimeDevice& Runtime::device(const std::shared_ptr<DeviceSpace>& space, Backend* chooses) {
  for (const auto& known : devices_)
    if (known->space == space) return *known;
  return *devices_.emplace_back(
      std::make_unique<RuntimeDevice>(space, chooses ? *chooses : space->backend(),
                                      limit_of(device_memory_, "device_memory"), memory_));
}

MemoryFigures Runtime::device_memory() const {
  MemoryFigures sum;
  for (const auto& device : devices_) {
    const MemoryFigures one = device->memory->figures();
    sum.limit = one.limit;
    sum.used += one.used;
    sum.peak += one.peak;
    sum.kept += one.kept;
    sum.values += one.values;
  }
  return sum;
}

void Runtime::trim() {
  kernels_.clear();
  memory_->trim();
  for (const auto& device : devices_) {
    device->kernels.clear();
    device->memory->trim();
  }
}

DeviceScope::DeviceScope(const std::string& name)
    : DeviceScope(Devices::current()->open(device_from_name(name))) {}
DeviceScope::DeviceScope(std::shared_ptr<DeviceSpace> space)
    : space_(std::move(space)), previous_(current_device) {
  current_device = this;
  if (space_) Runtime::here().device(space_);
}
DeviceScope::~DeviceScope() { current_device = previous_; }
const DeviceScope* DeviceScope::current() { return current_device; }

const std::shared_ptr<DeviceSpace>& device_of(const Tensors& operands) {
  static const std::shared_ptr<DeviceSpace> processor;
  if (current_device) return current_device->space();
  for (const Tensor& tensor : operands)
    if (tensor.buffer() && tensor.buffer()->space()) return tensor.buffer()->space();
  return processor;
}

Tensor value_on(const std::shared_ptr<DeviceSpace>& space, const Meta& meta) {
  if (!space) return Tensor(meta);
  return {meta, std::make_shared<Buffer>(meta.bytes(), Runtime::here().device(space).memory)};
}

void copy_value(const Tensor& to, const Tensor& from) {
  const Bytes bytes = to.meta().bytes();
  const std::shared_ptr<DeviceSpace>& space = to.buffer()->space();
  if (!space)
    std::memcpy(to.place(), from.data(), static_cast<size_t>(bytes));
  else if (space == from.buffer()->space())
    space->copy(to.place(), from.place(), bytes);
  else
    space->write(to.place(), from.data(), bytes);
}

}  // namespace pl
