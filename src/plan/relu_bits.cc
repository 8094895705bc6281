// A rectified value that the backward part reads for its sign alone is not kept for it: relu notes
// a bit per element, and the value dies with its last reader of the forward part.
//
//   x -> relu -> y -> (dropout, add, ...)         x -> relu_bits -> y, bits
//   (y, dy) -> relu_gradient -> dx           =>   (bits, dy) -> relu_bits_gradient -> dx
//
// Where another gradient reads y (a matmul's or a convolution's weight gradient) it is kept
// anyway, and bits would only add to it.
#include <algorithm>

#include "op/op.h"
#include "op/relu_bits.h"
#include "plan/passes.h"
#include "plan/rewrite.h"

namespace pl::pass {
namespace {

// The relu_gradient that alone keeps relu node `n`'s output for the backward part, or -1.
NodeId gradient_of(const Graph& graph, const std::vector<std::vector<NodeId>>& readers, NodeId n) {
  std::vector<ValueId> views{graph.nodes[index(n)].out[0]};  // y and its reshaped forms
  NodeId gradient = -1;
  for (size_t v = 0; v < views.size(); ++v) {
    if (is_kept(graph, views[v])) return -1;
    for (NodeId reader : readers[index(views[v])]) {
      const Node& node = graph.nodes[index(reader)];
      const Op* op = find_op(node.op);
      if (node.op == "relu_gradient" && v == 0 && gradient < 0 && node.in[0] == views[0] &&
          node.in[1] != views[0]) {
        gradient = reader;
      } else if (op && !op->alias.empty()) {
        views.push_back(node.out[0]);
      } else if (std::any_of(node.out.begin(), node.out.end(), [&](ValueId out) {
                   return graph.values[index(out)].category == Category::gradients;
                 })) {
        return -1;
      }
    }
  }
  return gradient;
}

}  // namespace

void store_relu_bits(Graph& graph) {
  const auto readers = readers_of(graph);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op != "relu") continue;
    const NodeId gradient = gradient_of(graph, readers, static_cast<NodeId>(n));
    const Value y = graph.values[index(graph.nodes[n].out[0])];
    if (gradient < 0 || y.meta.shape.rank() < 1) continue;
    Node& relu = graph.nodes[n];
    relu.op = kReluBits.name;
    Value bits = y;
    bits.meta = kReluBits.infer({y.meta}, {})[1];
    graph.values.push_back(std::move(bits));
    relu.out.push_back(static_cast<ValueId>(graph.values.size()) - 1);
    Node& mask = graph.nodes[index(gradient)];
    mask.op = kReluBitsGradient.name;
    mask.in[0] = relu.out[1];
  }
}

}  // namespace pl::pass
