#include "execute/tracks.h"

#include <map>
#include <numeric>

#include "plan/graph_problem.h"

namespace pl {

std::vector<Track> tracks_of(const Graph& graph, const Loop& loop) {
  const std::vector<ValueId> root = alias_roots(loop.body);
  std::vector<Track> tracks;
  auto follow = [&](ValueId body, ValueId outer, const std::vector<int64_t>& starts) {
    std::vector<Bytes> at;
    for (int64_t trip = 0; trip < loop.trips; ++trip)
      at.push_back(trip_offset(loop, loop.body.values[index(body)].meta,
                               graph.values[index(outer)].meta, starts, trip));
    for (size_t v = 0; v < root.size(); ++v)
      if (root[v] == root[index(body)]) tracks.push_back({static_cast<ValueId>(v), at});
  };
  for (const Loop::In& link : loop.sliced) follow(link.body, link.outer, link.starts);
  for (const Loop::Out& link : loop.stacked) follow(link.body, link.outer, {});
  return tracks;
}

std::vector<Alignments> alignments_of(const Graph& graph, const Loop& loop) {
  std::map<ValueId, Bytes> apart;  // values that are not aligned in full
  for (const Track& track : tracks_of(graph, loop)) {
    Bytes common = kFullAlignment;
    for (Bytes at : track.at) common = std::gcd(common, at);
    if (common < kFullAlignment) apart[track.value] = common;
  }
  std::vector<Alignments> nodes(loop.body.nodes.size());
  if (apart.empty()) return nodes;
  auto list = [&](const std::vector<ValueId>& values) {
    std::vector<Bytes> each;
    for (ValueId value : values) {
      const auto at = apart.find(value);
      each.push_back(at == apart.end() ? kFullAlignment : at->second);
    }
    return each;
  };
  for (size_t n = 0; n < nodes.size(); ++n) {
    const Node& node = loop.body.nodes[n];
    Alignments made{list(node.in), list(node.out)};
    if (made.least() < kFullAlignment) nodes[n] = std::move(made);
  }
  return nodes;
}

}  // namespace pl
