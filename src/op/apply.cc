// Eager and traced calls meet here; the catalogue look-up and the shared row and cost rules too.
#include <algorithm>
#include <array>
#include <map>

#include "backend/backend_in_scope.h"
#include "base/error.h"
#include "op/device_kernels.h"
#include "op/observer.h"
#include "op/op.h"
#include "op/recorder.h"
#include "op/runtime.h"
#include "op/widen.h"

namespace pl {
namespace {

// An output's bytes: an operand's, where the op only renames them or where it updates a variable.
Tensor output(const Op& op, const Tensors& in, const Meta& meta, size_t o,
              const std::shared_ptr<ValueMemory>& memory) {
  for (const InOut& pair : op.alias)
    if (pair.out == static_cast<int>(o)) return {meta, in[static_cast<size_t>(pair.in)].buffer()};
  for (const InOut& pair : op.next_version)
    if (pair.out == static_cast<int>(o)) {
      const std::shared_ptr<Buffer>& buffer = in[static_cast<size_t>(pair.in)].buffer();
      if (buffer->is_variable()) return {meta, buffer};
    }
  return {meta, std::make_shared<Buffer>(meta.bytes(), memory)};
}

// On operands that lie where the kernel runs; `memory`: of results and workspace there.
Tensors run_kernel(const Op& op, const Tensors& in, const Metas& outs, Kernel* kernel,
                   const std::shared_ptr<ValueMemory>& memory) {
  Tensors result;
  result.reserve(outs.size());
  for (size_t o = 0; o < outs.size(); ++o) result.push_back(output(op, in, outs[o], o, memory));
  if (!kernel) return result;
  constexpr size_t kFew = 8;
  std::array<void*, kFew> few_in, few_out;
  std::vector<void*> many_in(in.size() > kFew ? in.size() : 0),
      many_out(outs.size() > kFew ? outs.size() : 0);
  void **from = many_in.empty() ? few_in.data() : many_in.data(),
       **to = many_out.empty() ? few_out.data() : many_out.data();
  for (size_t i = 0; i < in.size(); ++i) from[i] = in[i].place();
  for (size_t o = 0; o < outs.size(); ++o) to[o] = result[o].place();
  if (kernel->workspace_bytes > 0) {
    Buffer workspace(kernel->workspace_bytes, memory);
    kernel->run(from, to, workspace.data());
  } else {
    kernel->run(from, to, nullptr);
  }
  return result;
}

// A variable is updated where it lies, whatever the scope says.
const std::shared_ptr<DeviceSpace>& place_of(const Op& op, const Tensors& in) {
  for (const InOut& pair : op.next_version) {
    const std::shared_ptr<Buffer>& buffer = in[static_cast<size_t>(pair.in)].buffer();
    if (buffer->is_variable()) return buffer->space();
  }
  return device_of(in);
}

// The same bytes on that device, or on the host.
Tensor moved(const Tensor& tensor, const std::shared_ptr<DeviceSpace>& space) {
  if (tensor.buffer()->space() == space) return tensor;
  const Tensor copy = value_on(space, tensor.meta());
  copy_value(copy, tensor);
  return copy;
}

Tensors run_on(RuntimeDevice& device, const Op& op, const Tensors& in, const Attrs& attrs) {
  auto named = [&](const std::string& text) {
    return BackendError("[" + std::string(op.name) + "] " + text);
  };
  try {
    const KernelCache::Found found = device.kernels.find(op, in, attrs, *device.memory);
    Tensors there;
    for (const Tensor& tensor : in) there.push_back(moved(tensor, device.space));
    Tensors out = run_kernel(op, there, found->out, found->kernel.get(), device.memory);
    if (device.waits) device.space->backend().synchronize();
    return out;
  } catch (const DeviceFault& fault) {
    if (device.waits) throw named(fault.what());
    throw named("or an op before it: expected kernels that end, received " +
                std::string(fault.what()) + kFaultRemedy);
  } catch (const BackendError& error) {
    throw named(error.what());
  }
}

bool on_host(const Tensors& in) {
  for (const Tensor& tensor : in)
    if (tensor.buffer()->space()) return false;
  return true;
}

// By a kernel of this call's own, on the backend in scope.
Tensors run_prepared(const Op& op, const Tensors& in, const Attrs& attrs) {
  Metas metas;
  for (const Tensor& tensor : in) metas.push_back(tensor.meta());
  const Metas outs = op.infer(metas, attrs);
  std::unique_ptr<Kernel> kernel;
  if (op.alias.empty()) kernel = prepare(op, {BackendScope::current(), metas, outs, attrs});
  return run_kernel(op, in, outs, kernel.get(), MemoryScope::current());
}

Tensors run_eagerly(const Op& op, const Tensors& in, const Attrs& attrs) {
  if (!Runtime::current() && backend_in_scope()) return run_prepared(op, in, attrs);
  Runtime& runtime = Runtime::here();
  if (const auto& space = place_of(op, in)) return run_on(runtime.device(space), op, in, attrs);
  const auto& memory = MemoryScope::current() ? MemoryScope::current() : runtime.values();
  const KernelCache::Found found = runtime.kernel(op, in, attrs, *memory);
  if (on_host(in)) return run_kernel(op, in, found->out, found->kernel.get(), memory);
  Tensors here;
  for (const Tensor& tensor : in) here.push_back(moved(tensor, nullptr));
  return run_kernel(op, here, found->out, found->kernel.get(), memory);
}

// Which trace an op belongs to; null: it runs at once. In a trace that captures values every op is
// recorded.
Recorder* recorder_of(const Op& op, const Tensors& in) {
  Recorder* recorder = RecorderScope::current();
  if (recorder && !in.empty() && !recorder->captures()) recorder = nullptr;
  for (const Tensor& tensor : in) {
    if (!tensor.defined())
      throw UserError("[" + std::string(op.name) +
                      "] expected a tensor for every operand, received an empty one");
    if (tensor.is_symbol()) recorder = tensor.recorder();
  }
  return recorder;
}

}  // namespace

Tensors apply(const Op& op, Tensors in, Attrs attrs) {
  Recorder* recorder = recorder_of(op, in);
  if (recorder)
    for (Tensor& tensor : in) {
      if (tensor.is_symbol()) continue;
      if (!recorder->captures())
        throw UserError("[" + std::string(op.name) +
                        "] expected symbols only while tracing, received a value; make it an input "
                        "or a variable");
      tensor = recorder->capture(tensor);
    }
  const std::span<OpObserver* const> observers = observing();
  if (observers.empty())
    return recorder ? recorder->append(op, in, std::move(attrs)) : run_eagerly(op, in, attrs);
  Tensors out = recorder ? recorder->append(op, in, attrs) : run_eagerly(op, in, attrs);
  for (OpObserver* observer : observers) observer->on_apply(op, in, attrs, out);
  return out;
}

void expect_room(const Metas& values, const Tensors& operands) {
  const Recorder* recorder = RecorderScope::current();
  if (recorder && (operands.empty() || recorder->captures())) return;
  if (!Runtime::current() && backend_in_scope()) return;  // whoever put it there has the limit
  for (const Tensor& tensor : operands)
    if (tensor.is_symbol()) return;
  Bytes bytes = 0;
  for (const Meta& meta : values) bytes += meta.bytes();
  Runtime& runtime = Runtime::here();
  if (const auto& space = device_of(operands))
    return expect_room(bytes, *runtime.device(space).memory);
  expect_room(bytes, MemoryScope::current() ? *MemoryScope::current() : *runtime.values());
}

const Op* find_op(std::string_view name) {
  static const std::map<std::string_view, const Op*> index = [] {
    std::map<std::string_view, const Op*> map;
    for (const Op* op : catalogue()) map[op->name] = op;
    return map;
  }();
  auto found = index.find(name);
  return found == index.end() ? nullptr : found->second;
}

const Op& get_op(std::string_view name) {
  const Op* op = find_op(name);
  if (!op) throw InternalError("[op] '" + std::string(name) + "' is not in the catalogue");
  return *op;
}

namespace {

std::string operands_text(const PrepareCall& call) {
  std::string text;
  for (const Meta& meta : call.in) text += (text.empty() ? "" : ", ") + meta.text();
  return (text.empty() ? "no operands" : text) + " " + call.attrs.print();
}

std::unique_ptr<Kernel> prepare_from(const DeviceKernels& kernels, const Op& op,
                                     const PrepareCall& call, const char* only) {
  for (const DeviceKernel& entry : kernels.list) {
    if (std::string_view(entry.op->name) != op.name) continue;
    if (only && std::string_view(only) != entry.variant.name) continue;
    if (auto kernel = entry.variant.prepare(call)) {
      kernel->key = std::string(op.name) + ":" + entry.variant.name +
                    (kernel->key.empty() ? "" : ":" + kernel->key);
      return kernel;
    }
  }
  if (only) return nullptr;
  throw UserError("[prepare] " + std::string(op.name) + ": expected a kernel of the device for " +
                  operands_text(call) +
                  ", received none; use --device cpu, or pl::device(\"cpu\") for it");
}

// Where there is nothing to write: dimensions beside one of 0 may be as large as they like.
class NoKernel final : public Kernel {
 public:
  void run(void* const*, void* const*, void*) override {}
};

bool writes_nothing(const Metas& out) {
  return !out.empty() &&
         std::all_of(out.begin(), out.end(), [](const Meta& meta) { return meta.elements() == 0; });
}

}  // namespace

std::unique_ptr<Kernel> prepare(const Op& op, const PrepareCall& call, const char* only) {
  if (!only && call.backend.on_host() && writes_nothing(call.out)) {
    auto kernel = std::make_unique<NoKernel>();
    kernel->key = std::string(op.name) + ":nothing";
    kernel->footprint = sizeof(NoKernel);
    return kernel;
  }
  if (const DeviceKernels* kernels = call.backend.kernels())
    return prepare_from(*kernels, op, call, only);
  for (const Variant& variant : op.variants) {
    if (variant.device != call.backend.device().kind) continue;
    if (only && std::string_view(only) != variant.name) continue;
    if (auto kernel = variant.prepare(call)) {
      kernel->key = std::string(op.name) + ":" + variant.name +
                    (kernel->key.empty() ? "" : ":" + kernel->key);
      return kernel;
    }
  }
  if (call.backend.device().kind == DeviceKind::cpu &&
      (!only || std::string_view(only) == "widened"))
    if (auto kernel = cpu::widened(op, call)) {
      kernel->key = std::string(op.name) + ":widened:" + kernel->key;
      return kernel;
    }
  if (only) return nullptr;
  throw UserError("[" + std::string(op.name) +
                  "] expected a call that has a kernel on this device, received " +
                  operands_text(call));
}

Rows rows_map(const Attrs&, RowMask in) { return in ? Rows::maps : Rows::none; }
Rows rows_sum(const Attrs&, RowMask in) { return in ? Rows::sums : Rows::none; }
Rows rows_none(const Attrs&, RowMask) { return Rows::none; }

Cost pointwise_cost(const Metas& in, const Metas& out, double flops_per_element) {
  Cost cost;
  cost.narrow = !in.empty() && is_floating(in[0].dtype) && size_of(in[0].dtype) == 2;
  for (const Meta& meta : in) cost.bytes += static_cast<double>(meta.bytes());
  for (const Meta& meta : out) {
    cost.bytes += static_cast<double>(meta.bytes());
    cost.flops += flops_per_element * static_cast<double>(meta.elements());
  }
  return cost;
}

}  // namespace pl
