// A bias in front of a batch normalisation: the mean takes it away again. Neither it nor its
// gradient, a sum that is zero but for rounding, need a pass over the images.
//
//   (x, w, b) -> conv2d -> z                      (x, w) -> conv2d -> z
//   z -> batch_moments -> m, v                    z -> batch_moments -> n, v
//   (z, m, v) -> batch_norm_apply -> y       =>   (z, n, v) -> batch_norm_apply -> y
//   (z, m, v, dy) -> batch_norm_gradient -> dz    (z, n, v, dy) -> batch_norm_gradient -> dz
//   (x, dz) -> conv2d_weight_gradient -> dw, db   (x, dz) -> conv2d_weight_gradient -> dw; 0 -> db
//   m -> moving_statistics                        (n, b) -> add -> m -> moving_statistics
#include <algorithm>
#include <map>

#include "op/batch_norm.h"
#include "op/batch_norm_gradient.h"
#include "op/conv2d.h"
#include "plan/passes.h"
#include "plan/rewrite.h"

namespace pl::pass {
namespace {

bool is_gradient(const Node& node) {
  return node.op == kBatchNormGradient.name || node.op == kBatchNormReluGradient.name ||
         node.op == kBatchNormAddReluGradient.name;
}

// Reads z as the value that is normalised with these moments, and in no other way.
bool normalises(const Node& node, const Node& moments) {
  if (node.op != kBatchNormApply.name && node.op != kBatchNormAdd.name && !is_gradient(node))
    return false;
  const ValueId z = moments.in[0];
  return node.in[0] == z && node.in[1] == moments.out[0] && node.in[2] == moments.out[1] &&
         std::count(node.in.begin(), node.in.end(), z) == 1;
}

struct Dropping {
  Graph& graph;
  std::vector<std::vector<NodeId>> readers = readers_of(graph);
  std::map<NodeId, std::vector<NodeId>> before = {};  // nodes to insert

  // The convolution with a bias that makes z, where only batch norm reads it; null: none.
  Node* convolution(NodeId n) {
    const Node& moments = graph.nodes[index(n)];
    const ValueId z = moments.in[0];
    const NodeId producer = graph.values[index(z)].producer;
    if (producer < 0 || is_kept(graph, z)) return nullptr;
    Node& conv = graph.nodes[index(producer)];
    if (conv.op != kConv2d.name || conv.in.size() != 3 || conv.attrs.has("activation") ||
        graph.values[index(conv.in[2])].meta != graph.values[index(moments.out[0])].meta)
      return nullptr;
    for (NodeId reader : readers[index(z)])
      if (reader != n && !normalises(graph.nodes[index(reader)], moments)) return nullptr;
    return &conv;
  }

  void run(NodeId n) {
    Node* conv = convolution(n);
    if (!conv) return;
    const ValueId z = graph.nodes[index(n)].in[0], mean = graph.nodes[index(n)].out[0];
    const ValueId bias = conv->in[2];
    conv->in.pop_back();
    for (NodeId reader : readers[index(z)])
      if (is_gradient(graph.nodes[index(reader)]))
        forget_gradient(graph.nodes[index(reader)].out[0]);
    restore_mean(n, mean, bias);
  }

  // Whoever else reads the mean gets it with the bias.
  void restore_mean(NodeId n, ValueId mean, ValueId bias) {
    const Node moments = graph.nodes[index(n)];
    std::vector<NodeId> others;
    for (NodeId reader : readers[index(mean)])
      if (!normalises(graph.nodes[index(reader)], moments)) others.push_back(reader);
    if (others.empty() && !is_kept(graph, mean)) return;
    const Value value = graph.values[index(mean)];
    const auto whole = static_cast<ValueId>(graph.values.size());
    graph.values.push_back(value);
    for (NodeId reader : others) {
      auto& in = graph.nodes[index(reader)].in;
      std::replace(in.begin(), in.end(), mean, whole);
    }
    std::replace(graph.keep.begin(), graph.keep.end(), mean, whole);
    before[n + 1].push_back(append(
        {.op = "add", .in = {mean, bias}, .out = {whole}, .attrs = {}, .path = moments.path}));
  }

  // Of dz the weight gradients alone make sums of biases.
  void forget_gradient(ValueId dz) {
    for (NodeId reader : readers[index(dz)]) {
      Node& gradient = graph.nodes[index(reader)];
      if (gradient.op != kConv2dWeightGradient.name || gradient.in[1] != dz ||
          gradient.out.size() != 2)
        continue;
      const ValueId db = gradient.out[1];
      const Meta& meta = graph.values[index(db)].meta;
      gradient.out.pop_back();
      gradient.attrs.set("with_bias", int64_t{0});
      before[reader].push_back(append({.op = "fill",
                                       .in = {},
                                       .out = {db},
                                       .attrs = {{"shape", meta.shape.dims()},
                                                 {"value", 0.0},
                                                 {"dtype", std::string(name_of(meta.dtype))}},
                                       .path = gradient.path}));
    }
  }

  NodeId append(Node node) {
    graph.nodes.push_back(std::move(node));
    return static_cast<NodeId>(graph.nodes.size()) - 1;
  }
};

}  // namespace

void drop_norm_bias(Graph& graph) {
  const auto count = static_cast<NodeId>(graph.nodes.size());
  Dropping dropping{graph};
  for (NodeId n = 0; n < count; ++n)
    if (graph.nodes[index(n)].op == kBatchMoments.name) dropping.run(n);
  std::vector<NodeId> order;
  for (NodeId n = 0; n <= count; ++n) {
    if (auto at = dropping.before.find(n); at != dropping.before.end())
      order.insert(order.end(), at->second.begin(), at->second.end());
    if (n < count) order.push_back(n);
  }
  rebuild(graph, std::vector<bool>(graph.nodes.size(), false), order);
}

}  // namespace pl::pass
