// plan_session: pools of all signatures, joined into points of one arena, and the point that a
// budget picks.
#include <algorithm>
#include <bit>
#include <chrono>
#include <set>

#include "backend/cpu/code_pages.h"
#include "base/error.h"
#include "execute/call_file.h"
#include "plan/passes.h"
#include "plan/remat.h"
#include "plan/split.h"
#include "train/device_footprint.h"
#include "train/eager_steps.h"
#include "train/footprint.h"
#include "train/session.h"

namespace pl {
namespace {

class SessionPlanner {
 public:
  SessionPlanner(Backend& backend, const VariableLayout& layout, const std::vector<Graph>& graphs,
                 Bytes source_bytes, size_t fused_nodes, const PlanOptions& options, bool apart,
                 PlanMemory& memory)
      : backend_(backend),
        layout_(layout),
        graphs_(graphs),
        source_bytes_(source_bytes),
        fused_nodes_(fused_nodes),
        host_(backend.on_host() ? 0 : options.host),
        pinned_(options.pinned.value_or(0)),
        apart_(apart),
        memory_(memory),
        by_page_(hold_code_by_page()) {
    if (!options.pinned) find_host_parts(host_);
  }

  // `within`: a quick look, for what fits so many bytes.
  // `leaves`: values may leave for the host.
  void make_pools(const Switches& switches, std::optional<Bytes> within, bool leaves = false) {
    pools_.clear();
    for (const Graph& graph : graphs_) {
      QuickLook quick{.most = within};
      if (within) quick.only = few_splits(samples_of(graph));
      // A split that was asked for is of the first signature's batch; smaller ones follow suit.
      Switches mine = switches;
      if (leaves) mine.away = host_;
      if (mine.split && *mine.split > 1 && &graph != &graphs_.front()) {
        const int64_t bands = *mine.split / std::max<int64_t>(1, samples_of(graphs_.front()));
        mine.split =
            bands > 1 ? bands * samples_of(graph) : nearest_split(samples_of(graph), *mine.split);
      }
      pools_.push_back(make_pool(graph, memory_.book, memory_.memo, layout_, mine, quick));
    }
  }

  // About all that make_pools will ask, before it begins: what calls cost that find no room to be
  // timed is estimated by those that do, and must not change from one search to the next.
  void ask_ahead(const Switches& switches) const {
    if (switches.split) return;
    std::vector<Graph> splits;
    for (const Graph& graph : graphs_) try {
        for (int64_t trips : split_choices(samples_of(graph)))
          if (trips > 1) splits.push_back(split_batch(graph, trips));
      } catch (const UserError&) {  // told by make_pools
      }
    memory_.book.prepare_ahead(addresses(splits));
    for (const Graph& graph : graphs_) memory_.book.facts(graph);
    for (const Graph& graph : splits) memory_.book.facts(graph);
  }

  // For every arena that an entry has: each signature's fastest entry within it.
  std::vector<SessionPoint> points() const {
    std::set<Bytes> arenas;
    for (const Pool& pool : pools_)
      for (const PoolEntry& entry : pool.entries) arenas.insert(entry.arena);
    std::vector<SessionPoint> points;
    for (auto at = arenas.rbegin(); at != arenas.rend(); ++at)
      if (auto point = point_within(*at)) points.push_back(std::move(*point));
    const size_t without = points.size();
    for (size_t level = 1; level <= kHostLevels && !host_parts_.empty(); ++level)
      for (size_t p = 0; p < without; ++p) {
        SessionPoint point;
        point.entries = points[p].entries;
        point.host_bytes = host_parts_[(host_parts_.size() - 1) * level / kHostLevels];
        fill(point);
        if (point.host_bytes + point.away <= host_) points.push_back(std::move(point));
      }
    return points;
  }

  // No more of it in host memory than the budget asks for.
  void shrink_host(SessionPoint& point, Bytes budget) const {
    for (Bytes part : host_parts_) {
      if (part >= point.host_bytes) return;
      SessionPoint less;
      less.entries = point.entries;
      less.host_bytes = part;
      fill(less);
      if (less.process() > budget) continue;
      point = std::move(less);
      return;
    }
  }

  SessionPoint unlimited() const {
    SessionPoint point{.host_bytes = pinned_};
    point.entries.assign(pools_.size(), 0);
    fill(point);
    return point;
  }

  // No plan needs less: for each signature the best of its splits.
  Bytes floor() const {
    Bytes most = 0;
    for (const Pool& pool : pools_) {
      std::optional<Bytes> least;
      for (const PoolSplit& split : pool.splits) {
        const Bytes bytes =
            split.floor + footprint_of(split.bill, split.floor, split.bill.nodes, 0).fixed;
        least = std::min(least.value_or(bytes), bytes);
      }
      most = std::max(most, least.value_or(0));
    }
    return most - (host_parts_.empty() ? pinned_ : host_parts_.back());
  }

  const std::vector<Pool>& pools() const { return pools_; }

  static std::vector<const Graph*> addresses(const std::vector<Graph>& graphs) {
    std::vector<const Graph*> list;
    for (const Graph& graph : graphs) list.push_back(&graph);
    return list;
  }

 private:
  static constexpr size_t kHostLevels = 12;

  // Ends of the layout that are optimiser state alone, ascending, up to `most` bytes.
  void find_host_parts(Bytes most) {
    for (size_t i = layout_.entries.size(); i-- > 0;) {
      const auto& entry = layout_.entries[i];
      const Bytes part = layout_.bytes - entry.at;
      if (entry.category != Category::optimizer || part > most) return;
      if (part > 0) host_parts_.push_back(part);
    }
  }

  // The finest, and one into parts that are still large enough for kernels to be at ease.
  static std::vector<int64_t> few_splits(int64_t batch) {
    constexpr int64_t kPart = 16;
    std::vector<int64_t> list;
    for (int64_t trips : split_choices(batch))
      if (trips > 1 && (trips == batch || (batch / trips >= kPart && batch / trips < 2 * kPart)))
        list.push_back(trips);
    if (list.empty()) list.push_back(batch);
    return list;
  }

  static int64_t nearest_split(int64_t batch, int64_t wanted) {
    int64_t best = 1;
    for (int64_t d : split_choices(batch))
      if (d <= wanted) best = d;
    return best;
  }

  std::optional<SessionPoint> point_within(Bytes arena) const {
    SessionPoint point{.host_bytes = pinned_};
    for (const Pool& pool : pools_) {
      std::optional<size_t> best;
      for (size_t e = 0; e < pool.entries.size(); ++e)
        if (pool.entries[e].arena <= arena &&
            (!best || better(pool.entries[e], pool.entries[*best])))
          best = e;
      if (!best) return std::nullopt;
      point.entries.push_back(*best);
    }
    fill(point);
    return point;
  }
  static bool better(const PoolEntry& a, const PoolEntry& b) {
    if (a.ms != b.ms) return a.ms < b.ms;
    return a.split != b.split ? a.split < b.split : a.arena < b.arena;
  }

  void fill(SessionPoint& point) const {
    KernelBill bill;
    size_t copies = 0;
    for (size_t s = 0; s < pools_.size(); ++s) {
      const PoolEntry& entry = pools_[s].entries[point.entries[s]];
      point.arena = std::max(point.arena, entry.arena);
      point.away = std::max(point.away, entry.away);
      bill.add(pools_[s].of(entry).bill);
      copies += 2 * entry.stays.size();
    }
    const PoolEntry& first = pools_[0].entries[point.entries[0]];
    point.ms = first.ms;
    point.split = first.split;
    point.bands = first.bands;
    point.recomputed = first.recomputed;
    // A body is recorded once.
    const size_t launches =
        bill.nodes + copies +
        static_cast<size_t>(point.recomputed.values / std::max<int64_t>(1, point.split));
    const Footprint beside = footprint_of(bill, point.arena, launches, point.host_bytes);
    point.fixed = beside.fixed;
    point.idle = beside.idle;
    point.ms += host_ms(point.host_bytes - pinned_);
  }

  Bytes device_fixed(const KernelBill& bill, Bytes arena, size_t launches, Bytes host) const {
    if (!memory_.device_held) memory_.device_held = backend_.held() - memory_.device_variables;
    return device_fixed_bytes({.held = *memory_.device_held,
                               .loaded = memory_.device_loaded,
                               .kernels = bill.calls.size(),
                               .launches = launches,
                               .arena = arena - host,
                               .apart = apart_ ? layout_.bytes - host : 0,
                               .granule = backend_.granule()});
  }

  // `launches`: of kernels in a step, where steps are recorded. `host`: of the arena, on the host.
  Footprint footprint_of(const KernelBill& bill, Bytes arena, size_t launches, Bytes host) const {
    if (!backend_.on_host()) return {.fixed = device_fixed(bill, arena, launches, host)};
    FootprintFacts facts{.threads = backend_.threads(),
                         .nodes = bill.nodes,
                         .fused_nodes = fused_nodes_,
                         .narrow_simd = backend_.narrow_simd(),
                         .source_bytes = source_bytes_,
                         .by_page = by_page_,
                         .arena = arena};
    std::set<std::string> library_parts, kinds;
    for (int id : bill.calls) {
      const KernelBook::Call& call = memory_.book.call(id);
      facts.kernel_bytes += call.footprint;
      kinds.insert(call.op);
      facts.transient_bytes = std::max(facts.transient_bytes, call.transient);
      if (!call.library.empty()) library_parts.insert(call.library);
    }
    facts.library = !library_parts.empty();
    facts.kinds = kinds.size();
    for (const std::string& part : library_parts) {
      facts.convolutions += part.starts_with("convolution");
      facts.backward_data += part.starts_with("convolution backward data");
    }
    return footprint(facts);
  }

  Backend& backend_;
  const VariableLayout& layout_;
  const std::vector<Graph>& graphs_;
  Bytes source_bytes_;
  size_t fused_nodes_;
  Bytes host_;    // the most of its memory
  Bytes pinned_;  // of variables that stay there
  bool apart_;    // variables have a reservation of their own
  PlanMemory& memory_;
  bool by_page_;
  std::vector<Pool> pools_;
  std::vector<Bytes> host_parts_;
};

// Process bytes descending, times strictly ascending: what is slower and no smaller goes.
std::vector<SessionPoint> frontier_of(std::vector<SessionPoint> points) {
  std::stable_sort(points.begin(), points.end(), [](const auto& a, const auto& b) {
    return a.process() != b.process() ? a.process() < b.process() : a.ms < b.ms;
  });
  std::vector<SessionPoint> kept;  // from the smallest up: each must be faster than the last
  for (SessionPoint& point : points)
    if (kept.empty() || point.ms < kept.back().ms) kept.push_back(std::move(point));
  std::reverse(kept.begin(), kept.end());
  return kept;
}

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
  know_calls(memory.book, path);
  {
    const KernelBook::Timing timing(memory.book,
                                    std::min(options.budget.value_or(limit), limit) - held);
    if (!within) planner.ask_ahead(options.switches);
    planner.make_pools(options.switches, within, true);
  }
  keep_calls(memory.book, path);
  memory.device_loaded = std::max(memory.device_loaded, backend.held() - held);
}

}  // namespace

SessionPlan plan_session(const Network& network, const Compiled& compiled, Backend& backend,
                         const std::vector<Signature>& signatures, const SampleSpec& sample,
                         Bytes source_bytes, const VariableLayout* layout,
                         const PlanOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  SessionPlan result;
  result.signatures = signatures;
  if (std::any_of(signatures.begin(), signatures.end(),
                  [](const Signature& s) { return s.kind == StepKind::train; })) {
    result.optimizer = compiled.optimizer;
    if (!compiled.step.run) result.slot_starts = slot_starts(network, compiled);
  }
  result.memory = options.memory ? options.memory : std::make_shared<PlanMemory>(backend);
  std::vector<Graph> graphs;
  size_t fused_nodes = 0;
  for (const Signature& signature : signatures) {
    StepLayout step;
    graphs.push_back(trace_step(network, compiled, signature, sample, &step));
    result.host.push_back(step.host);
    if (signature.kind == StepKind::train && compiled.step.run)
      result.slot_starts = step.slot_starts;
    if (signature.kind == StepKind::train || signatures[0].kind == StepKind::evaluate)
      result.step = step;
    if (signature.kind == StepKind::evaluate) result.test = std::move(step);
    if (compiled.run_eagerly) continue;
    if (signature.kind == StepKind::train) mark_scopes(graphs.back(), network, compiled);
    if (compiled.fuse) fused_nodes += run_counted_passes(graphs.back(), backend);
  }
  // The signature with the most variables (a training one, if any) fixes the layout for all.
  const auto widest = std::max_element(
      graphs.begin(), graphs.end(),
      [](const Graph& a, const Graph& b) { return a.variables.size() < b.variables.size(); });
  result.layout = layout ? *layout : layout_variables(widest->variables, backend.alignment());
  SessionPlanner planner(backend, result.layout, graphs, source_bytes, fused_nodes, options,
                         layout != nullptr, *result.memory);
  result.memory->book.prepare_ahead(SessionPlanner::addresses(graphs));
  planner.make_pools(only_unlimited(), std::nullopt);
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
  SessionPoint chosen = result.frontier.back();
  for (const SessionPoint& point : result.frontier)
    if (!options.budget || point.process() <= *options.budget) {
      chosen = point;
      break;
    }
  if (options.budget) planner.shrink_host(chosen, *options.budget);
  result.floor = planner.floor();
  result.split_refusal = planner.pools().front().refusal;
  result.band_refusal = planner.pools().front().band_refusal;
  result.arena = chosen.arena;
  result.fixed = chosen.fixed;
  result.idle = chosen.idle;
  result.host_bytes = chosen.host_bytes;
  result.away = chosen.away;
  result.ms = chosen.ms;
  if (compiled.run_eagerly) {
    result.eager = std::make_shared<EagerSetup>(EagerSetup{.network = network,
                                                           .compiled = compiled,
                                                           .sample = sample,
                                                           .threads = backend.threads(),
                                                           .limit = {},
                                                           .space = compiled.space});
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
