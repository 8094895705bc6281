// lower(): a set of drops becomes an order of steps. Before a node with drops lies a bay: the nodes
// that compute the dropped values again, in base order. A bay that reads a value which is not
// dropped there uses the copy that is there and so holds it longer; evaluate() counts that.
#include <algorithm>

#include "plan/search/flat.h"

namespace pl {

Scorer::Scorer(const Flat& flat)
    : flat_(flat),
      dropped_in_(index(flat.values), 0),
      gone_(index(flat.values), 0),
      in_bay_(index(flat.nodes), 0),
      taken_in_(index(flat.values), 0) {}

// Appends the bay before `at`. False: it would run an effect again or read a replaced value.
bool Scorer::run_bay(int at, std::span<const Drop> dropped, std::vector<int>& steps) {
  ++stamp_;
  for (const Drop& drop : dropped)
    if (!drop.away) dropped_in_[index(drop.value)] = stamp_;
  bay_.clear();
  auto add = [&](int producer) {
    if (producer < 0 || producer >= at || !flat_.rerun[index(producer)]) return false;
    if (in_bay_[index(producer)] == stamp_) return true;
    in_bay_[index(producer)] = stamp_;
    bay_.push_back(producer);
    return true;
  };
  for (const Drop& drop : dropped)
    if (drop.early && !add(flat_.producer[index(drop.value)])) return false;
  // bay_ is its own worklist: each node in it is asked for its inputs once.
  auto ask = [&](int node) {
    if (node != at && flat_.walks[index(node)].replaced < at) return false;
    for (int value : flat_.reads(node)) {
      if ((dropped_in_[index(value)] == stamp_ || gone_[index(value)]) &&
          !add(flat_.producer[index(value)]))
        return false;
    }
    return true;
  };
  if (!ask(at)) return false;
  for (size_t i = 0; i < bay_.size(); ++i)
    if (!ask(bay_[i])) return false;
  std::sort(bay_.begin(), bay_.end());
  steps.insert(steps.end(), bay_.begin(), bay_.end());
  return true;
}

// With values that are released behind some node: whoever reads one later has a bay for it, with
// drops or without.
bool Scorer::lower_with_releases(std::span<const Drop> drops, std::vector<int>& steps) {
  const size_t most = 3 * index(flat_.nodes);
  steps.clear();
  std::fill(gone_.begin(), gone_.end(), uint8_t{0});
  auto release = flat_.released.begin();
  for (int n = 0; n < flat_.nodes; ++n) {
    size_t end = 0;
    while (end < drops.size() && drops[end].at == n) ++end;
    const Flat::Walk& walk = flat_.walks[index(n)];
    bool bay = end > 0;
    for (int t = walk.reads; t < walk.end; ++t)
      bay = bay || gone_[index(flat_.touches[index(t)].value)];
    if (bay) {
      const size_t before = steps.size();
      if (!run_bay(n, drops.first(end), steps)) return false;
      if (steps.size() + index(flat_.nodes - n) > most) return false;
      for (size_t s = before; s < steps.size(); ++s)
        for (int value : flat_.writes(steps[s])) gone_[index(value)] = 0;
    }
    drops = drops.subspan(end);
    steps.push_back(n);
    for (; release != flat_.released.end() && release->first == n; ++release)
      gone_[index(release->second)] = 1;
  }
  return true;
}

bool Scorer::lower(std::span<const Drop> drops, std::vector<int>& steps) {
  if (!flat_.released.empty()) return lower_with_releases(drops, steps);
  const size_t most = 3 * index(flat_.nodes);
  steps.clear();
  int next = 0;
  auto run_until = [&](int end) {
    while (next < end) steps.push_back(next++);
  };
  for (size_t begin = 0; begin < drops.size();) {
    const int at = drops[begin].at;
    size_t end = begin + 1;
    while (end < drops.size() && drops[end].at == at) ++end;
    run_until(at);
    if (!run_bay(at, drops.subspan(begin, end - begin), steps)) return false;
    if (steps.size() + index(flat_.nodes - next) > most) return false;
    begin = end;
  }
  run_until(flat_.nodes);
  return true;
}

std::optional<std::vector<int>> lower(const Problem& problem, const Drops& drops) {
  const Flat flat(problem);
  Scorer scorer(flat);
  std::vector<int> steps;
  if (!scorer.lower(placed(drops), steps)) return std::nullopt;
  return steps;
}

}  // namespace pl
