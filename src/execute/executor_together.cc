// Steps that a device runs as one launch: neighbours whose kernels take several calls, and that do
// not touch what the others write. The plan knows nothing of it.
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
  std::vector<Extent> in, out;
};
Extents extents_of(const Graph& graph, const Executor::Bound& step) {
  const Node& node = graph.nodes[index(step.node)];
  auto extent = [&](void* at, ValueId id) {
    const char* begin = static_cast<const char*>(at);
    return Extent{begin, begin + graph.values[index(id)].meta.bytes()};
  };
  Extents extents;
  for (size_t i = 0; i < node.in.size(); ++i) extents.in.push_back(extent(step.in[i], node.in[i]));
  for (size_t o = 0; o < node.out.size(); ++o)
    extents.out.push_back(extent(step.out[o], node.out[o]));
  return extents;
}

constexpr size_t kMostTogether = 256;

}  // namespace

// `apart`: steps whose operands move from trip to trip; empty: none.
void Executor::join_steps(const Graph& graph, std::vector<Bound>& steps,
                          const std::vector<bool>& apart) {
  if (!device_) return;
  auto alone = [&](size_t s) {
    return steps[s].loop >= 0 || !steps[s].behind.empty() || (!apart.empty() && apart[s]);
  };
  for (size_t s = 0; s < steps.size(); s += steps[s].together) {
    const auto* kernel = dynamic_cast<const SeveralKernel*>(steps[s].kernel);
    if (!kernel || alone(s)) continue;
    std::vector<Extents> taken{extents_of(graph, steps[s])};
    for (size_t t = s + 1; t < steps.size() && t - s < kMostTogether; ++t) {
      if (alone(t) || !steps[t].before.empty() || !kernel->joins(*steps[t].kernel)) break;
      Extents next = extents_of(graph, steps[t]);
      if (std::any_of(taken.begin(), taken.end(), [&](const Extents& other) {
            return touch(next.out, other.out) || touch(next.out, other.in) ||
                   touch(next.in, other.out);
          }))
        break;
      taken.push_back(std::move(next));
    }
    steps[s].together = taken.size();
    calls_.reserve(std::max(calls_.capacity(), taken.size()));
  }
}

void Executor::run_together(std::span<const Bound> steps) {
  calls_.clear();
  for (const Bound& step : steps) calls_.push_back({step.kernel, step.in.data(), step.out.data()});
  static_cast<SeveralKernel*>(steps[0].kernel)->run_several(calls_);
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
