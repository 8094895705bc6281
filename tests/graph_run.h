// Two ways to run a traced graph: by its plan in one poisoned arena, and by an interpreter that
// never reuses a byte. Whatever a plan does, both must give the same bits.
#pragma once

#include <cstring>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "base/error.h"
#include "execute/executor.h"
#include "execute/prepared.h"
#include "op/step_params.h"
#include "plan/passes.h"
#include "plan/split.h"

namespace pl::test {

// A graph as it is, planned and validated.
inline Prepared prepare_as_is(Graph graph, Backend& backend, const Decision& decision = {}) {
  Prepared result;
  const VariableLayout layout = layout_variables(graph.variables, backend.alignment());
  result.graph = std::move(graph);
  KernelBook book(backend);
  result.facts = book.facts(result.graph);
  result.plan = make_plan(result.graph, result.facts, layout, backend.alignment(), decision);
  validate(result.graph, result.plan, result.facts);
  result.kernels = book.kernels(result.graph);
  return result;
}

// A graph behind its passes, whole or in micro-batches.
inline Prepared prepare_split(Graph graph, Backend& backend, int64_t trips,
                              const Decision& decision = {}) {
  Prepared result =
      prepare_as_is(trips > 1 ? split_batch(graph, trips) : std::move(graph), backend, decision);
  result.split = trips;
  return result;
}

inline constexpr unsigned char kPoison = 0xFF;  // NaN in every floating dtype

inline PassOptions all_passes_off() {
  PassOptions options;
  for (const Pass& pass : passes()) options.off.insert(pass.name);
  return options;
}
inline PassOptions only_pass(const std::string& name) {
  PassOptions options = all_passes_off();
  options.off.erase(name);
  return options;
}

// Runs the plan of a graph. Not movable: the executor refers to its members.
class PlannedRun {
 public:
  PlannedRun(Graph graph, Backend& backend, const PassOptions& options = {})
      : PlannedRun(prepare_graph(graph, backend, layout_of(graph, backend.alignment()), options)) {}
  explicit PlannedRun(Prepared prepared)
      : prepared_(std::move(prepared)), arena_(prepared_.plan.arena) {
    std::memset(arena_.data(), kPoison, static_cast<size_t>(arena_.bytes()));
    executor_ = std::make_unique<Executor>(prepared_.graph, prepared_.plan, prepared_.kernels,
                                           ArenaView{data(), data() + prepared_.plan.persistent});
    const Plan& plan = prepared_.plan;
    dead_ = find_dead(graph(), plan, 0, plan.arena);
    for (size_t l = 0; l < plan.loops.size(); ++l)
      body_dead_.push_back(find_dead(graph().loops[l].body, plan.loops[l], plan.loops[l].persistent,
                                     plan.loops[l].arena));
  }
  PlannedRun(const PlannedRun&) = delete;
  PlannedRun& operator=(const PlannedRun&) = delete;

  static VariableLayout layout_of(const Graph& graph, Bytes alignment) {
    return layout_variables(graph.variables, alignment);
  }

  const Prepared& prepared() const { return prepared_; }
  const Graph& graph() const { return prepared_.graph; }
  const Plan& plan() const { return prepared_.plan; }
  const Executor& executor() const { return *executor_; }
  char* data() { return static_cast<char*>(arena_.data()); }
  void* input(size_t i) { return executor_->input(i); }
  const void* kept(size_t i) { return executor_->kept(i); }
  void* variable(size_t v) { return data() + prepared_.plan.variable_at[v]; }

  void step(StepTimes* times = nullptr) { executor_->step(times); }

  // One kernel about to run: in a loop's body once in every trip, with that trip's pointers.
  struct Call {
    const Graph& graph;  // the whole step's, or that of a body
    size_t step;         // of the plan or of the body's plan
    int loop;            // -1: none
    Kernel& kernel;
    NodeId node;
    const std::vector<void*>& in;
    const std::vector<void*>& out;
    void* workspace;
    void run() const { kernel.run(in.data(), out.data(), workspace); }
  };
  // The step from outside: `each` must run every call that it is shown.
  template <class Each>
  void each_call(const Each& each) {
    for (size_t s = 0; s < executor_->steps().size(); ++s) {
      const Executor::Bound& bound = executor_->steps()[s];
      if (bound.loop < 0) {
        each(Call{graph(), s, -1, *bound.kernel, bound.node, bound.in, bound.out, bound.workspace});
        continue;
      }
      each_trip(bound.loop, each);
      poison(dead_[s]);  // what only the loop has read
    }
  }

  // The same as step(), and every byte that nothing will read again is poisoned as soon as that is
  // so; of a body's own part in every trip.
  void step_poisoned() {
    each_call([&](const Call& call) {
      call.run();
      poison(call.loop < 0 ? dead_[call.step] : body_dead_[index(call.loop)][call.step]);
    });
  }

 private:
  using Cells = std::vector<size_t>;  // of one alignment each

  size_t cell_bytes() const { return static_cast<size_t>(prepared_.plan.alignment); }
  void poison(const Cells& cells) {
    for (size_t cell : cells) std::memset(data() + cell * cell_bytes(), kPoison, cell_bytes());
  }

  template <class Each>
  void each_trip(int l, const Each& each) {
    const Executor::BoundLoop& loop = executor_->loops()[index(l)];
    std::vector<Executor::Bound> steps = loop.steps;
    for (const auto& [sum, bytes] : loop.sums) std::memset(sum, 0, static_cast<size_t>(bytes));
    for (int64_t trip = 0; trip < loop.trips; ++trip) {
      loop.prepare(trip, steps);
      for (size_t s = 0; s < steps.size(); ++s)
        each(Call{*loop.body, s, l, *steps[s].kernel, steps[s].node, steps[s].in, steps[s].out,
                  steps[s].workspace});
    }
  }

  // Backwards over the steps, by cells of one alignment: a cell lives while a later step reads it
  // before it is written, or while a kept value or a variable is in it. Cells outside of [first,
  // last) are not looked at: of a body only its own part, where no value outlives a trip.
  static std::vector<Cells> find_dead(const Graph& graph, const Plan& plan, ByteOffset first,
                                      ByteOffset last) {
    std::vector<bool> live(static_cast<size_t>((last - first) / plan.alignment), false);
    auto mark = [&](ByteOffset at, Bytes bytes, bool lives) {
      if (at < first || at >= last) return;
      for (Bytes byte = at - first; byte < at - first + bytes; byte += plan.alignment)
        live[static_cast<size_t>(byte / plan.alignment)] = lives;
    };
    auto bytes = [&](ValueId id) { return graph.values[index(id)].meta.bytes(); };
    for (size_t v = 0; v < graph.variables.size(); ++v)
      mark(plan.variable_at[v], graph.variables[v].meta.bytes(), true);
    for (size_t k = 0; k < graph.keep.size(); ++k)
      mark(plan.keep_at[k], bytes(graph.keep[k]), true);
    std::vector<Cells> dead(plan.steps.size());
    for (size_t s = plan.steps.size(); s-- > 0;) {
      for (size_t cell = 0; cell < live.size(); ++cell)
        if (!live[cell]) dead[s].push_back(static_cast<size_t>(first / plan.alignment) + cell);
      const Step& step = plan.steps[s];
      const Node& node = graph.nodes[index(step.node)];
      for (size_t o = 0; o < step.out.size(); ++o)
        if (graph.values[index(node.out[o])].variable < 0)
          mark(step.out[o], bytes(node.out[o]), false);
      for (size_t i = 0; i < step.in.size(); ++i) mark(step.in[i], bytes(node.in[i]), true);
    }
    return dead;
  }

  Prepared prepared_;
  Buffer arena_;
  std::unique_ptr<Executor> executor_;
  std::vector<Cells> dead_;                    // per step: cells that are dead behind it
  std::vector<std::vector<Cells>> body_dead_;  // per loop and step of its body
};

// Runs a graph node by node, in base order, with a buffer of its own for every value.
class Interpreter {
 public:
  Interpreter(const Graph& graph, Backend& backend) : graph_(graph) {
    for (const Value& value : graph.values)
      values_.push_back(std::make_unique<Buffer>(value.meta.bytes()));
    for (const Node& node : graph.nodes) {
      const Op& op = get_op(node.op);
      Metas in, out;
      for (ValueId id : node.in) in.push_back(meta(id));
      for (ValueId id : node.out) out.push_back(meta(id));
      kernels_.push_back(op.alias.empty() ? prepare(op, {backend, in, out, node.attrs}) : nullptr);
    }
  }

  const Graph& graph() const { return graph_; }
  void* input(size_t i) { return data(graph_.inputs[i]); }
  const void* kept(size_t i) { return data(graph_.keep[i]); }
  void* variable(size_t v) { return data(graph_.variables[v].first); }

  void step() {
    for (size_t n = 0; n < graph_.nodes.size(); ++n) run(n);
    for (const GraphVariable& variable : graph_.variables)
      if (variable.last != variable.first)
        std::memcpy(data(variable.first), data(variable.last),
                    static_cast<size_t>(variable.meta.bytes()));
  }

 private:
  const Meta& meta(ValueId id) const { return graph_.values[static_cast<size_t>(id)].meta; }
  void* data(ValueId id) { return values_[static_cast<size_t>(id)]->data(); }

  void run(size_t n) {
    const Node& node = graph_.nodes[n];
    std::vector<void*> in, out;
    for (ValueId id : node.in) in.push_back(data(id));
    for (ValueId id : node.out) {
      std::memset(data(id), kPoison, static_cast<size_t>(meta(id).bytes()));
      out.push_back(data(id));
    }
    if (!kernels_[n]) {
      for (const InOut& pair : get_op(node.op).alias)
        std::memcpy(out[static_cast<size_t>(pair.out)], in[static_cast<size_t>(pair.in)],
                    static_cast<size_t>(meta(node.out[static_cast<size_t>(pair.out)]).bytes()));
      return;
    }
    Buffer workspace(kernels_[n]->workspace_bytes);
    std::memset(workspace.data(), kPoison, static_cast<size_t>(workspace.bytes()));
    kernels_[n]->run(in.data(), out.data(), workspace.data());
  }

  const Graph& graph_;
  std::vector<std::unique_ptr<Buffer>> values_;
  std::vector<std::unique_ptr<Kernel>> kernels_;
};

// A small generator whose stream is part of the tests: never changed by a library's version.
class Numbers {
 public:
  explicit Numbers(uint64_t seed) : state_(seed * 0x9E3779B97F4A7C15u + 1) {}
  uint64_t next() {
    uint64_t z = (state_ += 0x9E3779B97F4A7C15u);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
    return z ^ (z >> 31);
  }
  int below(int limit) { return static_cast<int>(next() % static_cast<uint64_t>(limit)); }
  bool chance(double share) { return real() < share; }
  double real() { return static_cast<double>(next() >> 11) * 0x1p-53; }  // [0, 1)

 private:
  uint64_t state_;
};

// Multiples of 1/64 in [-1, 1): ties, zeros and exact sums do occur.
inline void fill_numbers(const Meta& meta, Numbers& numbers, void* data, int labels = 2) {
  for (int64_t i = 0, count = meta.elements(); i < count; ++i) {
    const double value = static_cast<double>(numbers.below(128) - 64) / 64;
    switch (meta.dtype) {
      case Dtype::float32:
        static_cast<float*>(data)[i] = static_cast<float>(value);
        break;
      case Dtype::float64:
        static_cast<double*>(data)[i] = value;
        break;
      case Dtype::int32:
        static_cast<int32_t*>(data)[i] = numbers.below(labels);
        break;
      default:
        static_cast<uint8_t*>(data)[i] = static_cast<uint8_t>(numbers.below(256));
    }
  }
}

// Inputs may lie where a step has worked, so they are written anew before each. `Run` is either of
// the two above.
template <class Run>
void fill_inputs(Run& run, uint64_t seed, int64_t step = 1, int labels = 2) {
  const Graph& graph = run.graph();
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Meta& meta = graph.values[static_cast<size_t>(graph.inputs[i])].meta;
    if (meta == step_params_meta()) {
      const StepParams params{.step = step, .seed = 11, .learning_rate = 0.0625, .rows = 4};
      std::memcpy(run.input(i), &params, sizeof params);
    } else {
      Numbers numbers(seed * 1000 + i);
      fill_numbers(meta, numbers, run.input(i), labels);
    }
  }
}

template <class Run>
void fill_variables(Run& run, uint64_t seed) {
  const Graph& graph = run.graph();
  for (size_t v = 0; v < graph.variables.size(); ++v) {
    Numbers numbers(seed * 1000 + 500 + v);
    fill_numbers(graph.variables[v].meta, numbers, run.variable(v));
  }
}

// Bytes of all kept values and variables.
template <class Run>
std::vector<std::string> results(Run& run) {
  const Graph& graph = run.graph();
  std::vector<std::string> list;
  for (size_t k = 0; k < graph.keep.size(); ++k)
    list.emplace_back(static_cast<const char*>(run.kept(k)),
                      graph.values[static_cast<size_t>(graph.keep[k])].meta.bytes());
  for (size_t v = 0; v < graph.variables.size(); ++v)
    list.emplace_back(static_cast<const char*>(run.variable(v)), graph.variables[v].meta.bytes());
  return list;
}

// What differs first, or "".
inline std::string difference(const Graph& graph, const std::vector<std::string>& a,
                              const std::vector<std::string>& b) {
  if (a.size() != b.size()) return "other numbers of results";
  for (size_t i = 0; i < a.size(); ++i) {
    if (a[i] == b[i]) continue;
    if (i < graph.keep.size())
      return "kept value " + std::to_string(i) + " (" +
             graph.values[static_cast<size_t>(graph.keep[i])].path + ")";
    return "variable " + graph.variables[i - graph.keep.size()].path;
  }
  return "";
}

// The node lines of a printed graph alone, without attributes, types and paths.
inline std::string calls(const std::string& text) {
  std::string out, line;
  for (std::istringstream lines(text); std::getline(lines, line);)
    if (line[0] == '%') out += line.substr(0, line.find(')') + 1) + "\n";
  return out;
}

// The message of the error that `action` throws, or "".
template <class Kind, class Action>
std::string error_of(const Action& action) {
  try {
    action();
  } catch (const Kind& error) {
    return error.what();
  }
  return "";
}

}  // namespace pl::test
