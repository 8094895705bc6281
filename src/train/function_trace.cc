#include "train/function_trace.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "op/recorder.h"
#include "plan/passes.h"

namespace pl {
namespace {

thread_local FunctionTrace* current_trace = nullptr;
thread_local StepHooks* current_hooks = nullptr;

// Records a call. Values that it meets become inputs, variables become the graph's.
class Tracer final : public VariableTracer, public FunctionTrace {
 public:
  explicit Tracer(TracedFunction& traced) : traced_(traced), scope_(recorder_) {
    recorder_.set_capture([this](const Tensor& value) { return capture(value); });
  }

  Tensor argument(size_t i, const Meta& meta, bool rows) {
    return recorder_.input("argument " + std::to_string(i), meta, rows);
  }

  Tensor read(const std::shared_ptr<VariableState>& variable) override {
    const auto at = std::find(traced_.variables.begin(), traced_.variables.end(), variable);
    const auto index = static_cast<size_t>(at - traced_.variables.begin());
    if (at == traced_.variables.end()) {
      traced_.variables.push_back(variable);
      first_.push_back(
          recorder_.variable(path_for(variable->name), variable->meta, variable->category));
    }
    return last_version(first_[index]);
  }

  Tensor host_input(const HostInput& input) override {
    for (size_t i = 0; i < traced_.host.size(); ++i)
      if (traced_.host[i].key == input.key && traced_.host[i].meta == input.meta) return host_[i];
    traced_.host.push_back(input);
    host_.push_back(recorder_.input(input.name, input.meta, false));
    return host_.back();
  }

  void keep(const Tensor& result, size_t arguments) {
    if (!result.defined())
      throw UserError("expected results that are tensors, received an empty one");
    const Tensor symbol = result.is_symbol() ? result : capture(result);
    const Value& value = recorder_.graph().values[index(symbol.id())];
    const auto& inputs = recorder_.graph().inputs;
    const auto input = std::find(inputs.begin(), inputs.end(), symbol.id());
    FunctionOutput output{FunctionOutput::From::kept, recorder_.graph().keep.size(), symbol.meta()};
    if (input != inputs.end() && static_cast<size_t>(input - inputs.begin()) < arguments) {
      output = {FunctionOutput::From::argument, static_cast<size_t>(input - inputs.begin()),
                symbol.meta()};
    } else if (value.variable >= 0) {
      if (last_version(symbol).id() != symbol.id())
        throw UserError(traced_.variables[index(value.variable)]->name +
                        ": expected its last value as a result, received one from before an "
                        "assignment; compute what is needed of it before the assignment");
      output = {FunctionOutput::From::variable, index(value.variable), symbol.meta()};
    } else {
      recorder_.keep(symbol, "result " + std::to_string(output.index));
    }
    traced_.outputs.push_back(std::move(output));
  }

  Graph take() {
    check_versions(recorder_.graph());
    Graph graph = recorder_.take();
    check_graph(graph);
    return graph;
  }

 private:
  Tensor capture(const Tensor& value) {
    if (!value.buffer()) value.data();
    const void* key = value.buffer().get();
    return host_input({key, "constant", value.meta(), [value](void* to) {
                         std::memcpy(to, value.data(), static_cast<size_t>(value.meta().bytes()));
                       }});
  }

  std::string path_for(const std::string& name) const {
    auto taken = [&](const std::string& path) {
      for (const GraphVariable& variable : recorder_.graph().variables)
        if (variable.path == path) return true;
      return false;
    };
    std::string path = name;
    for (int n = 1; taken(path); ++n) path = name + "_" + std::to_string(n);
    return path;
  }

  TracedFunction& traced_;
  Recorder recorder_;
  RecorderScope scope_;
  Tensors first_;  // versions, as traced_.variables
  Tensors host_;   // as traced_.host
};

// Arguments with the same leading dimension as the first one count as samples of a batch, which a
// small budget may have worked off in parts.
std::vector<bool> carry_rows(const Metas& metas) {
  Dim batch = 0;
  std::vector<bool> rows;
  for (const Meta& meta : metas) {
    const bool has = meta.shape.rank() > 0 && meta.shape[0] > 1;
    if (has && batch == 0) batch = meta.shape[0];
    rows.push_back(has && meta.shape[0] == batch);
  }
  return rows;
}

}  // namespace

void check_versions(const Graph& graph) {
  std::vector<ValueId> newest;
  for (const GraphVariable& variable : graph.variables) newest.push_back(variable.first);
  for (const Node& node : graph.nodes) {
    for (ValueId in : node.in)
      if (const Value& value = graph.values[index(in)];
          value.variable >= 0 && newest[index(value.variable)] != in)
        throw UserError(graph.variables[index(value.variable)].path + ": expected " + node.op +
                        " to read it before it is assigned, received a value from before the "
                        "assignment; compute what needs the old value first");
    for (ValueId out : node.out)
      if (const Value& value = graph.values[index(out)]; value.variable >= 0)
        newest[index(value.variable)] = out;
  }
}

TracedFunction trace_function(const FunctionKey& key, const FunctionCore::Body& body,
                              DeviceKind device) {
  TracedFunction traced{.key = key};
  Tracer tracer(traced);
  const std::vector<bool> rows = carry_rows(key.metas);
  Tensors symbols;
  for (size_t i = 0; i < key.metas.size(); ++i)
    symbols.push_back(tracer.argument(i, key.metas[i], rows[i]));
  const FunctionCore::Results results = body(symbols);
  traced.names = results.names;
  for (const Tensor& result : results.tensors) tracer.keep(result, symbols.size());
  traced.graph = tracer.take();
  run_passes(traced.graph, passes_for(device));
  return traced;
}

StepHooks::StepHooks() : previous_(current_hooks) { current_hooks = this; }
StepHooks::~StepHooks() { current_hooks = previous_; }
StepHooks* StepHooks::current() { return current_hooks; }

FunctionTrace::FunctionTrace() : previous_(current_trace) { current_trace = this; }
FunctionTrace::~FunctionTrace() { current_trace = previous_; }
FunctionTrace* FunctionTrace::current() { return current_trace; }

}  // namespace pl
