#include "train/session.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <set>

#include "backend/cpu/code_pages.h"
#include "base/error.h"
#include "train/footprint.h"

namespace pl {

SessionPlan plan_session(const Network& network, const Compiled& compiled, Backend& backend,
                         const std::vector<Signature>& signatures, const SampleSpec& sample,
                         Bytes source_bytes, const VariableLayout* layout) {
  const auto start = std::chrono::steady_clock::now();
  SessionPlan result;
  result.signatures = signatures;
  result.metrics = compiled.metrics.size();
  std::vector<Graph> graphs;
  for (const Signature& signature : signatures)
    graphs.push_back(trace_step(network, compiled, signature, sample));
  // The signature with the most variables (a training one, if any) fixes the layout for all.
  const auto widest = std::max_element(
      graphs.begin(), graphs.end(),
      [](const Graph& a, const Graph& b) { return a.variables.size() < b.variables.size(); });
  result.layout = layout ? *layout : layout_variables(widest->variables, backend.alignment());
  Bytes kernel_bytes = 0, transient_bytes = 0;
  size_t nodes = 0;
  std::set<std::string> library_ops;
  for (Graph& graph : graphs) {
    result.prepared.push_back(prepare_graph(std::move(graph), backend, result.layout));
    const Prepared& prepared = result.prepared.back();
    kernel_bytes += prepared.kernel_bytes;
    transient_bytes = std::max(transient_bytes, prepared.transient_bytes);
    nodes += prepared.graph.nodes.size();
    for (size_t n = 0; n < prepared.facts.size(); ++n)
      if (prepared.facts[n].key.find(":onednn") != std::string::npos)
        library_ops.insert(prepared.graph.nodes[n].op);
    if (prepared.plan.arena > result.arena) {
      result.arena = prepared.plan.arena;
      result.fullest = result.prepared.size() - 1;
    }
    result.floor = std::max(result.floor, prepared.plan.floor);
  }
  FootprintFacts facts{.threads = backend.threads(),
                       .library_ops = library_ops.size(),
                       .kernel_bytes = kernel_bytes,
                       .nodes = nodes,
                       .transient_bytes = transient_bytes,
                       .narrow_simd = backend.narrow_simd(),
                       .source_bytes = source_bytes,
                       .arena = result.arena};
  result.fixed = fixed_bytes(facts);
  facts.arena = result.floor;
  result.floor += fixed_bytes(facts);
  result.plan_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

Session::Session(SessionPlan plan, const Network& network, uint64_t seed) : plan_(std::move(plan)) {
  release_code_pages();
  variables_ = std::make_shared<Variables>(plan_.layout);
  variables_->initialize(network, seed);
  start();
}

Session::Session(SessionPlan plan, std::shared_ptr<Variables> variables)
    : plan_(std::move(plan)), variables_(std::move(variables)) {
  check(variables_->layout().bytes == plan_.layout.bytes, "variables of another layout");
  release_code_pages();
  start();
}

void Session::start() {
  transient_ = Reservation(plan_.arena - plan_.layout.bytes);
  transient_.prefault();
  const ArenaView view{variables_->data(), transient_.data()};
  for (const Prepared& prepared : plan_.prepared)
    executors_.push_back(
        std::make_unique<Executor>(prepared.graph, prepared.plan, prepared.kernels, view));
}

void Session::run(size_t signature, const StepParams& params, StepTimes* times) {
  const size_t last = plan_.prepared[signature].graph.inputs.size() - 1;
  std::memcpy(executors_[signature]->input(last), &params, sizeof params);
  executors_[signature]->step(times);
}

Bytes Session::used_bytes() const {
  Bytes used = 0;
  for (const auto& executor : executors_) used = std::max(used, executor->used_bytes());
  return used;
}

SessionPlan Session::take_plan() {
  executors_.clear();
  return std::move(plan_);
}

double kept_scalar(const Session& session, size_t signature, size_t i) {
  const Graph& graph = session.plan().prepared[signature].graph;
  const Meta& meta = graph.values[static_cast<size_t>(graph.keep[i])].meta;
  check(meta.elements() == 1 && is_floating(meta.dtype), "a kept scalar");
  return meta.dtype == Dtype::float64 ? *static_cast<const double*>(session.kept(signature, i))
                                      : *static_cast<const float*>(session.kept(signature, i));
}

}  // namespace pl
