#include "train/session_planner.h"

#include <algorithm>
#include <set>

#include "backend/cpu/code_pages.h"
#include "base/error.h"
#include "plan/split.h"

namespace pl {
namespace {

constexpr size_t kHostLevels = 12;

// The finest, and one into parts that are still large enough for kernels to be at ease.
std::vector<int64_t> few_splits(int64_t batch) {
  constexpr int64_t kPart = 16;
  std::vector<int64_t> list;
  for (int64_t trips : split_choices(batch))
    if (trips > 1 && (trips == batch || (batch / trips >= kPart && batch / trips < 2 * kPart)))
      list.push_back(trips);
  if (list.empty()) list.push_back(batch);
  return list;
}

int64_t nearest_split(int64_t batch, int64_t wanted) {
  int64_t best = 1;
  for (int64_t d : split_choices(batch))
    if (d <= wanted) best = d;
  return best;
}

bool better(const PoolEntry& a, const PoolEntry& b) {
  if (a.ms != b.ms) return a.ms < b.ms;
  return a.split != b.split ? a.split < b.split : a.arena < b.arena;
}

}  // namespace

SessionPlanner::SessionPlanner(Backend& backend, const VariableLayout& layout,
                               const std::vector<Graph>& graphs, Bytes source_bytes,
                               size_t fused_nodes, const PlanOptions& options, bool apart,
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

void SessionPlanner::find_host_parts(Bytes most) {
  for (size_t i = layout_.entries.size(); i-- > 0;) {
    const auto& entry = layout_.entries[i];
    const Bytes part = layout_.bytes - entry.at;
    if (entry.category != Category::optimizer || part > most) return;
    if (part > 0) host_parts_.push_back(part);
  }
}

void SessionPlanner::make_pools(const Switches& switches, std::optional<Bytes> within,
                                bool leaves) {
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

// Of each signature the finest, whose body is searched as the whole step is, and those between.
struct SessionPlanner::Splits {
  std::vector<Graph> finest, others;
};

SessionPlanner::Splits SessionPlanner::splits_of(const Switches& switches, bool all) const {
  Splits splits;
  if (switches.split) return splits;
  for (const Graph& graph : graphs_) try {
      const std::vector<int64_t> choices = split_choices(samples_of(graph));
      if (choices.empty() || choices.back() <= 1) continue;
      splits.finest.push_back(split_batch(graph, choices.back()));
      for (size_t c = 0; c + 1 < choices.size() && all; ++c)
        if (choices[c] > 1) splits.others.push_back(split_batch(graph, choices[c]));
    } catch (const UserError&) {  // told by make_pools
    }
  return splits;
}

void SessionPlanner::begin_search(const Graph& graph, const Switches& switches) const {
  if (!memory_.book.timed(graph)) return;
  Switches leaving = switches;
  leaving.away = host_;
  pl::search_ahead(graph, memory_.book, memory_.memo, leaving);
}

void SessionPlanner::search_ahead(const Switches& switches) const {
  if (switches.split) return;
  for (const Graph& graph : graphs_) begin_search(graph, switches);
  for (const Graph& graph : splits_of(switches, false).finest) begin_search(graph, switches);
}

// Whatever takes long goes on beside the rest: kernels are prepared while others are timed, and a
// step is searched while its splits are still asked about. What calls cost that find no room to be
// timed is estimated by those that do, and must not change from one search to the next: a step with
// such calls is searched when all are asked.
void SessionPlanner::ask_ahead(const Switches& switches) const {
  if (switches.split) return;
  KernelBook& book = memory_.book;
  const Splits splits = splits_of(switches, true);
  // These first, which others cannot be prepared beside.
  for (const Graph& graph : graphs_) book.time_ready(graph, true);
  std::vector<const Graph*> all = addresses(splits.finest);
  for (const Graph& graph : splits.others) all.push_back(&graph);
  book.prepare_ahead(all);
  auto ask = [&](const Graph& graph) {
    book.facts(graph);
    begin_search(graph, switches);
  };
  for (const Graph& graph : graphs_) ask(graph);
  for (const Graph& graph : splits.finest) {
    book.time_ready(graph, false);
    ask(graph);
  }
  for (const Graph& graph : splits.others) book.time_ready(graph, false);
  for (const Graph& graph : splits.others) book.facts(graph);
}

std::vector<SessionPoint> SessionPlanner::points() const {
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

void SessionPlanner::shrink_host(SessionPoint& point, Bytes budget) const {
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

SessionPoint SessionPlanner::unlimited() const {
  SessionPoint point{.host_bytes = pinned_};
  point.entries.assign(pools_.size(), 0);
  fill(point);
  return point;
}

Bytes SessionPlanner::floor() const {
  Bytes most = 0;
  for (const Pool& pool : pools_) {
    std::optional<Bytes> least;
    for (const PoolSplit& split : pool.splits) {
      const Bytes bytes =
          split.floor + footprint_of(split.bill, split.floor, split.bill.nodes).fixed;
      least = std::min(least.value_or(bytes), bytes);
    }
    most = std::max(most, least.value_or(0));
  }
  return most - (host_parts_.empty() ? pinned_ : host_parts_.back());
}

std::optional<SessionPoint> SessionPlanner::point_within(Bytes arena) const {
  SessionPoint point{.host_bytes = pinned_};
  for (const Pool& pool : pools_) {
    std::optional<size_t> best;
    for (size_t e = 0; e < pool.entries.size(); ++e)
      if (pool.entries[e].arena <= arena && (!best || better(pool.entries[e], pool.entries[*best])))
        best = e;
    if (!best) return std::nullopt;
    point.entries.push_back(*best);
  }
  fill(point);
  return point;
}

void SessionPlanner::fill(SessionPoint& point) const {
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
  // A body is recorded once. Copies are branches of a recording: 20 to 24 of them held 4 MiB,
  // hundreds no more.
  constexpr size_t kLaunchesOfACopy = 32, kMostForCopies = 1024;
  const size_t launches =
      bill.nodes + copies + std::min(kLaunchesOfACopy * copies, kMostForCopies) +
      static_cast<size_t>(point.recomputed.values / std::max<int64_t>(1, point.split));
  const Footprint beside = footprint_of(bill, point.arena, launches, point.host_bytes, point.away);
  point.fixed = beside.fixed;
  point.idle = beside.idle;
  point.device = beside.device;
  point.ms += host_ms(point.host_bytes - pinned_);
}

DeviceBill SessionPlanner::on_device(const KernelBill& bill, Bytes arena, size_t launches,
                                     Bytes host, Bytes away) const {
  if (!memory_.device_held) memory_.device_held = backend_.held() - memory_.device_variables;
  return device_bill({.held = *memory_.device_held,
                      .loaded = memory_.device_loaded,
                      .kernels = bill.calls.size(),
                      .launches = launches,
                      .arena = arena - host,
                      .apart = apart_ ? layout_.bytes - host : 0,
                      .mapped = host + away,
                      .granule = backend_.granule()});
}

Footprint SessionPlanner::footprint_of(const KernelBill& bill, Bytes arena, size_t launches,
                                       Bytes host, Bytes away) const {
  if (!backend_.on_host()) {
    const DeviceBill device = on_device(bill, arena, launches, host, away);
    return {.fixed = device.sum(), .device = device};
  }
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

std::vector<const Graph*> addresses(const std::vector<Graph>& graphs) {
  std::vector<const Graph*> list;
  for (const Graph& graph : graphs) list.push_back(&graph);
  return list;
}

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

}  // namespace pl
