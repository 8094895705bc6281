// One call of a function as a graph. What library code sees of the function being traced: numbers
// that the host puts in before every call, such as a step's parameters.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "graph/graph.h"
#include "train/function.h"
#include "train/optimizer.h"

namespace pl {

struct HostInput {
  const void* key;  // one input for each in a trace
  std::string name;
  Meta meta;
  std::function<void(void* to)> fill;     // before a call
  std::function<void()> after = nullptr;  // when it succeeded
};

class FunctionTrace {
 public:
  virtual Tensor host_input(const HostInput& input) = 0;
  static FunctionTrace* current();  // null outside of traces

 protected:
  FunctionTrace();
  ~FunctionTrace();

 private:
  FunctionTrace* previous_;
};

// What optimisers do in a step of a model: their slots are that step's.
class StepHooks {
 public:
  virtual void apply_gradients(Optimizer& optimizer, const GradientsAndVariables& list) = 0;
  // By what the optimiser wants a loss scaled; undefined: by nothing.
  virtual Tensor loss_scale(Optimizer& optimizer, Dtype dtype) = 0;
  static StepHooks* current();  // null outside of such steps

 protected:
  StepHooks();
  ~StepHooks();

 private:
  StepHooks* previous_;
};

struct FunctionKey {
  Metas metas;
  std::vector<std::string> constants;
  bool operator==(const FunctionKey&) const = default;
};

// Where a result comes from.
struct FunctionOutput {
  enum class From : uint8_t { kept, argument, variable } from;
  size_t index;
  Meta meta;
};

// A traced step and what surrounds it.
struct TracedFunction {
  FunctionKey key;
  Graph graph;                                            // behind its passes
  std::vector<std::shared_ptr<VariableState>> variables;  // as the graph's
  std::vector<HostInput> host;                            // inputs behind the arguments
  std::vector<FunctionOutput> outputs;
  std::vector<std::string> names;
};

// A version of a variable must not be read behind the node that replaces it: its bytes are gone by
// then. Throws UserError.
void check_versions(const Graph& graph);

// Runs the function on symbols, and the passes of that kind of device on what it did. Throws
// UserError.
TracedFunction trace_function(const FunctionKey& key, const FunctionCore::Body& body,
                              DeviceKind device = DeviceKind::cpu);

}  // namespace pl
