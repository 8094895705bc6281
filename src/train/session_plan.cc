// plan_session: pools of all signatures, joined into points of one arena, and the point that a
// budget picks.
#include <algorithm>
#include <bit>
#include <chrono>
#include <thread>

#include "base/error.h"
#include "execute/call_file.h"
#include "plan/passes.h"
#include "plan/remat.h"
#include "train/eager_steps.h"
#include "train/session.h"
#include "train/session_planner.h"

namespace pl {
namespace {

// Checkpointing by hand: what was compiled, and layers that say so themselves.
void mark_scopes(Graph& graph, const Network& network, const Compiled& compiled) {
  std::vector<std::string> names = compiled.remat;
  const bool full = std::erase(names, "full") > 0;
  const std::vector<Network::Place> places = network.places();
  // A name that is no path may be that of a layer inside one: of a subclassed model, say.
  auto inside = [&](const std::string& name) {
    for (const Network::Place& place : places)
      if (place.composite && mark_remat(graph, {place.path + "/" + name}).empty()) return true;
    return false;
  };
  for (const std::string& unknown : mark_remat(graph, names))
    if (!inside(unknown))
      throw UserError(
          "[remat] expected the path of a layer, its first parts, or a pattern such as " +
          ("block_*, received '" + unknown) + "', which matches no layer that computes");
  names.clear();
  for (const Network::Place& place : places)
    if (!place.composite && (full || place.layer->remats(place.shape))) names.push_back(place.path);
  mark_remat(graph, names);
}

// Runs all passes; answers how many nodes became part of others.
size_t run_counted_passes(Graph& graph, const Backend& backend) {
  size_t before = graph.nodes.size(), fused = 0;
  PassOptions options = passes_for(backend.device().kind);
  options.after = [&](const Pass& pass, const Graph& now, double) {
    if (std::string_view(pass.name) == "fuse-pointwise") fused = before - now.nodes.size();
    before = now.nodes.size();
  };
  run_passes(graph, options);
  return fused;
}

// The most that steps hold when they run op by op: no value is freed before the end of a step, and
// every kernel stays prepared.
Bytes eager_bytes(const std::vector<Graph>& graphs, PlanMemory& memory, const DeviceSpace* space) {
  const Bytes page = space ? space->page() : 4 * kKiB;
  // On a device small values have cells of 2^n bytes, and every size of them a page of its own.
  auto held = [&](Bytes bytes) {
    if (!space || bytes > page / 2) return align_up(bytes, page);
    return static_cast<Bytes>(
        std::bit_ceil(static_cast<uint64_t>(std::max(bytes, space->alignment()))));
  };
  Bytes most = 0;
  KernelBill bill;
  for (const Graph& graph : graphs) {
    Bytes sum = 0, workspace = 0;
    for (const Value& value : graph.values) sum += held(value.meta.bytes());
    const GraphFacts facts = memory.book.facts(graph, &bill);
    for (const Facts& node : facts.nodes) workspace = std::max(workspace, node.workspace);
    most = std::max(most, sum + align_up(workspace, page));
  }
  if (space) {
    for (Bytes cell = space->alignment(); cell <= page / 2; cell *= 2) most += page;
    return most;
  }
  for (int id : bill.calls) most += align_up(memory.book.call(id).footprint, page);
  return most;
}

// All values at once, or as much as the budget has room for.
void bound_eager(SessionPlan& plan, Bytes most, std::optional<Bytes> budget) {
  const Bytes least = plan.arena;  // of the plan, which no run op by op can do without
  plan.arena = std::max(least, plan.layout.bytes + most);
  if (budget) {
    plan.arena = std::max(least, std::min(plan.arena, *budget - plan.fixed));
    plan.eager->limit = *budget - plan.fixed - plan.layout.bytes;
  }
  // What dead values leave behind there stays mapped: nothing else bounds it.
  if (const DeviceSpace* space = plan.eager->space.get())
    plan.eager->limit = std::max(space->page(), plan.arena - plan.layout.bytes);
  plan.frontier[0].arena = plan.arena;
}

// Calls that nobody timed yet are timed while pools are made; what code and libraries take of the
// device for it is on the bill.
void make_all_pools(SessionPlanner& planner, PlanMemory& memory, const PlanOptions& options) {
  const std::optional<Bytes> within = options.finest ? options.budget : std::nullopt;
  Backend& backend = memory.book.backend();
  if (backend.on_host() || !memory.book.times_calls())
    return planner.make_pools(options.switches, within, true);
  const Bytes held = backend.held(), limit = held + backend.free();
  const std::string path = calls_path(memory.book);
  if (!options.budget) know_calls(memory.book, path);
  {
    const KernelBook::Timing timing(memory.book,
                                    std::min(options.budget.value_or(limit), limit) - held);
    if (!within) planner.ask_ahead(options.switches);
    planner.make_pools(options.switches, within, true);
  }
  keep_calls(memory.book, path);
  memory.device_loaded = std::max(memory.device_loaded, backend.held() - held);
}

// Plans of the steps as they are. On a device with a budget, calls that an earlier run asked about
// are known at once, and searches begin while kernels are prepared: what that takes of the device
// is on the bill.
void make_unlimited(SessionPlanner& planner, const std::vector<Graph>& graphs, PlanMemory& memory,
                    const PlanOptions& options) {
  KernelBook& book = memory.book;
  if (options.budget) know_calls(book, calls_path(book));
  book.prepare_ahead(addresses(graphs), true);
  planner.make_pools(only_unlimited(), std::nullopt);
  const bool too_large =
      std::any_of(planner.pools().begin(), planner.pools().end(), [&](const Pool& pool) {
        return options.budget && pool.entries.front().arena > *options.budget;
      });
  if (too_large && !options.finest && !book.backend().on_host())
    planner.search_ahead(options.switches);
  book.finish_preparing();
}

// Steps of all signatures, behind their passes; `plan` gets what is said of them.
std::vector<Graph> trace_all(const Network& network, const Compiled& compiled,
                             const Backend& backend, const SampleSpec& sample, SessionPlan& plan,
                             size_t& fused_nodes) {
  std::vector<Graph> graphs;
  for (const Signature& signature : plan.signatures) {
    const bool trains = signature.kind == StepKind::train;
    StepLayout step;
    graphs.push_back(trace_step(network, compiled, signature, sample, &step));
    plan.host.push_back(step.host);
    if (trains && compiled.step.run) plan.slot_starts = step.slot_starts;
    if (trains || plan.signatures[0].kind == StepKind::evaluate) plan.step = step;
    if (signature.kind == StepKind::evaluate) plan.test = std::move(step);
    if (compiled.run_eagerly) continue;
    if (trains) mark_scopes(graphs.back(), network, compiled);
    if (compiled.fuse) fused_nodes += run_counted_passes(graphs.back(), backend);
  }
  return graphs;
}

// The fastest point within the budget, or the smallest.
SessionPoint choose(const SessionPlanner& planner, const SessionPlan& plan,
                    std::optional<Bytes> budget) {
  SessionPoint chosen = plan.frontier.back();
  for (const SessionPoint& point : plan.frontier)
    if (!budget || point.process() <= *budget) {
      chosen = point;
      break;
    }
  if (budget) planner.shrink_host(chosen, *budget);
  return chosen;
}

// What the planner found and what was chosen of it, but for the plans themselves.
void note_choice(const SessionPlanner& planner, const SessionPoint& chosen, SessionPlan& plan) {
  plan.floor = planner.floor();
  plan.split_refusal = planner.pools().front().refusal;
  plan.band_refusal = planner.pools().front().band_refusal;
  plan.arena = chosen.arena;
  plan.fixed = chosen.fixed;
  plan.idle = chosen.idle;
  plan.device = chosen.device;
  plan.host_bytes = chosen.host_bytes;
  plan.away = chosen.away;
  plan.ms = chosen.ms;
}

}  // namespace

// On a device searches may use all cores: its bill has no memory of the host.
PlanMemory::PlanMemory(Backend& backend, const CostTable& costs)
    : book(backend, costs),
      memo(backend.on_host() ? 1 : std::max(1U, std::thread::hardware_concurrency())) {}

SessionPlan plan_session(const Network& network, const Compiled& compiled, Backend& backend,
                         const std::vector<Signature>& signatures, const SampleSpec& sample,
                         Bytes source_bytes, const VariableLayout* layout,
                         const PlanOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  SessionPlan result;
  result.signatures = signatures;
  result.on_device = !backend.on_host();
  if (std::any_of(signatures.begin(), signatures.end(),
                  [](const Signature& s) { return s.kind == StepKind::train; })) {
    result.optimizer = compiled.optimizer;
    if (!compiled.step.run) result.slot_starts = slot_starts(network, compiled);
  }
  result.memory = options.memory ? options.memory : std::make_shared<PlanMemory>(backend);
  size_t fused_nodes = 0;
  const std::vector<Graph> graphs =
      trace_all(network, compiled, backend, sample, result, fused_nodes);
  // The signature with the most variables (a training one, if any) fixes the layout for all.
  const auto widest = std::max_element(
      graphs.begin(), graphs.end(),
      [](const Graph& a, const Graph& b) { return a.variables.size() < b.variables.size(); });
  result.layout = layout ? *layout : layout_variables(widest->variables, backend.alignment());
  SessionPlanner planner(backend, result.layout, graphs, source_bytes, fused_nodes, options,
                         layout != nullptr, *result.memory);
  make_unlimited(planner, graphs, *result.memory, options);
  result.unlimited = planner.unlimited();
  const bool fits = !options.budget || result.unlimited.process() <= *options.budget;
  const bool split_asked_for = options.switches.split && *options.switches.split > 1;
  if ((options.all || !fits || split_asked_for) && !compiled.run_eagerly) {
    make_all_pools(planner, *result.memory, options);
    if (!split_asked_for) result.unlimited = planner.unlimited();  // its time is known better now
    result.frontier = frontier_of(planner.points());
    result.complete = true;
  } else {
    result.frontier = {result.unlimited};
  }
  const SessionPoint chosen = choose(planner, result, options.budget);
  note_choice(planner, chosen, result);
  if (compiled.run_eagerly) {
    result.eager = std::make_shared<EagerSetup>(EagerSetup{.network = network,
                                                           .compiled = compiled,
                                                           .sample = sample,
                                                           .threads = backend.threads(),
                                                           .limit = {},
                                                           .space = compiled.space,
                                                           .chooses = &backend});
    bound_eager(result, eager_bytes(graphs, *result.memory, compiled.space.get()), options.budget);
  }
  for (size_t s = 0; s < graphs.size(); ++s) {
    result.prepared.push_back(build(graphs[s], planner.pools()[s].entries[chosen.entries[s]],
                                    result.memory->book, result.layout));
    const Bytes arena = result.prepared.back().plan.arena;
    check(arena <= result.arena, "a plan is larger than its entry in the pool");
    if (arena > result.prepared[result.fullest].plan.arena) result.fullest = s;
  }
  result.plan_ms =
      std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count();
  return result;
}

}  // namespace pl
