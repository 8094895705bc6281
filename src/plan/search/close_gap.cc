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

bool closure(const Space& space, const View& view, const Gap& gap, int depth, size_t most,
             std::vector<Drop>& drops) {
  const Flat& flat = space.flat;
  drops.clear();
  drops.push_back({gap.value, gap.at, gap.early});
  uint64_t seen = uint64_t{1} << (gap.value % 64);  // most are told apart without a look
  auto known = [&](int value) {
    return ((seen >> (value % 64)) & 1) &&
           std::any_of(drops.begin(), drops.end(),
                       [&](const Drop& drop) { return drop.value == value; });
  };
  // Link by link: what [begin, end) of the drops read, they are `link` links behind the gap.
  size_t begin = 0, end = 1;
  for (int link = 0; begin < end; ++link, begin = end, end = drops.size())
    for (size_t i = begin; i < end; ++i)
      for (int value : flat.reads(flat.producer[index(drops[i].value)])) {
        const int replaced = flat.replaced_by[index(value)];
        if (replaced >= 0 && replaced < gap.at) return false;
        const int from = flat.producer[index(value)];
        if (from < 0 || !flat.rerun[index(from)] || flat.bytes[index(value)] == 0) continue;
        if (link >= depth || drops.size() >= most) continue;
        if (known(value) || view.live_at(value, gap.to)) continue;
        seen |= uint64_t{1} << (value % 64);
        drops.push_back({value, gap.at});
      }
  return true;
}

Change close_gap(const Space& space, const View& view, const Gap& gap, int depth, bool take_over,
                 size_t most) {
  Change change;
  if (!closure(space, view, gap, depth, most, change.add)) return {};
  if (!take_over) return change;
  for (const Drop& drop : change.add) {
    const auto next = std::upper_bound(
        view.by_value.begin(), view.by_value.end(), drop, [](const Drop& a, const Drop& b) {
          return a.value != b.value ? a.value < b.value : a.at < b.at;
        });
    if (next != view.by_value.end() && next->value == drop.value)
      change.remove.push_back({drop.value, next->at});
  }
  return change;
}

}  // namespace pl
