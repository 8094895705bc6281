// Swaps: a dear drop goes, and over the same steps something cheaper that is at least as large is
// dropped instead. The worked example of docs/planner.md.
#include <algorithm>

#include "plan/search/moves.h"

namespace pl {
namespace {

constexpr size_t kMostDrops = 6, kMostGaps = 3;

}  // namespace

void swap_drops(const Space& space, const View& view, std::vector<Proposal>& proposals) {
  const Flat& flat = space.flat;
  auto ms_of = [&](int value) { return flat.ms[index(flat.producer[index(value)])]; };
  std::vector<Drop> drops = view.drops;
  std::erase_if(drops, [](const Drop& drop) { return drop.away; });
  std::stable_sort(drops.begin(), drops.end(),
                   [&](const Drop& a, const Drop& b) { return ms_of(a.value) > ms_of(b.value); });
  if (drops.size() > kMostDrops) drops.resize(kMostDrops);
  for (const Drop& drop : drops) {
    // Taken back, the value is held up to the first step of the bay before `at`.
    const auto end = std::lower_bound(view.anchor.begin(), view.anchor.end(), drop.at);
    const int step = static_cast<int>(end - view.anchor.begin()) - 1;
    std::vector<const Gap*> gaps;
    for (const Gap& gap : view.gaps)
      if (gap.from < step && step < gap.to && ms_of(gap.value) < ms_of(drop.value) &&
          flat.bytes[index(gap.value)] >= flat.bytes[index(drop.value)])
        gaps.push_back(&gap);
    std::stable_sort(gaps.begin(), gaps.end(),
                     [&](const Gap* a, const Gap* b) { return ms_of(a->value) < ms_of(b->value); });
    if (gaps.size() > kMostGaps) gaps.resize(kMostGaps);
    for (const Gap* gap : gaps)
      for (int depth : {0, kClosures[4]}) {
        Change change = close_gap(space, view, *gap, depth, true);
        if (change.add.empty()) continue;
        change.remove.push_back(drop);
        proposals.push_back({{std::move(change)}});
      }
  }
}

}  // namespace pl
