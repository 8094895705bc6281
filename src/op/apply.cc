// Eager and traced calls meet here; the catalogue look-up and the shared row and cost rules too.
#include <map>

#include "base/error.h"
#include "op/op.h"
#include "op/recorder.h"
#include "op/widen.h"

namespace pl {
namespace {

Tensors run_eagerly(const Op& op, const Tensors& in, const Attrs& attrs) {
  Metas metas;
  for (const Tensor& tensor : in) metas.push_back(tensor.meta());
  const Metas outs = op.infer(metas, attrs);
  Backend& backend = BackendScope::current();
  auto kernel = prepare(op, {backend, metas, outs, attrs});
  std::vector<void*> in_pointers, out_pointers;
  for (const Tensor& tensor : in) in_pointers.push_back(tensor.data());
  Tensors result;
  for (size_t o = 0; o < outs.size(); ++o) {
    bool shared = false;
    for (const InOut& pair : op.alias)
      if (pair.out == static_cast<int>(o)) {
        result.emplace_back(outs[o], in[static_cast<size_t>(pair.in)].buffer());
        shared = true;
      }
    if (!shared) result.emplace_back(outs[o]);
    out_pointers.push_back(result.back().data());
  }
  if (!op.alias.empty()) return result;
  Buffer workspace(kernel->workspace_bytes);
  kernel->run(in_pointers.data(), out_pointers.data(), workspace.data());
  return result;
}

}  // namespace

Tensors apply(const Op& op, Tensors in, Attrs attrs) {
  Recorder* recorder = in.empty() ? RecorderScope::current() : nullptr;
  for (const Tensor& tensor : in) {
    if (!tensor.defined())
      throw UserError("[" + std::string(op.name) +
                      "] expected a tensor for every operand, received an empty one");
    if (tensor.is_symbol()) recorder = tensor.recorder();
  }
  if (!recorder) return run_eagerly(op, in, attrs);
  for (const Tensor& tensor : in)
    if (!tensor.is_symbol())
      throw UserError("[" + std::string(op.name) +
                      "] expected symbols only while tracing, received a value; make it an input "
                      "or a variable");
  return recorder->append(op, in, std::move(attrs));
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

std::unique_ptr<Kernel> prepare(const Op& op, const PrepareCall& call, const char* only) {
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
  std::string text;
  for (const Meta& meta : call.in) text += (text.empty() ? "" : ", ") + meta.text();
  throw UserError("[" + std::string(op.name) +
                  "] expected a call that has a kernel on this device, received " +
                  (text.empty() ? "no operands" : text) + " " + call.attrs.print());
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
