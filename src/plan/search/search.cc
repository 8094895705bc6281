// search(): runs the engines, then gives every entry of the pool its addresses.
#include <algorithm>
#include <cmath>

#include "base/side_by_side.h"
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

std::vector<Candidate> search(const Problem& problem, const SearchOptions& options) {
  Space space(problem, options.bound ? *options.bound : lower_bound(problem),
              effort_for(static_cast<int>(problem.nodes.size()), options.effort));
  Choice nothing_dropped;
  space.score(nothing_dropped, 0);
  for (const Engine& engine : kEngines) engine.run(space, engine.share);
  const std::vector<Choice> choices = thin(space.pool.entries(), problem.nodes.size());
  std::vector<std::vector<int>> steps;
  for (const Choice& choice : choices) steps.push_back(space.steps(choice));
  std::vector<Bytes> bytes(choices.size());
  side_by_side(choices.size(), options.threads,
               [&](size_t c) { bytes[c] = height_of(problem, steps[c]); });
  std::vector<Candidate> result;
  for (size_t c = 0; c < choices.size(); ++c) {
    const Choice& choice = choices[c];
    // Bytes after addresses may not follow the peaks; time ascends, so that only bytes decide.
    if (!result.empty() && bytes[c] >= result.back().bytes) continue;
    result.push_back({.drops = choice.drops,
                      .bytes = bytes[c],
                      .peak = choice.score.peak,
                      .ms = choice.score.ms});
    std::sort(result.back().drops.begin(), result.back().drops.end());
  }
  return result;
}

std::optional<Candidate> try_drops(const Problem& problem, const Drops& drops) {
  const Flat flat(problem);
  Scorer scorer(flat);
  const Drops sorted = placed(drops);
  std::vector<int> steps;
  if (!scorer.lower(sorted, steps)) return std::nullopt;
  Candidate candidate{.drops = drops};
  scorer.schedule(sorted, steps, candidate.stays);
  std::vector<ByteOffset> places;
  candidate.away = assign_stays(problem, candidate.stays, static_cast<int>(steps.size()), places);
  if (candidate.away > problem.copies.room) return std::nullopt;
  candidate.ms = scorer.time(steps, candidate.stays);
  if (candidate.stays.empty()) {
    candidate.bytes = height_of(problem, steps);
    return candidate;
  }
  candidate.waits_ms = std::max(0.0, candidate.ms - scorer.time(steps, {}));
  std::vector<int> marked;
  put_marks(flat, steps, candidate.stays, marked);
  candidate.bytes = height_of(problem, marked);
  return candidate;
}

std::vector<std::optional<Candidate>> try_each(const Problem& problem, std::span<const Drops> list,
                                               size_t threads) {
  std::vector<std::optional<Candidate>> tried(list.size());
  side_by_side(list.size(), threads, [&](size_t i) { tried[i] = try_drops(problem, list[i]); });
  return tried;
}

}  // namespace pl
