// Steps that a device runs as one launch: those whose kernels take several calls, and that touch
// nothing that the others, or the steps between them, write. The plan knows nothing of it.
#include <algorithm>

#include "execute/executor.h"

namespace pl {
namespace {

struct Extent {
  const char* begin;
  const char* end;
};
bool touch(const std::vector<Extent>& a, const std::vector<Extent>& b) {
  for (const Extent& x : a)
    for (const Extent& y : b)
      if (x.begin < y.end && y.begin < x.end) return true;
  return false;
}

struct Extents {
  std::vector<Extent> in, out;  // read, written: a workspace is among the latter
  // Whether the order of two steps is of no consequence.
  bool apart(const Extents& other) const {
    return !touch(out, other.out) && !touch(out, other.in) && !touch(in, other.out);
  }
  Bytes bytes() const {
    Bytes sum = 0;
    for (const auto* list : {&in, &out})
      for (const Extent& extent : *list) sum += extent.end - extent.begin;
    return sum;
  }
};
Extents extents_of(const Graph& graph, const Executor::Bound& step) {
  const Node& node = graph.nodes[index(step.node)];
  auto extent = [&](void* at, Bytes bytes) {
    const char* begin = static_cast<const char*>(at);
    return Extent{begin, begin + bytes};
  };
  auto of_value = [&](void* at, ValueId id) {
    return extent(at, graph.values[index(id)].meta.bytes());
  };
  Extents extents;
  for (size_t i = 0; i < node.in.size(); ++i)
    extents.in.push_back(of_value(step.in[i], node.in[i]));
  for (size_t o = 0; o < node.out.size(); ++o)
    extents.out.push_back(of_value(step.out[o], node.out[o]));
  if (step.workspace) extents.out.push_back(extent(step.workspace, step.kernel->workspace_bytes));
  return extents;
}

constexpr size_t kMostTogether = 256;
// Of operands and results. A launch costs the time of some MiB; what is larger runs where it
// stands, while what it reads is still in the device's cache.
constexpr Bytes kMostToWait = 4 * kMiB;

// Steps that may run as one launch, where the last of them stands.
struct Together {
  const SeveralKernel* kernel;
  std::vector<size_t> steps = {};
  std::vector<Extents> extents = {};
  bool small = true;  // all of them: others may run before them

  bool apart(const Extents& other) const {
    return std::all_of(extents.begin(), extents.end(),
                       [&](const Extents& own) { return own.apart(other); });
  }
};

}  // namespace

// Steps wait for the next ones like them as long as nothing gets in their way: then all that wait
// run, where the last of them stands. So each waits as long as it may, and launches are as few as
// the plan's addresses allow.
void Executor::join_steps(const Graph& graph, std::vector<Bound>& steps,
                          const std::vector<bool>& apart, size_t cut) {
  if (!device_) return;
  std::vector<Together> waiting;
  auto run = [&](const Together& group) {
    if (group.steps.size() < 2) return;
    for (size_t s : group.steps) steps[s].waits = s != group.steps.back();
    steps[group.steps.back()].together = group.steps;
    calls_.reserve(std::max(calls_.capacity(), group.steps.size()));
  };
  auto run_all = [&] {
    for (const Together& group : waiting) run(group);
    waiting.clear();
  };
  for (size_t s = 0; s < steps.size(); ++s) {
    const Bound& step = steps[s];
    const bool alone = step.loop >= 0 || !step.behind.empty() || (!apart.empty() && apart[s]);
    if (alone || !step.before.empty() || s == cut) run_all();
    if (alone) continue;
    const auto* kernel = dynamic_cast<const SeveralKernel*>(step.kernel);
    Extents extents = extents_of(graph, step);
    const bool small = extents.bytes() <= kMostToWait;
    auto takes = [&](const Together& group) {
      return kernel && group.steps.size() < kMostTogether && group.kernel->joins(*kernel);
    };
    std::erase_if(waiting, [&](const Together& group) {
      const bool stays = group.apart(extents) && (group.small || takes(group));
      if (!stays) run(group);
      return !stays;
    });
    if (!kernel) continue;
    auto group = std::find_if(waiting.begin(), waiting.end(), takes);
    if (group == waiting.end()) group = waiting.insert(group, {.kernel = kernel});
    group->steps.push_back(s);
    group->extents.push_back(std::move(extents));
    group->small = group->small && small;
  }
  run_all();
}

void Executor::run_together(std::span<const Bound> steps, const std::vector<size_t>& together) {
  calls_.clear();
  for (size_t s : together)
    calls_.push_back({steps[s].kernel, steps[s].in.data(), steps[s].out.data()});
  static_cast<SeveralKernel*>(steps[together[0]].kernel)->run_several(calls_);
}

// Sums that lie side by side are zeroed as one.
std::vector<std::pair<void*, Bytes>> joined_ranges(std::vector<std::pair<void*, Bytes>> ranges,
                                                   Bytes alignment) {
  std::sort(ranges.begin(), ranges.end());
  std::vector<std::pair<void*, Bytes>> joined;
  for (const auto& [at, bytes] : ranges) {
    if (bytes == 0) continue;
    auto* last = joined.empty() ? nullptr : &joined.back();
    char* begin = static_cast<char*>(at);
    if (last && static_cast<char*>(last->first) + align_up(last->second, alignment) == begin)
      last->second = begin + bytes - static_cast<char*>(last->first);
    else
      joined.emplace_back(at, bytes);
  }
  return joined;
}

}  // namespace pl
