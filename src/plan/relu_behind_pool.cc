// relu then max-pool becomes max-pool then relu. Both are monotone, so forward bits are equal;
// where the window's maximum is positive the same element wins, and where it is not the gradient is
// zero either way.
//
//   c -> relu -> y -> max_pool -> p, i          c -> max_pool -> q, i;  q -> relu -> p
//   (i, dp) -> max_pool_gradient -> dy     =>   (p, dp) -> relu_gradient -> dq
//   (y, dy) -> relu_gradient -> dc              (i, dq) -> max_pool_gradient -> dc
#include <algorithm>

#include "op/op.h"
#include "plan/passes.h"
#include "plan/rewrite.h"

namespace pl::pass {
namespace {

struct Match {
  NodeId relu = -1, pool = -1, pool_gradient = -1, relu_gradient = -1;
};

// The pattern around relu node `n`, or relu = -1. A forward-only graph has no gradient half.
Match match(const Graph& graph, const std::vector<std::vector<NodeId>>& readers, NodeId n) {
  const Node& relu = graph.nodes[index(n)];
  if (relu.op != "relu") return {};
  const ValueId y = relu.out[0];
  if (is_kept(graph, y) || graph.values[index(relu.in[0])].variable >= 0) return {};
  Match found{.relu = n};
  for (NodeId reader : readers[index(y)]) {
    const Node& node = graph.nodes[index(reader)];
    if (node.op == "max_pool" && found.pool < 0) {
      found.pool = reader;
    } else if (node.op == "relu_gradient" && node.in[0] == y && node.in[1] != y &&
               found.relu_gradient < 0) {
      found.relu_gradient = reader;
    } else {
      return {};
    }
  }
  if (found.pool < 0 || is_kept(graph, graph.nodes[index(found.pool)].out[1])) return {};
  const ValueId winners = graph.nodes[index(found.pool)].out[1];
  if (found.relu_gradient < 0) return readers[index(winners)].empty() ? found : Match{};
  const ValueId dy = graph.nodes[index(found.relu_gradient)].in[1];
  found.pool_gradient = graph.values[index(dy)].producer;
  if (found.pool_gradient < 0 || is_kept(graph, dy) || readers[index(dy)].size() != 1) return {};
  const Node& scatter = graph.nodes[index(found.pool_gradient)];
  if (scatter.op != "max_pool_gradient" || scatter.in[0] != winners ||
      readers[index(winners)].size() != 1)
    return {};
  return found;
}

ValueId new_value_like(Graph& graph, ValueId like, const std::string& path) {
  Value value = graph.values[index(like)];
  value.variable = -1;
  value.path = path;
  graph.values.push_back(std::move(value));
  return static_cast<ValueId>(graph.values.size()) - 1;
}

void apply(Graph& graph, const Match& m) {
  Node& relu = graph.nodes[index(m.relu)];
  Node& pool = graph.nodes[index(m.pool)];
  const ValueId c = relu.in[0], p = pool.out[0];
  const ValueId q = new_value_like(graph, p, graph.nodes[index(m.relu)].path);
  pool.in[0] = c;
  pool.out[0] = q;
  relu.in[0] = q;
  relu.out[0] = p;
  std::swap(relu, pool);  // base order: the pool comes first now
  if (m.relu_gradient < 0) return;
  Node& scatter = graph.nodes[index(m.pool_gradient)];
  Node& mask = graph.nodes[index(m.relu_gradient)];
  const ValueId dp = scatter.in[1], dc = mask.out[0];
  const ValueId dq = new_value_like(graph, dp, mask.path);
  mask.in = {p, dp};
  mask.out[0] = dq;
  scatter.in[1] = dq;
  scatter.out[0] = dc;
  std::swap(scatter, mask);
}

}  // namespace

void move_relu_behind_pool(Graph& graph) {
  auto readers = readers_of(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Match found = match(graph, readers, static_cast<NodeId>(n));
    if (found.relu < 0) continue;
    apply(graph, found);
    // Producers follow from the nodes; values that lost their producer go.
    rebuild(graph, std::vector<bool>(graph.nodes.size(), false));
    readers = readers_of(graph);
  }
}

}  // namespace pl::pass
