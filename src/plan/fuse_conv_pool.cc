// A convolution over few channels and the max-pool behind it become one call, and so do their
// gradients where the images need none (the first layer): the large image between them, and its
// gradient, never exist.
//
//   (x, w, b) -> conv2d -> c; c -> max_pool -> q, i; q -> relu -> p
//   (p, dp) -> relu_gradient -> dq; (i, dq) -> max_pool_gradient -> dc
//   (x, dc) -> conv2d_weight_gradient -> dw, db
//
// becomes
//
//   (x, w, b) -> conv2d_pool -> p, i
//   (x, i, dp) -> conv2d_pool_weight_gradient -> dw, db
//
// Where i names no position, relu let nothing through: its gradient needs no pass of its own.
#include <algorithm>

#include "op/conv2d_pool.h"
#include "plan/passes.h"
#include "plan/rewrite.h"

namespace pl::pass {
namespace {

Metas metas_of(const Graph& graph, const std::vector<ValueId>& ids) {
  Metas out;
  for (ValueId id : ids) out.push_back(graph.values[index(id)].meta);
  return out;
}

struct Fusion {
  Graph& graph;
  std::vector<std::vector<NodeId>> readers = readers_of(graph);
  std::vector<bool> dropped = std::vector<bool>(graph.nodes.size(), false);

  // The node that makes `id`, if it is a call of `op` and nothing but one node reads its result.
  NodeId sole_producer(ValueId id, const char* op) const {
    const NodeId producer = graph.values[index(id)].producer;
    if (producer < 0 || graph.nodes[index(producer)].op != op) return -1;
    return readers[index(id)].size() == 1 && !kept(id) ? producer : -1;
  }
  // The node that alone reads `id`, if it is a call of `op`.
  NodeId sole_reader(ValueId id, const char* op) const {
    const auto& all = readers[index(id)];
    return all.size() == 1 && !kept(id) && graph.nodes[index(all[0])].op == op ? all[0] : -1;
  }
  bool kept(ValueId id) const { return is_kept(graph, id); }
  bool computable(ValueId id) const {
    const Dtype dtype = graph.values[index(id)].meta.dtype;
    return dtype == Dtype::float32 || dtype == Dtype::float64;
  }

  void forward(NodeId n) {
    Node& pool = graph.nodes[index(n)];
    const NodeId producer = sole_producer(pool.in[0], kConv2d.name);
    if (producer < 0 || !computable(pool.in[0])) return;
    const Node& conv = graph.nodes[index(producer)];
    if (conv.attrs.has("activation") ||
        !conv2d_pool_fits(conv2d_form(metas_of(graph, conv.in), conv.attrs),
                          max_pool_form(metas_of(graph, pool.in), pool.attrs)))
      return;
    Attrs attrs = conv2d_pool_attrs(conv.attrs, pool.attrs);
    const NodeId relu = sole_reader(pool.out[0], "relu");
    if (relu >= 0) {
      attrs.set("activation", std::string("relu"));
      if (mask_by_index(relu, pool.out[1])) attrs.set("masked", int64_t{1});
      pool.out[0] = graph.nodes[index(relu)].out[0];
      dropped[index(relu)] = true;
    }
    pool.op = kConv2dPool.name;
    pool.attrs = std::move(attrs);
    pool.in = conv.in;
    pool.path = conv.path;
    dropped[index(producer)] = true;
  }

  // Fuses the gradients of a rectified pool, if all that reads its index is the weight gradient of
  // the convolution.
  bool mask_by_index(NodeId relu, ValueId winners) {
    const NodeId scatter = sole_reader(winners, kMaxPoolGradient.name);
    if (scatter < 0) return false;
    const ValueId dq = graph.nodes[index(scatter)].in[1];
    const NodeId mask = sole_producer(dq, "relu_gradient");
    const ValueId p = graph.nodes[index(relu)].out[0];
    if (mask < 0 || graph.nodes[index(mask)].in[0] != p || graph.nodes[index(mask)].in[1] == p)
      return false;
    const NodeId gradient =
        sole_reader(graph.nodes[index(scatter)].out[0], kConv2dWeightGradient.name);
    if (gradient < 0 || !backward(gradient)) return false;
    graph.nodes[index(gradient)].in[2] = graph.nodes[index(mask)].in[1];
    dropped[index(mask)] = true;
    return true;
  }

  bool backward(NodeId n) {
    Node& gradient = graph.nodes[index(n)];
    const NodeId producer = sole_producer(gradient.in[1], kMaxPoolGradient.name);
    if (producer < 0 || !computable(gradient.in[0])) return false;
    const Node& scatter = graph.nodes[index(producer)];
    if (!conv2d_pool_fits(conv2d_weight_gradient_form(metas_of(graph, gradient.in), gradient.attrs),
                          max_pool_gradient_form(metas_of(graph, scatter.in), scatter.attrs)))
      return false;
    gradient.op = kConv2dPoolWeightGradient.name;
    gradient.attrs = conv2d_pool_attrs(gradient.attrs, scatter.attrs);
    gradient.in = {gradient.in[0], scatter.in[0], scatter.in[1]};
    dropped[index(producer)] = true;
    return true;
  }
};

}  // namespace

void fuse_conv_pool(Graph& graph) {
  Fusion fusion{graph};
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::string& op = graph.nodes[n].op;
    if (op == kMaxPool.name)
      fusion.forward(static_cast<NodeId>(n));
    else if (op == kConv2dWeightGradient.name)
      fusion.backward(static_cast<NodeId>(n));
  }
  rebuild(graph, fusion.dropped);
}

}  // namespace pl::pass
