// What follows a matrix product, in the product: libraries of devices add a matrix, or multiply by
// gelu's slope, before they write the result. A convolution of one tap is a product too. And all
// gradients of layer norm in one pass, with the gradient of the branch around it.
//
//   (a, b, bias) -> matmul -> p; (p, c) -> add -> s         =>  (a, b, c, bias) -> matmul_add -> s
//   (a, b) -> matmul -> p; (x, p) -> gelu_gradient -> dx    =>  (a, b, x) -> matmul_gelu_gradient
//   (w, dy) -> conv2d_input_gradient -> d; (d, c) -> add    =>  (w, dy, c) -> ..._gradient_add
//   (x, m, r, dy) -> layer_norm_parameter_gradient -> dg, db
//   (x, g, m, r, dy) -> layer_norm_gradient -> d            =>  (x, g, m, r, dy, c) ->
//   (d, c) -> add -> dx                                             layer_norm_gradients
//   dx -> reduce_sum -> s                                             -> dx, dg, db, s
#include <algorithm>

#include "op/attention.h"
#include "op/conv2d_gradient_add.h"
#include "op/gelu.h"
#include "op/layer_norm.h"
#include "op/layer_norm_gradients.h"
#include "op/matmul_fused.h"
#include "op/reduce.h"
#include "plan/passes.h"
#include "plan/rewrite.h"

namespace pl::pass {
namespace {

struct ProductFusion {
  Graph& graph;
  std::vector<std::vector<NodeId>> readers = readers_of(graph);
  std::vector<bool> dropped = std::vector<bool>(graph.nodes.size(), false);

  const Meta& meta(ValueId id) const { return graph.values[index(id)].meta; }
  bool alone(ValueId id) const { return readers[index(id)].size() == 1 && !is_kept(graph, id); }
  // The node that makes `id` for one reader alone, if it is a call of `op` that was not taken.
  NodeId producer(ValueId id, const char* op) const {
    const NodeId made_by = graph.values[index(id)].producer;
    if (made_by < 0 || graph.nodes[index(made_by)].op != op || dropped[index(made_by)]) return -1;
    return alone(id) ? made_by : -1;
  }
  // The same for a product of rows with a matrix, without anything behind it.
  NodeId product(ValueId id) const {
    const NodeId made_by = producer(id, kMatmul.name);
    if (made_by < 0) return -1;
    const Attrs& attrs = graph.nodes[index(made_by)].attrs;
    const bool plain = is_floating(meta(id).dtype) && !attrs.has("activation") &&
                       !attrs.has("dtype") && attrs.integer("transpose_a", 0) == 0;
    return plain ? made_by : -1;
  }

  // The sum takes in the product, as `find` knows it, among its operands; of two the later one.
  void join_sum(NodeId n, const Op& joined, NodeId (ProductFusion::*find)(ValueId) const) {
    Node& sum = graph.nodes[index(n)];
    if (sum.in[0] == sum.in[1] || meta(sum.in[0]) != meta(sum.in[1])) return;
    const NodeId first = (this->*find)(sum.in[0]), second = (this->*find)(sum.in[1]);
    const NodeId made_by = std::max(first, second);
    if (made_by < 0) return;
    const Node& factor = graph.nodes[index(made_by)];
    const ValueId other = sum.in[made_by == first ? 1 : 0];
    std::vector<ValueId> in{factor.in[0], factor.in[1], other};
    if (factor.in.size() > 2) in.push_back(factor.in[2]);  // a bias
    sum.op = joined.name;
    sum.attrs = factor.attrs;
    sum.path = factor.path;
    sum.in = std::move(in);
    dropped[index(made_by)] = true;
  }

  // A convolution of one tap.
  NodeId pixel_product(ValueId id) const {
    const NodeId made_by = producer(id, kConv2dInputGradient.name);
    if (made_by < 0) return -1;
    const Node& node = graph.nodes[index(made_by)];
    const Conv2dForm f =
        conv2d_input_gradient_form({meta(node.in[0]), meta(node.in[1])}, node.attrs);
    const WindowAxis &h = f.window.h, &w = f.window.w;
    const bool plain =
        f.groups == 1 && h.kernel * w.kernel == 1 && h.before + h.after + w.before + w.after == 0;
    return plain ? made_by : -1;
  }

  void join_gelu(NodeId n) {
    Node& slope = graph.nodes[index(n)];
    if (slope.attrs.integer("approximate", 0) == 0 || slope.in[0] == slope.in[1]) return;
    const NodeId made_by = product(slope.in[1]);
    if (made_by < 0) return;
    const Node& matrix = graph.nodes[index(made_by)];
    if (matrix.in.size() != 2) return;
    slope.op = kMatmulGeluGradient.name;
    slope.attrs = matrix.attrs;
    slope.in = {matrix.in[0], matrix.in[1], slope.in[0]};
    dropped[index(made_by)] = true;
  }

  bool read_before(ValueId id, NodeId n) const {
    const auto& all = readers[index(id)];
    return !all.empty() && all.front() < n;
  }

  // Both gradients of a layer norm, at the place of the second, or of the sum behind it.
  void join_norm(NodeId n) {
    const Node input = graph.nodes[index(n)];
    const ValueId x = input.in[0], dy = input.in[4];
    NodeId sums = -1;
    for (NodeId reader : readers[index(dy)]) {
      const Node& node = graph.nodes[index(reader)];
      if (node.op == kLayerNormParameterGradient.name && !dropped[index(reader)] &&
          node.in == std::vector<ValueId>{x, input.in[2], input.in[3], dy})
        sums = reader;
    }
    if (sums < 0) return;
    const std::vector<ValueId> parameters = graph.nodes[index(sums)].out;
    NodeId place = n;
    std::vector<ValueId> in = input.in;
    ValueId dx = input.out[0];
    if (alone(dx)) {
      const NodeId reader = readers[index(dx)][0];
      const Node& sum = graph.nodes[index(reader)];
      if (sum.op == "add" && sum.in[0] != sum.in[1] && meta(sum.in[0]) == meta(sum.in[1])) {
        place = reader;
        in.push_back(sum.in[sum.in[0] == dx ? 1 : 0]);
        dx = sum.out[0];
      }
    }
    for (ValueId parameter : parameters)
      if (read_before(parameter, place)) return;
    dropped[index(sums)] = dropped[index(n)] = true;
    dropped[index(place)] = false;
    Node& joined = graph.nodes[index(place)];
    joined = input;
    joined.op = kLayerNormGradients.name;
    joined.in = std::move(in);
    joined.out = {dx, parameters[0], parameters[1]};
    join_total(joined);
  }

  // The sum of dx over its rows, which the gradient of a bias is, in the same pass.
  void join_total(Node& norm) {
    const Meta& dx = meta(norm.out[0]);
    for (NodeId reader : readers[index(norm.out[0])]) {
      const Node& sum = graph.nodes[index(reader)];
      if (sum.op != kReduceSum.name || dropped[index(reader)] ||
          meta(sum.out[0]) != meta(norm.out[1]) ||
          sum.attrs.list("axes").size() + 1 != dx.shape.dims().size() ||
          sum.attrs.list("axes").back() + 2 != dx.shape.rank())
        continue;
      norm.attrs.set("sum", int64_t{1});
      norm.out.push_back(sum.out[0]);
      dropped[index(reader)] = true;
      return;
    }
  }
};

}  // namespace

void fuse_product(Graph& graph) {
  ProductFusion fusion{graph};
  const auto count = static_cast<NodeId>(graph.nodes.size());
  // Norms first: the sum of two gradients is theirs.
  for (NodeId n = 0; n < count; ++n)
    if (graph.nodes[index(n)].op == kLayerNormGradient.name) fusion.join_norm(n);
  for (NodeId n = 0; n < count; ++n) {
    if (fusion.dropped[index(n)]) continue;
    if (graph.nodes[index(n)].op == "add") fusion.join_sum(n, kMatmulAdd, &ProductFusion::product);
    if (graph.nodes[index(n)].op == "add")
      fusion.join_sum(n, kConv2dInputGradientAdd, &ProductFusion::pixel_product);
    if (graph.nodes[index(n)].op == kGeluGradient.name) fusion.join_gelu(n);
  }
  rebuild(graph, fusion.dropped);
}

void keep_attention_apart(Graph& graph) {
  for (Node& node : graph.nodes)
    if (node.op == kAttentionGradient.name) node.attrs.set("apart", int64_t{1});
}

}  // namespace pl::pass
