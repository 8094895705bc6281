// Drops values over gaps that cover steps above the target, the same for all gaps that play the
// same role in repeated blocks. A gap ranks by the time of its closure for each byte and step it
// frees.
#include <algorithm>
#include <map>

#include "plan/search/moves.h"

namespace pl {
namespace {

constexpr size_t kMostClasses = 16, kMostClassesOfLarge = 8;

constexpr size_t kMostRanked = 24;  // links of a closure that count for its rank

struct Class {
  std::vector<const Gap*> gaps;
  double ms = 0, freed = 0;
};

int over_steps(const View& view, const Gap& gap) {
  return view.over[index(gap.to)] - view.over[index(gap.from) + 1];
}

double freed(const Space& space, const View& view, const Gap& gap) {
  return static_cast<double>(space.flat.bytes[index(gap.value)]) * over_steps(view, gap);
}

double chain_ms(const Space& space, const std::vector<Drop>& drops) {
  double ms = 0;
  for (const Drop& drop : drops) ms += space.flat.ms[index(space.flat.producer[index(drop.value)])];
  return ms;
}

// The last step within the gap at which all inputs of the value are there; -1: none, or they are
// there at its end anyway.
int last_with_inputs(const Space& space, const View& view, const Gap& gap) {
  int last = gap.to;
  for (int value : space.flat.reads(space.flat.producer[index(gap.value)])) {
    if (space.flat.bytes[index(value)] == 0 || view.live_at(value, gap.to)) continue;
    last = std::min(last, view.last_live_before(value, gap.to));
  }
  if (last == gap.to || last <= gap.from) return -1;
  const int at = view.anchor[index(last)];
  return view.anchor[index(gap.from)] < at && at < gap.at ? last : -1;
}

// Computed again where its inputs are last there, and held from then on.
void propose_early(const Space& space, const View& view, const Class& found,
                   std::vector<Proposal>& proposals) {
  Proposal early;
  for (const Gap* gap : found.gaps) {
    const int last = last_with_inputs(space, view, *gap);
    if (last < 0) continue;
    Change change = close_gap(space, view, end_early(view, *gap, last), 0, true);
    if (!change.add.empty()) early.parts.push_back(std::move(change));
  }
  if (!early.parts.empty()) proposals.push_back(std::move(early));
}

// Variants of one class: closures of several depths, those that differ from the one before.
void propose_class(const Space& space, const View& view, const Class& found,
                   std::vector<Proposal>& proposals) {
  size_t before = 0;
  for (int depth : kClosures) {
    Proposal plain, taking;
    size_t size = 0, removed = 0;
    for (const Gap* gap : found.gaps) {
      Change change = close_gap(space, view, *gap, depth, true);
      if (change.add.empty()) continue;
      size += change.add.size();
      removed += change.remove.size();
      taking.parts.push_back(change);
      change.remove.clear();
      plain.parts.push_back(std::move(change));
    }
    if (size == before) break;  // deeper adds nothing
    before = size;
    proposals.push_back(std::move(plain));
    if (removed > 0) proposals.push_back(std::move(taking));
  }
}

}  // namespace

void drop_gaps(const Space& space, const View& view, std::vector<Proposal>& proposals) {
  if (!space.again) return;
  std::map<uint64_t, Class> by_kind;
  std::vector<Drop> drops;
  for (const Gap& gap : view.gaps) {
    if (over_steps(view, gap) == 0) continue;
    if (!closure(space, view, gap, kClosures[4], kMostRanked, drops)) continue;
    Class& found = by_kind[gap.kind];
    found.gaps.push_back(&gap);
    found.ms += chain_ms(space, drops);
    found.freed += freed(space, view, gap);
  }
  std::vector<Class*> classes;
  for (auto& [kind, found] : by_kind) classes.push_back(&found);
  auto rank = [](const Class* c) { return c->ms / c->freed; };
  const size_t most = std::min(classes.size(), space.large() ? kMostClassesOfLarge : kMostClasses);
  auto earlier = [&](const Class* a, const Class* b) {
    return rank(a) != rank(b) ? rank(a) < rank(b) : a->gaps[0]->from < b->gaps[0]->from;
  };
  std::partial_sort(classes.begin(), classes.begin() + static_cast<std::ptrdiff_t>(most),
                    classes.end(), earlier);
  classes.resize(most);
  for (Class* found : classes) {
    // Those that free the most come first: an engine may apply the first few only.
    std::stable_sort(found->gaps.begin(), found->gaps.end(), [&](const Gap* a, const Gap* b) {
      return freed(space, view, *a) > freed(space, view, *b);
    });
    propose_class(space, view, *found, proposals);
    propose_early(space, view, *found, proposals);
  }
}

}  // namespace pl
