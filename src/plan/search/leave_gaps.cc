// Sends values to another memory over gaps that cover steps above the target: of each role in
// repeated blocks those with the longest gaps first, more and more of them. What copies cost in
// time shows when a choice is scored: nothing, as long as the steps beside them are long enough.
#include <algorithm>
#include <map>

#include "plan/search/moves.h"

namespace pl {
namespace {

constexpr size_t kMostRoles = 10;

struct Leaving {
  std::vector<const Gap*> gaps;
  double freed = 0;
};

// The first 1, 2, 4, ... parts, and all of them.
void propose_growing(const std::vector<Change>& parts, std::vector<Proposal>& proposals) {
  for (size_t count = 1; count < parts.size(); count *= 2)
    proposals.push_back({{parts.begin(), parts.begin() + static_cast<std::ptrdiff_t>(count)}});
  if (!parts.empty()) proposals.push_back({parts});
}

}  // namespace

void leave_gaps(const Space& space, const View& view, std::vector<Proposal>& proposals) {
  if (!space.leaving) return;
  std::map<uint64_t, Leaving> by_role;
  for (const Gap& gap : view.far) {
    const int over = view.over[index(gap.to)] - view.over[index(gap.from) + 1];
    if (over == 0) continue;
    Leaving& found = by_role[gap.kind];
    found.gaps.push_back(&gap);
    found.freed += static_cast<double>(space.flat.bytes[index(gap.value)]) * over;
  }
  std::vector<Leaving*> roles;
  for (auto& [kind, found] : by_role) roles.push_back(&found);
  std::sort(roles.begin(), roles.end(), [](const Leaving* a, const Leaving* b) {
    return a->freed != b->freed ? a->freed > b->freed : a->gaps[0]->from < b->gaps[0]->from;
  });
  if (roles.size() > kMostRoles) roles.resize(kMostRoles);
  for (Leaving* found : roles) {
    std::stable_sort(found->gaps.begin(), found->gaps.end(),
                     [](const Gap* a, const Gap* b) { return a->to - a->from > b->to - b->from; });
    std::vector<Change> parts;
    for (const Gap* gap : found->gaps)
      parts.push_back({.add = {{gap->value, gap->at, false, true}}, .remove = {}});
    propose_growing(parts, proposals);
  }
}

// What is computed again leaves instead: the dearest role first.
void leave_instead(const Space& space, const View& view, std::vector<Proposal>& proposals) {
  if (!space.leaving) return;
  const Flat& flat = space.flat;
  struct Role {
    double ms = 0;
    size_t first = 0;  // for ties
    std::vector<Drop> drops;
  };
  std::map<std::pair<uint64_t, uint64_t>, Role> by_role;
  for (size_t i = 0; i < view.drops.size(); ++i) {
    const Drop& drop = view.drops[i];
    if (drop.away || drop.early || !flat.leaves[index(drop.value)]) continue;
    const int producer = flat.producer[index(drop.value)];
    Role& role = by_role[{space.kind_of[index(producer)], space.kind_of[index(drop.at)]}];
    if (role.drops.empty()) role.first = i;
    role.ms += flat.ms[index(producer)];
    role.drops.push_back(drop);
  }
  std::vector<Role*> roles;
  for (auto& [kind, role] : by_role) roles.push_back(&role);
  std::sort(roles.begin(), roles.end(), [](const Role* a, const Role* b) {
    return a->ms != b->ms ? a->ms > b->ms : a->first < b->first;
  });
  if (roles.size() > kMostRoles) roles.resize(kMostRoles);
  for (Role* role : roles) {
    // Made first and used last: the longest way.
    std::stable_sort(role->drops.begin(), role->drops.end(), [&](const Drop& a, const Drop& b) {
      return a.at - flat.producer[index(a.value)] > b.at - flat.producer[index(b.value)];
    });
    std::vector<Change> parts;
    for (const Drop& drop : role->drops)
      parts.push_back({.add = {{drop.value, drop.at, false, true}}, .remove = {drop}});
    propose_growing(parts, proposals);
  }
}

}  // namespace pl
