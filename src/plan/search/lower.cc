// lower(): a set of drops becomes an order of steps. Before a node with drops lies a bay: the nodes
// that compute the dropped values again, in base order. A bay that reads a value which is not
// dropped there uses the copy that is there and so holds it longer; evaluate() counts that.
#include <algorithm>

#include "plan/search/flat.h"

namespace pl {

Scorer::Scorer(const Flat& flat)
    : flat_(flat),
      dropped_in_(index(flat.values), 0),
      in_bay_(index(flat.nodes), 0),
      taken_in_(index(flat.values), 0) {}

// Appends the bay before `at`. False: it would run an effect again or read a replaced value.
bool Scorer::run_bay(int at, std::span<const Drop> dropped, std::vector<int>& steps) {
  ++stamp_;
  for (const Drop& drop : dropped) dropped_in_[index(drop.value)] = stamp_;
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
      if (dropped_in_[index(value)] == stamp_ && !add(flat_.producer[index(value)])) return false;
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

bool Scorer::lower(std::span<const Drop> drops, std::vector<int>& steps) {
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
  Drops placed = drops;
  std::sort(placed.begin(), placed.end(), by_place);
  std::vector<int> steps;
  if (!scorer.lower(placed, steps)) return std::nullopt;
  return steps;
}

}  // namespace pl
