#include "train/diagnose.h"

#include <cmath>
#include <vector>

#include "tensor/bfloat16.h"

namespace pl {
namespace {

struct Found {
  int64_t element = -1;
  const char* what = "";
};

template <class T>
Found first_bad(const void* data, int64_t count, bool masked) {
  const T* values = static_cast<const T*>(data);
  for (int64_t i = 0; i < count; ++i) {
    const auto value = static_cast<double>(values[i]);
    if (std::isnan(value)) return {i, "NaN"};
    if (std::isinf(value) && !(masked && value < 0)) return {i, "infinity"};
  }
  return {};
}

// Of 16 bits, with the exponent's.
Found first_bad_narrow(const void* data, int64_t count, uint16_t exponent, bool masked) {
  const auto* bits = static_cast<const uint16_t*>(data);
  for (int64_t i = 0; i < count; ++i) {
    if ((bits[i] & exponent) != exponent) continue;
    const bool nan = bits[i] & (exponent ^ 0x7FFF);
    if (nan || !(masked && (bits[i] & 0x8000))) return {i, nan ? "NaN" : "infinity"};
  }
  return {};
}

// `masked`: minus infinity is what it should be.
Found first_bad(const void* data, const Meta& meta, bool masked = false) {
  switch (meta.dtype) {
    case Dtype::float32:
      return first_bad<float>(data, meta.elements(), masked);
    case Dtype::float64:
      return first_bad<double>(data, meta.elements(), masked);
    case Dtype::bfloat16:
      return first_bad_narrow(data, meta.elements(), 0x7F80, masked);
    case Dtype::float16:
      return first_bad_narrow(data, meta.elements(), 0x7C00, masked);
    default:
      return {};
  }
}

}  // namespace

std::string find_non_finite(Session& session, size_t signature, const StepParams& params,
                            std::span<const int64_t> samples) {
  if (const std::string path = session.variables().first_non_finite(); !path.empty())
    return path + " has a value that is not finite";
  const Graph& graph = session.plan().prepared[signature].graph;
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Value& value = graph.values[index(graph.inputs[i])];
    const Found found = first_bad(session.input(signature, i), value.meta);
    if (found.element < 0) continue;
    const auto row = static_cast<size_t>(
        value.rows ? found.element / value.meta.shape.without_front().elements() : 0);
    return value.path + " of the data is " + found.what +
           (value.rows && row < samples.size() ? " in sample " + std::to_string(samples[row]) : "");
  }
  if (session.eager()) return "";
  session.write_params(signature, params);
  session.send_inputs(signature);
  Backend& backend = session.plan().memory->book.backend();
  std::vector<char> copy;
  // Where the host finds an output that was just written.
  auto host = [&](const void* data, Bytes bytes) -> const void* {
    if (backend.on_host()) return data;
    copy.resize(static_cast<size_t>(bytes));
    backend.copy_out(copy.data(), data, bytes);
    backend.synchronize();
    return copy.data();
  };
  std::string where;
  session.executor(signature).watch_forward([&](const Graph& of, const Executor::Bound& step) {
    const Node& node = of.nodes[index(step.node)];
    for (size_t o = 0; o < node.out.size(); ++o) {
      const Meta& meta = of.values[index(node.out[o])].meta;
      const Found found =
          first_bad(host(step.out[o], meta.bytes()), meta, node.op == "causal_mask");
      if (found.element < 0) continue;
      where = (node.path.empty() ? node.op : node.path) + " is the first layer whose output has " +
              (found.what[0] == 'N' ? "a NaN" : "an infinity") + " (" + node.op + ", " +
              meta.text() + ")";
      return false;
    }
    return true;
  });
  return where;
}

}  // namespace pl
