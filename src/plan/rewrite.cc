#include "plan/rewrite.h"

#include <algorithm>
#include <numeric>

#include "base/error.h"

namespace pl {

bool is_kept(const Graph& graph, ValueId id) {
  return std::find(graph.keep.begin(), graph.keep.end(), id) != graph.keep.end();
}

std::vector<std::vector<NodeId>> readers_of(const Graph& graph) {
  std::vector<std::vector<NodeId>> readers(graph.values.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n)
    for (ValueId in : graph.nodes[n].in) {
      auto& list = readers[index(in)];
      if (list.empty() || list.back() != static_cast<NodeId>(n))
        list.push_back(static_cast<NodeId>(n));
    }
  return readers;
}

void replace_uses(Graph& graph, ValueId from, ValueId to) {
  for (Node& node : graph.nodes) std::replace(node.in.begin(), node.in.end(), from, to);
  std::replace(graph.keep.begin(), graph.keep.end(), from, to);
}

void rebuild(Graph& graph, const std::vector<bool>& dropped, const std::vector<NodeId>& order) {
  std::vector<NodeId> sequence = order;
  if (sequence.empty()) {
    sequence.resize(graph.nodes.size());
    std::iota(sequence.begin(), sequence.end(), 0);
  }
  std::vector<Node> nodes;
  for (NodeId id : sequence)
    if (!dropped[index(id)]) nodes.push_back(std::move(graph.nodes[index(id)]));
  std::vector<ValueId> renamed(graph.values.size(), -1);
  std::vector<Value> values;
  auto keep_value = [&](ValueId id, NodeId producer) {
    if (renamed[index(id)] >= 0) return;
    renamed[index(id)] = static_cast<ValueId>(values.size());
    values.push_back(std::move(graph.values[index(id)]));
    values.back().producer = producer;
  };
  for (const GraphVariable& variable : graph.variables) keep_value(variable.first, -1);
  for (ValueId id : graph.inputs) keep_value(id, -1);
  for (size_t n = 0; n < nodes.size(); ++n)
    for (ValueId id : nodes[n].out) keep_value(id, static_cast<NodeId>(n));
  auto rename = [&](ValueId& id) {
    id = renamed[index(id)];
    check(id >= 0, "a pass dropped a value that is still used");
  };
  for (Node& node : nodes) {
    for (ValueId& id : node.in) rename(id);
    for (ValueId& id : node.out) rename(id);
  }
  for (ValueId& id : graph.inputs) rename(id);
  for (ValueId& id : graph.keep) rename(id);
  for (GraphVariable& variable : graph.variables) {
    rename(variable.first);
    rename(variable.last);
  }
  graph.nodes = std::move(nodes);
  graph.values = std::move(values);
}

}  // namespace pl
