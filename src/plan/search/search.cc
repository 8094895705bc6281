// search(): runs the engines, then gives every entry of the pool its addresses.
#include <algorithm>
#include <cmath>

#include "plan/search/engines.h"

namespace pl {
namespace {

// A new engine is a file with a function like ladder() and a line here.
constexpr Engine kEngines[] = {
    {"segments", 0.05, segments},
    {"ladder", 0.85, ladder},
    {"improve", 0.92, improve},
    {"shake", 1.0, shake},
};

constexpr size_t kFewEntries = 26, kManyEntries = 400;

}  // namespace

// Steps to walk in all. About 0.1 s for 700 nodes, and little more for more: blocks that repeat
// move at once.
int64_t effort_for(int nodes, int effort) {
  const double n = nodes;
  const double steps = std::min(40e3 * n, 7e6 * std::sqrt(std::clamp(n / 700, 1.0, 400.0)));
  return static_cast<int64_t>(steps * std::max(effort, 1));
}

// Few enough for addresses: of neighbours in bytes, the one that is much slower for little less
// goes first.
std::vector<Choice> thin(const std::vector<Choice>& entries, size_t nodes) {
  const size_t most = std::clamp(25'000 / std::max<size_t>(nodes, 1), kFewEntries, kManyEntries);
  if (entries.size() <= most) return entries;
  std::vector<Choice> kept;
  const double high = std::log(static_cast<double>(std::max<Bytes>(entries.front().score.peak, 1)));
  const double low = std::log(static_cast<double>(std::max<Bytes>(entries.back().score.peak, 1)));
  // The fastest of each part of the range: the first, since time ascends.
  int part = -1;
  for (const Choice& entry : entries) {
    const double here = std::log(static_cast<double>(std::max<Bytes>(entry.score.peak, 1)));
    const int in = static_cast<int>((high - here) / std::max(high - low, 1e-9) *
                                    static_cast<double>(most - 2));
    if (in == part) continue;
    part = in;
    kept.push_back(entry);
  }
  if (kept.back().drops != entries.back().drops) kept.push_back(entries.back());
  return kept;
}

namespace {

Candidate with_addresses(const Problem& problem, Space& space, const Choice& choice) {
  Candidate candidate{.drops = choice.drops, .peak = choice.score.peak, .ms = choice.score.ms};
  std::sort(candidate.drops.begin(), candidate.drops.end());
  candidate.bytes = height_of(problem, space.steps(choice));
  return candidate;
}

}  // namespace

std::vector<Candidate> search(const Problem& problem, const SearchOptions& options) {
  Space space(problem, options.bound ? *options.bound : lower_bound(problem),
              effort_for(static_cast<int>(problem.nodes.size()), options.effort));
  Choice nothing_dropped;
  space.score(nothing_dropped, 0);
  for (const Engine& engine : kEngines) engine.run(space, engine.share);
  std::vector<Candidate> result;
  for (const Choice& choice : thin(space.pool.entries(), problem.nodes.size())) {
    Candidate candidate = with_addresses(problem, space, choice);
    // Bytes after addresses may not follow the peaks; time ascends, so that only bytes decide.
    if (result.empty() || candidate.bytes < result.back().bytes)
      result.push_back(std::move(candidate));
  }
  return result;
}

std::optional<Candidate> try_drops(const Problem& problem, const Drops& drops) {
  const auto steps = lower(problem, drops);
  if (!steps) return std::nullopt;
  Candidate candidate{.drops = drops, .stays = schedule(problem, drops, *steps)};
  const int count = static_cast<int>(steps->size());
  std::vector<ByteOffset> places;
  candidate.away = assign_stays(problem, candidate.stays, count, places);
  if (candidate.away > problem.copies.room) return std::nullopt;
  const std::vector<int> marked = with_marks(problem, *steps, candidate.stays);
  candidate.bytes = height_of(problem, marked);
  candidate.ms = time_of(problem, *steps, candidate.stays);
  candidate.waits_ms = std::max(0.0, candidate.ms - time_of(problem, *steps, {}));
  return candidate;
}

}  // namespace pl
