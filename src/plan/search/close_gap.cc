// The closure of a drop. Computing a value again needs its inputs; one that is not live at that
// place would be held up to it, which may cost what the drop saves. So it is dropped there too.
#include <algorithm>

#include "plan/search/moves.h"

namespace pl {

Gap end_early(const View& view, const Gap& gap, int to) {
  Gap ended = gap;
  ended.at = view.anchor[index(to)];
  ended.to = to;
  ended.early = ended.at != gap.at || gap.early;
  return ended;
}

Change close_gap(const Space& space, const View& view, const Gap& gap, int depth, bool take_over,
                 size_t most) {
  const Flat& flat = space.flat;
  Change change;
  change.add.push_back({gap.value, gap.at, gap.early});
  std::vector<int> depth_of{0};
  auto known = [&](int value) {
    return std::any_of(change.add.begin(), change.add.end(),
                       [&](const Drop& drop) { return drop.value == value; });
  };
  for (size_t i = 0; i < change.add.size(); ++i) {
    const int producer = flat.producer[index(change.add[i].value)];
    for (int value : flat.reads(producer)) {
      const int replaced = flat.replaced_by[index(value)];
      if (replaced >= 0 && replaced < gap.at) return {};
      const int from = flat.producer[index(value)];
      if (from < 0 || !flat.rerun[index(from)] || flat.bytes[index(value)] == 0) continue;
      if (depth_of[i] >= depth || change.add.size() >= most) continue;
      if (view.live_at(value, gap.to) || known(value)) continue;
      change.add.push_back({value, gap.at});
      depth_of.push_back(depth_of[i] + 1);
    }
  }
  if (!take_over) return change;
  for (const Drop& drop : change.add) {
    int next = -1;
    for (const Drop& other : view.drops)
      if (other.value == drop.value && other.at > drop.at && (next < 0 || other.at < next))
        next = other.at;
    if (next >= 0) change.remove.push_back({drop.value, next});
  }
  return change;
}

}  // namespace pl
