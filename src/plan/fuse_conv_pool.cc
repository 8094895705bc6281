// A convolution over few channels and the max-pool behind it become one call, and so do their
// gradients where the images need none (the first layer): the large image between them, and its
// gradient, never exist.
//
//   (x, w, b) -> conv2d -> c -> max_pool -> q, i [-> relu -> p]     (x, w, b) -> conv2d_pool -> p,
//   i (i, dq) -> max_pool_gradient -> dc                          => (x, dc) ->
//   conv2d_weight_gradient -> dw, db                     (x, i, dq) -> conv2d_pool_
//                                                                   weight_gradient -> dw, db
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
  bool kept(ValueId id) const {
    return std::find(graph.keep.begin(), graph.keep.end(), id) != graph.keep.end();
  }
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
    const auto& after = readers[index(pool.out[0])];
    if (after.size() == 1 && !kept(pool.out[0]) && graph.nodes[index(after[0])].op == "relu") {
      attrs.set("activation", std::string("relu"));
      pool.out[0] = graph.nodes[index(after[0])].out[0];
      dropped[index(after[0])] = true;
    }
    pool.op = kConv2dPool.name;
    pool.attrs = std::move(attrs);
    pool.in = conv.in;
    pool.path = conv.path;
    dropped[index(producer)] = true;
  }

  void backward(NodeId n) {
    Node& gradient = graph.nodes[index(n)];
    const NodeId producer = sole_producer(gradient.in[1], kMaxPoolGradient.name);
    if (producer < 0 || !computable(gradient.in[0])) return;
    const Node& scatter = graph.nodes[index(producer)];
    if (!conv2d_pool_fits(conv2d_weight_gradient_form(metas_of(graph, gradient.in), gradient.attrs),
                          max_pool_gradient_form(metas_of(graph, scatter.in), scatter.attrs)))
      return;
    gradient.op = kConv2dPoolWeightGradient.name;
    gradient.attrs = conv2d_pool_attrs(gradient.attrs, scatter.attrs);
    gradient.in = {gradient.in[0], scatter.in[0], scatter.in[1]};
    dropped[index(producer)] = true;
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
