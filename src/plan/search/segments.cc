// Even segments: what is held over the fullest step, in the order in which it is used again, in
// equal parts. Of each part the value made first stays; the rest is computed again together, before
// the part's first use. Long chains need this: single gaps would be closed one by one, and the
// effort would be spent before the low end. Where it suffices, single gaps do better.
#include <algorithm>

#include "plan/search/engines.h"

namespace pl {
namespace {

// Gaps over the fullest step of a choice without drops, by the step that ends them.
std::vector<Gap> held_over_peak(const View& view) {
  const auto peak =
      static_cast<int>(std::max_element(view.live.begin(), view.live.end()) - view.live.begin());
  std::vector<Gap> held;
  for (const Gap& gap : view.gaps)
    if (gap.from <= peak && peak < gap.to && !gap.early) held.push_back(gap);
  std::stable_sort(held.begin(), held.end(),
                   [](const Gap& a, const Gap& b) { return a.to < b.to; });
  return held;
}

// Drops of all parts of `size` gaps.
std::vector<Drop> drops_of(const std::vector<Gap>& held, size_t size) {
  std::vector<Drop> drops;
  for (size_t begin = 0; begin < held.size(); begin += size) {
    const size_t end = std::min(begin + size, held.size());
    size_t first = begin;  // made first
    for (size_t i = begin; i < end; ++i)
      if (held[i].from < held[first].from) first = i;
    for (size_t i = begin; i < end; ++i)
      if (i != first)
        drops.push_back({held[i].value, held[begin].at, held[i].at != held[begin].at});
  }
  std::sort(drops.begin(), drops.end(), by_place);
  drops.erase(std::unique(drops.begin(), drops.end()), drops.end());
  return drops;
}

}  // namespace

void segments(Space& space, double share) {
  if (!space.large()) return;
  const View view = space.view(Choice{}, 0);
  const std::vector<Gap> held = held_over_peak(view);
  for (size_t size = 2; size <= held.size() && !space.spent(share); size += (size + 2) / 3) {
    Choice choice;
    choice.drops = drops_of(held, size);
    space.score(choice, 0);
  }
}

}  // namespace pl
