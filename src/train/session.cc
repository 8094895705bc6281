#include "train/session.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>

#include "base/error.h"
#include "base/hash.h"
#include "model/initializer.h"
#include "train/footprint.h"

namespace pl {

SessionPlan plan_session(const Network& network, const Compiled& compiled, Backend& backend,
                         const std::vector<Signature>& signatures, const SampleSpec& sample,
                         Bytes source_bytes) {
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
  result.layout = layout_variables(widest->variables, backend.alignment());
  Bytes kernel_bytes = 0;
  size_t nodes = 0;
  for (Graph& graph : graphs) {
    result.prepared.push_back(prepare_graph(std::move(graph), backend, result.layout));
    const Prepared& prepared = result.prepared.back();
    kernel_bytes += prepared.kernel_bytes;
    nodes += prepared.graph.nodes.size();
    if (prepared.plan.arena > result.arena) {
      result.arena = prepared.plan.arena;
      result.fullest = result.prepared.size() - 1;
    }
    result.floor = std::max(result.floor, prepared.plan.floor);
  }
  result.fixed = fixed_bytes({backend.threads(), kernel_bytes, nodes, source_bytes});
  result.floor += result.fixed;
  result.plan_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

void require_room(const SessionPlan& plan, std::optional<Bytes> budget,
                  const std::string& remedies) {
  if (budget && plan.process() > *budget)
    throw DoesNotFit("[plan] expected a plan within --memory " + std::to_string(*budget) + " (" +
                     format_bytes(*budget) + "), needs " + std::to_string(plan.process()) + " (" +
                     format_bytes(plan.process()) + ")\n" + remedies);
  const HostRoom room = host_room();
  if (plan.arena > room.least())
    throw DoesNotFit("[reserve] expected " + format_bytes(plan.arena) + " of free memory, " +
                     room.tightest() + " has room for " + format_bytes(room.least()) + "\n" +
                     remedies);
}

Session::Session(SessionPlan plan, const Network& network, uint64_t seed)
    : plan_(std::move(plan)), arena_(plan_.arena) {
  arena_.prefault();
  const ArenaView view{arena_.data(), arena_.data() + plan_.layout.bytes};
  for (const Prepared& prepared : plan_.prepared)
    executors_.push_back(
        std::make_unique<Executor>(prepared.graph, prepared.plan, prepared.kernels, view));
  const auto& entries = plan_.layout.entries;
  for (size_t i = 0; i < entries.size(); ++i) {
    std::string initializer = "zeros";
    for (const NetworkWeight& weight : network.weights())
      if (weight.path == entries[i].path) initializer = weight.initializer;
    initialize(initializer, entries[i].meta, seed, entries[i].path, variable(i));
  }
}

void Session::run(size_t signature, const StepParams& params) {
  const size_t last = plan_.prepared[signature].graph.inputs.size() - 1;
  std::memcpy(executors_[signature]->input(last), &params, sizeof params);
  executors_[signature]->step();
}

Bytes Session::used_bytes() const {
  Bytes used = 0;
  for (const auto& executor : executors_) used = std::max(used, executor->used_bytes());
  return used;
}

uint64_t Session::hash(bool weights_only) const {
  Xxh3 hash;
  for (size_t i = 0; i < plan_.layout.entries.size(); ++i) {
    const auto& entry = plan_.layout.entries[i];
    if (weights_only && entry.category != Category::parameters) continue;
    hash.update(variable(i), static_cast<size_t>(entry.meta.bytes()));
  }
  return hash.digest();
}

namespace {

template <class T>
bool all_finite(const void* data, int64_t count) {
  const T* values = static_cast<const T*>(data);
  for (int64_t i = 0; i < count; ++i)
    if (!std::isfinite(values[i])) return false;
  return true;
}

}  // namespace

std::string Session::first_non_finite() const {
  for (size_t i = 0; i < plan_.layout.entries.size(); ++i) {
    const auto& entry = plan_.layout.entries[i];
    const int64_t count = entry.meta.elements();
    const bool finite = entry.meta.dtype == Dtype::float32 ? all_finite<float>(variable(i), count)
                        : entry.meta.dtype == Dtype::float64
                            ? all_finite<double>(variable(i), count)
                            : true;
    if (!finite) return entry.path;
  }
  return "";
}

double kept_scalar(const Session& session, size_t signature, size_t i) {
  const Graph& graph = session.plan().prepared[signature].graph;
  const Meta& meta = graph.values[static_cast<size_t>(graph.keep[i])].meta;
  check(meta.elements() == 1 && is_floating(meta.dtype), "a kept scalar");
  return meta.dtype == Dtype::float64 ? *static_cast<const double*>(session.kept(signature, i))
                                      : *static_cast<const float*>(session.kept(signature, i));
}

}  // namespace pl
