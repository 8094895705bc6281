#include "execute/pool.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "base/hash.h"
#include "base/side_by_side.h"
#include "plan/bands.h"
#include "plan/device_plan.h"
#include "plan/graph_problem.h"
#include "plan/split.h"

namespace pl {
namespace {

// The base order, with what was checkpointed by hand computed again.
std::vector<int> base_order(const Problem& problem) {
  auto steps = lower(problem, {});
  if (!steps)
    throw UserError(
        "[remat] expected scopes that can be computed again for their gradients, received one that "
        "reads what is overwritten by then; name fewer layers");
  return std::move(*steps);
}

class PoolMaker {
 public:
  PoolMaker(const Graph& whole, KernelBook& book, SearchMemo& memo, const VariableLayout& layout,
            const Switches& switches, std::optional<Bytes> most)
      : whole_(whole),
        book_(book),
        memo_(memo),
        layout_(layout),
        recompute_(switches.recompute),
        most_(most) {
    if (switches.away > 0) copies_ = device_copies(switches.away);
  }

  void add_whole() {
    PoolSplit split;
    const GraphFacts facts = book_.facts(whole_, &split.bill);
    const Bytes alignment = book_.backend().alignment();
    const GraphProblem made = make_problem(whole_, facts.nodes, alignment);
    base_order(made.problem);  // or says why not
    const Problem leaving = with_copies(made.problem);
    split.floor = layout_.bytes + memo_.bound(leaving);
    const bool search = worth_search(split);
    std::vector<Candidate> candidates = memo_.search(made.problem, recompute_ && search);
    if (copies_ && search) append(candidates, memo_.search_away(leaving, recompute_));
    add_entries(candidates, [&](const Candidate& candidate, PoolEntry& entry) {
      entry.arena = layout_.bytes + candidate.bytes;
      add_work(whole_, facts, made, *lower(made.problem, candidate.drops), 1, entry.ms,
               entry.recomputed);
      entry.ms += entry.waits_ms;
    });
    pool_.splits.push_back(std::move(split));
  }

  // Bodies of all splits are the same nodes over other sizes: what one search found is tried on the
  // others, thinned out.
  void add_split(int64_t trips) { add_loop(split_batch(whole_, trips)); }

  // Answers false where there is no room for so many bands.
  bool add_bands(const ImageStep& step, int64_t count) {
    const std::optional<Bands> bands = find_bands(step, count);
    if (bands) add_loop(split_bands(step, *bands));
    return bands.has_value();
  }

  Pool& pool() { return pool_; }

 private:
  void add_loop(const Graph& graph) {
    const int64_t trips = graph.loops[0].trips, bands = graph.loops[0].bands;
    Borrowed& borrowed = bands > 0 ? borrowed_by_bands_ : borrowed_;
    PoolSplit split{.split = trips};
    const GraphFacts facts = book_.facts(graph, &split.bill);
    const Bytes alignment = book_.backend().alignment();
    const Loop& loop = graph.loops[0];
    const GraphProblem body = make_problem(loop.body, facts.loops[0].nodes, alignment, &loop);
    GraphProblem outer = make_problem(graph, facts.nodes, alignment);
    const std::vector<int> order = base_order(outer.problem);
    const auto at = std::find_if(order.begin(), order.end(), [&](int n) {
      return graph.nodes[index(outer.node_of[index(n)])].loop >= 0;
    });
    const Problem leaving = with_copies(body.problem);
    outer.problem.nodes[index(*at)].workspace = memo_.bound(leaving);
    split.floor = layout_.bytes + lower_bound(with_copies(outer.problem));
    base_order(body.problem);
    const bool search = worth_search(split);
    const std::vector<Candidate> candidates =
        candidates_of(body.problem, leaving, search, borrowed);
    add_entries(candidates, [&](const Candidate& candidate, PoolEntry& entry) {
      entry.split = trips;
      entry.bands = bands;
      Problem around = outer.problem;
      around.nodes[index(*at)].workspace = candidate.bytes;
      entry.arena = layout_.bytes + height_of(around, order);
      add_work(graph, facts, outer, order, 1, entry.ms, entry.recomputed);
      add_work(loop.body, facts.loops[0], body, *lower(body.problem, candidate.drops), trips,
               entry.ms, entry.recomputed);
      entry.ms += entry.waits_ms * static_cast<double>(trips);
    });
    pool_.splits.push_back(std::move(split));
  }

  // What other splits' searches found.
  struct Borrowed {
    std::vector<Drops> again, away;
    bool any = false;
  };
  std::vector<Candidate> candidates_of(const Problem& body, const Problem& leaving, bool search,
                                       Borrowed& borrowed) {
    if (!search) return memo_.search(body, false);
    if (borrowed.any) {
      std::vector<Candidate> candidates = try_on(body, borrowed.again);
      append(candidates, try_on(leaving, borrowed.away));
      return candidates;
    }
    std::vector<Candidate> candidates = memo_.search(body, recompute_);
    lend(candidates, borrowed.again);
    if (copies_) {
      const std::vector<Candidate>& away = memo_.search_away(leaving, recompute_);
      lend(away, borrowed.away);
      append(candidates, away);
    }
    borrowed.any = true;
    return candidates;
  }

  // One for each, which `fill` completes.
  void add_entries(const std::vector<Candidate>& candidates,
                   const std::function<void(const Candidate&, PoolEntry&)>& fill) {
    std::vector<PoolEntry> entries(candidates.size());
    side_by_side(candidates.size(), memo_.threads(), [&](size_t c) {
      const Candidate& candidate = candidates[c];
      entries[c] = {.drops = candidate.drops,
                    .recomputed = {},
                    .stays = candidate.stays,
                    .away = candidate.away,
                    .waits_ms = candidate.waits_ms};
      fill(candidate, entries[c]);
    });
    for (PoolEntry& entry : entries) pool_.entries.push_back(std::move(entry));
  }
  static void append(std::vector<Candidate>& list, const std::vector<Candidate>& more) {
    list.insert(list.end(), more.begin(), more.end());
  }
  Problem with_copies(Problem problem) const {
    if (copies_) problem.copies = *copies_;
    return problem;
  }

  // Whether what a search finds may be of use.
  bool worth_search(const PoolSplit& split) const {
    return (recompute_ || copies_) && (!most_ || split.floor <= *most_);
  }

  static void lend(const std::vector<Candidate>& found, std::vector<Drops>& borrowed) {
    constexpr size_t kLent = 10;
    const size_t count = std::min(kLent, found.size());
    borrowed.clear();
    for (size_t i = 0; i < count; ++i)
      borrowed.push_back(found[count > 1 ? i * (found.size() - 1) / (count - 1) : 0].drops);
  }

  std::vector<Candidate> try_on(const Problem& problem, const std::vector<Drops>& borrowed) const {
    std::vector<Candidate> list;
    for (std::optional<Candidate>& candidate : try_each(problem, borrowed, memo_.threads()))
      if (candidate) list.push_back(std::move(*candidate));
    return list;
  }

  const Graph& whole_;
  KernelBook& book_;
  SearchMemo& memo_;
  const VariableLayout& layout_;
  bool recompute_;
  std::optional<Bytes> most_;
  std::optional<Problem::Copies> copies_;  // where values may leave
  Borrowed borrowed_, borrowed_by_bands_;  // of the first split that was searched
  Pool pool_;
};

// With enough memory a step is never cut, and never finer than need be: measured times that say a
// finer split is faster must not decide, or noise would. Each split without drops counts as slower
// than the one before, and its entries with drops by as much more.
void order_splits(Pool& pool) {
  constexpr double kGrain = 1e-6;
  std::map<int64_t, double> plain;  // time without drops
  for (const PoolEntry& entry : pool.entries)
    if (entry.drops.empty()) plain.emplace(entry.split, entry.ms);
  double slowest = 0;
  std::map<int64_t, double> more;
  for (const auto& [split, ms] : plain) {
    const double floor = slowest * (1 + kGrain);
    more[split] = std::max(0.0, floor - ms);
    slowest = std::max(ms, floor);
  }
  const double unlimited = pool.entries.front().ms;
  for (PoolEntry& entry : pool.entries)
    entry.ms = std::max(entry.ms + more[entry.split], unlimited);
}

std::string describe(const Problem& problem) {
  Xxh3 hash;
  auto put = [&](auto number) { hash.update(&number, sizeof number); };
  for (const Problem::Value& value : problem.values) {
    put(value.bytes);
    put(value.producer);
    put(value.replaced_by);
    put(value.keep);
    put(value.release);
  }
  for (const Problem::Node& node : problem.nodes) {
    put(node.ms);
    put(node.workspace);
    put(node.rerun);
    put(node.joins);
    put(node.kind);
    for (const auto* list : {&node.reads, &node.writes}) {
      put(list->size());
      for (int id : *list) put(id);
    }
    put(node.in_place.size());
    for (const InOut& pair : node.in_place) put(pair);
  }
  put(problem.copies.bytes_per_ms);
  put(problem.copies.room);
  return hex16(hash.digest());
}

}  // namespace

const PoolSplit& Pool::of(const PoolEntry& entry) const {
  for (const PoolSplit& split : splits)
    if (split.split == entry.split) return split;
  throw InternalError("[plan] an entry of an unknown split");
}

const std::vector<Candidate>& SearchMemo::search(const Problem& problem, bool recompute) {
  const std::string key = (recompute ? "r" : "-") + describe(problem);
  auto at = found_.find(key);
  if (at != found_.end()) return at->second;
  std::vector<Candidate> found;
  if (const auto begun = begun_.find(key); begun != begun_.end()) {
    Found both = begun->second.found.get();
    if (!begun->second.away.empty()) found_.emplace(begun->second.away, std::move(both.away));
    begun_.erase(begun);
    found = std::move(both.stay);
  } else if (recompute) {
    found = pl::search(problem, {.bound = bound(problem), .threads = threads_});
  } else {
    found.push_back({.bytes = height_of(problem, base_order(problem))});
  }
  return found_.emplace(key, std::move(found)).first->second;
}

const std::vector<Candidate>& SearchMemo::search_away(const Problem& problem, bool recompute) {
  const std::string key = (recompute ? "away r" : "away -") + describe(problem);
  if (const auto at = found_.find(key); at != found_.end()) return at->second;
  Problem stay = problem;
  stay.copies = {};
  std::vector<Candidate> found =
      pl::search_away(problem, search(stay, recompute), recompute, threads_);
  return found_.emplace(key, std::move(found)).first->second;
}

void SearchMemo::search_ahead(Problem problem, Problem leaving) {
  const std::string key = "r" + describe(problem);
  if (found_.contains(key) || begun_.contains(key)) return;
  const bool away = leaving.copies.room > 0;
  const Bytes least = bound(problem);
  begun_[key] = {
      away ? "away r" + describe(leaving) : "",
      std::async(std::launch::async, [problem = std::move(problem), leaving = std::move(leaving),
                                      least, away, threads = threads_] {
        Found found{pl::search(problem, {.bound = least, .threads = threads}), {}};
        if (away) found.away = pl::search_away(leaving, found.stay, true, threads);
        return found;
      })};
}

void SearchMemo::forget() { *this = SearchMemo(threads_); }

Bytes SearchMemo::bound(const Problem& problem) {
  const auto [at, fresh] = bounds_.emplace(describe(problem), 0);
  if (fresh) at->second = lower_bound(problem);
  return at->second;
}

namespace {

// The split that was asked for: of the batch, or of its samples' images.
void add_asked(PoolMaker& maker, const Graph& whole, int64_t parts) {
  const int64_t batch = samples_of(whole);
  if (batch % parts == 0) return maker.add_split(parts);
  if (parts % batch != 0)
    throw UserError("[split] expected a number of micro-batches that divides the batch of " +
                    std::to_string(batch) +
                    ", or a multiple of it for bands of each image, received " +
                    std::to_string(parts));
  if (!maker.add_bands(mark_images(whole), parts / batch))
    throw UserError("[split] expected fewer bands: images have no room for " +
                    std::to_string(parts / batch));
}

void add_choices_of_bands(PoolMaker& maker, const Graph& whole, bool finest) {
  try {
    const ImageStep step = mark_images(whole);
    const std::vector<int64_t> choices = band_choices(step);
    bool any = false;
    std::string refusal;
    for (auto count = choices.rbegin(); count != choices.rend() && !(finest && any); ++count) try {
        any = maker.add_bands(step, *count) || any;
      } catch (const UserError& error) {  // a kernel may know so many bands and no more
        refusal = error.what();
      }
    if (!any) maker.pool().band_refusal = refusal;
  } catch (const UserError& error) {
    maker.pool().band_refusal = error.what();
  }
}

}  // namespace

void search_ahead(const Graph& graph, KernelBook& book, SearchMemo& memo,
                  const Switches& switches) {
  if (!switches.recompute) return;
  const Bytes alignment = book.backend().alignment();
  const GraphFacts facts = book.facts(graph);
  Problem problem = graph.loops.empty() ? make_problem(graph, facts.nodes, alignment).problem
                                        : make_problem(graph.loops[0].body, facts.loops[0].nodes,
                                                       alignment, &graph.loops[0])
                                              .problem;
  if (!lower(problem, {})) return;  // make_pool says why
  Problem leaving = problem;
  if (switches.away > 0) leaving.copies = device_copies(switches.away);
  memo.search_ahead(std::move(problem), std::move(leaving));
}

Pool make_pool(const Graph& whole, KernelBook& book, SearchMemo& memo, const VariableLayout& layout,
               const Switches& switches, const QuickLook& quick) {
  PoolMaker maker(whole, book, memo, layout, switches, quick.most);
  if (switches.split && *switches.split > 1) {
    add_asked(maker, whole, *switches.split);
    return std::move(maker.pool());
  }
  const std::vector<int64_t> choices =
      quick.only.empty() ? split_choices(samples_of(whole)) : quick.only;
  // The two long searches side by side, on a device: its bill has no memory of the host.
  if (!switches.split && !quick.most && !book.backend().on_host() && !choices.empty() &&
      choices.back() > 1)
    try {
      search_ahead(split_batch(whole, choices.back()), book, memo, switches);
    } catch (const UserError&) {  // told below
    }
  maker.add_whole();
  if (switches.split) return std::move(maker.pool());
  // The finest first: it decides the least memory, and is searched in full.
  try {
    for (auto trips = choices.rbegin(); trips != choices.rend(); ++trips)
      if (*trips > 1) maker.add_split(*trips);
  } catch (const UserError& error) {
    maker.pool().refusal = error.what();
  }
  if (has_images(whole)) add_choices_of_bands(maker, whole, !quick.only.empty());
  order_splits(maker.pool());
  return std::move(maker.pool());
}

Prepared build(const Graph& whole, const PoolEntry& entry, KernelBook& book,
               const VariableLayout& layout) {
  Prepared result;
  result.split = entry.split;
  Decision decision;
  const Decision mine{
      .drops = entry.drops, .stays = entry.stays, .waits_ms = entry.waits_ms, .loops = {}};
  result.bands = entry.bands;
  if (entry.bands > 0) {
    const ImageStep step = mark_images(whole);
    result.graph = split_bands(step, *find_bands(step, entry.bands));
    decision.loops.push_back(mine);
  } else if (entry.split > 1) {
    result.graph = split_batch(whole, entry.split);
    decision.loops.push_back(mine);
  } else {
    result.graph = whole;
    decision = mine;
  }
  result.facts = book.facts(result.graph);
  const auto make = book.backend().on_host() ? make_plan : make_device_plan;
  result.plan = make(result.graph, result.facts, layout, book.backend().alignment(), decision);
  validate(result.graph, result.plan, result.facts);
  return result;
}

}  // namespace pl
