#include "execute/executor.h"

#include <algorithm>
#include <chrono>

#include "base/error.h"

namespace pl {
Executor::Executor(const Graph& graph, const Plan& plan,
                   std::span<const std::unique_ptr<Kernel>> kernels, ArenaView arena)
    : graph_(graph), arena_(arena), persistent_(plan.persistent), alignment_(plan.alignment) {
  auto bytes = [&](ValueId id) { return graph.values[index(id)].meta.bytes(); };
  for (size_t v = 0; v < graph.variables.size(); ++v)
    grant(plan.variable_at[v], graph.variables[v].meta.bytes());
  for (size_t i = 0; i < graph.inputs.size(); ++i)
    inputs_.push_back(grant(plan.input_at[i], bytes(graph.inputs[i])));
  for (size_t k = 0; k < graph.keep.size(); ++k)
    kept_.push_back(grant(plan.keep_at[k], bytes(graph.keep[k])));
  for (const Step& step : plan.steps) {
    const Node& node = graph.nodes[index(step.node)];
    Bound bound{.kernel = kernels[index(step.node)].get(), .node = step.node, .workspace = nullptr};
    check(bound.kernel != nullptr, "a step has no prepared kernel");
    for (size_t i = 0; i < step.in.size(); ++i)
      bound.in.push_back(grant(step.in[i], bytes(node.in[i])));
    for (size_t o = 0; o < step.out.size(); ++o)
      bound.out.push_back(grant(step.out[o], bytes(node.out[o])));
    if (bound.kernel->workspace_bytes > 0)
      bound.workspace = grant(step.workspace_at, bound.kernel->workspace_bytes);
    steps_.push_back(std::move(bound));
  }
}

void* Executor::grant(ByteOffset at, Bytes bytes) {
  used_ = std::max(used_, at + align_up(bytes, alignment_));
  return at < persistent_ ? arena_.persistent + at : arena_.transient + (at - persistent_);
}

void Executor::step(StepTimes* times) {
  using Clock = std::chrono::steady_clock;
  check(!times || times->size() == steps_.size(), "one time per step");
  const Bound* current = nullptr;
  Clock::time_point before;
  if (times) before = Clock::now();
  try {
    for (const Bound& bound : steps_) {
      current = &bound;
      bound.kernel->run(bound.in.data(), bound.out.data(), bound.workspace);
      if (!times) continue;
      const Clock::time_point after = Clock::now();
      (*times)[static_cast<size_t>(&bound - steps_.data())] =
          std::chrono::nanoseconds(after - before).count();
      before = after;
    }
  } catch (const Error& error) {
    const Node& node = graph_.nodes[index(current->node)];
    throw BackendError("[" + node.path + "] " + node.op + ": " + error.what());
  }
}

}  // namespace pl
