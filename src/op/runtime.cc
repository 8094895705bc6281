#include "op/runtime.h"

#include <algorithm>

#include "base/error.h"

namespace pl {
namespace {

// Of the limit an eighth at most is for kernels.
constexpr size_t kMostKernels = 512;
constexpr Bytes kKernelShare = 8, kMostKernelBytes = 32 * kMiB;

thread_local Runtime* current_runtime = nullptr;

std::optional<Bytes> limit_of(const std::string& memory) {
  if (memory.empty()) return std::nullopt;
  return parse_bytes(memory, "memory");
}

}  // namespace

Runtime::Runtime(const RuntimeOptions& options)
    : backend_(options.threads),
      memory_(std::make_shared<ValueMemory>(limit_of(options.memory))),
      kernels_(backend_, memory_, kMostKernels,
               std::min(kMostKernelBytes, memory_->room() / kKernelShare)),
      memory_scope_(memory_),
      backend_scope_(backend_),
      previous_(current_runtime) {
  current_runtime = this;
}

Runtime::~Runtime() { current_runtime = previous_; }

Runtime* Runtime::current() { return current_runtime; }

KernelCache::Found Runtime::kernel(const Op& op, const Tensors& in, const Attrs& attrs) {
  backend_.use();
  return kernels_.find(op, in, attrs);
}

void Runtime::trim() {
  kernels_.clear();
  memory_->trim();
}

DeviceScope::DeviceScope(const std::string& name) {
  std::string lower;
  for (char c : name) lower += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  for (const char* known : {"cpu", "cpu:0", "/cpu:0", "/device:cpu:0"})
    if (lower == known) return;
  throw UserError("[device] expected cpu, the only device of this build, received '" + name +
                  "'; use pl::device(\"cpu\") or leave it out");
}

}  // namespace pl
