// Takes drops back where there is room: first all of one role in repeated blocks, then single ones,
// the dearest first.
#include <algorithm>
#include <map>

#include "plan/search/moves.h"

namespace pl {
namespace {

constexpr size_t kMostSingle = 32;

}  // namespace

void undo_drops(const Space& space, const View& view, std::vector<Proposal>& proposals) {
  const Flat& flat = space.flat;
  struct Class {
    double ms = 0;
    size_t first = 0;  // for ties
    Proposal proposal;
  };
  auto ms_of = [&](const Drop& drop) {
    return drop.away ? 0.0 : flat.ms[index(flat.producer[index(drop.value)])];
  };
  auto kind_of = [&](int value) {
    const int producer = flat.producer[index(value)];
    return producer < 0 ? index(value) : space.kind_of[index(producer)];
  };
  std::map<std::pair<uint64_t, uint64_t>, Class> by_kind;
  std::vector<Class> single;
  for (size_t i = 0; i < view.drops.size(); ++i) {
    const Drop& drop = view.drops[i];
    const Change change{.remove = {drop}};
    Class& found = by_kind[{kind_of(drop.value), space.kind_of[index(drop.at)]}];
    if (found.proposal.parts.empty()) found.first = i;
    found.ms += ms_of(drop);
    found.proposal.parts.push_back(change);
    single.push_back({ms_of(drop), i, {{change}}});
  }
  std::vector<Class> classes;
  for (auto& [kind, found] : by_kind)
    if (found.proposal.parts.size() > 1) classes.push_back(std::move(found));
  auto dearer = [](const Class& a, const Class& b) {
    return a.ms != b.ms ? a.ms > b.ms : a.first < b.first;
  };
  std::sort(classes.begin(), classes.end(), dearer);
  std::sort(single.begin(), single.end(), dearer);
  if (single.size() > kMostSingle) single.resize(kMostSingle);
  for (auto* list : {&classes, &single})
    for (Class& found : *list) proposals.push_back(std::move(found.proposal));
}

}  // namespace pl
