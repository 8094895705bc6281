// Zeros around images become the padding of what reads them, so that the padded copy never exists.
//
//   x -> pad -> p;  (p, w) -> conv2d                  (x, w) -> conv2d {pads}
//   (p, dy) -> conv2d_weight_gradient            =>   (x, dy) -> conv2d_weight_gradient {pads}
//   (w, dy) -> conv2d_input_gradient -> crop          (w, dy) -> conv2d_input_gradient {pads}
//   relu -> y -> pad -> max_pool                      relu -> y -> max_pool {pads}
//   (i, dy) -> max_pool_gradient -> crop              (i, dy) -> max_pool_gradient {pads}
//
// A pool leaves its padding out, which is the same as zeros where no value is negative. Among equal
// zeros it may now name another as the largest: relu's gradient is 0 at all of them.
#include <algorithm>

#include "op/op.h"
#include "op/window.h"
#include "plan/passes.h"
#include "plan/rewrite.h"

namespace pl::pass {
namespace {

using List = std::vector<int64_t>;

const Node* producer_of(const Graph& graph, ValueId id) {
  const NodeId producer = graph.values[index(id)].producer;
  return producer < 0 ? nullptr : &graph.nodes[index(producer)];
}

bool is_rectified(const Graph& graph, ValueId id) {
  const Node* producer = producer_of(graph, id);
  return producer && (producer->op == "relu" || producer->op == "clipped_relu");
}

// The node's window over images `large` as explicit padding of the images inside `pads`. False
// where the padding would be as wide as the window.
bool widen(Node& node, const Shape& large, const List& kernel, const List& pads) {
  const Window window =
      window_of(node.op.c_str(), large[1], large[2], kernel[0], kernel[1], {}, node.attrs);
  List all = explicit_pads(window);
  for (size_t side = 0; side < 4; ++side) {
    const WindowAxis& axis = side < 2 ? window.h : window.w;
    all[side] += pads[side];
    if (all[side] > (axis.kernel - 1) * axis.dilation) return false;
  }
  const size_t rows = static_cast<size_t>(large[1] - pads[0] - pads[1]),
               columns = static_cast<size_t>(large[2] - pads[2] - pads[3]);
  if (rows == 0 || columns == 0) return false;
  node.attrs.set("padding", std::string("explicit"));
  node.attrs.set("pads", all);
  return true;
}

// Rows and columns of the window that the node slides over images.
List kernel_of(const Graph& graph, const Node& node) {
  if (node.op == "conv2d") return graph.values[index(node.in[1])].meta.shape.dims();
  if (node.op == "conv2d_input_gradient") return graph.values[index(node.in[0])].meta.shape.dims();
  return node.attrs.list(node.op == "conv2d_weight_gradient" ? "kernel_shape" : "pool_size");
}

// A node that reads padded images reads the plain ones.
void fold_into_reader(Graph& graph, Node& node) {
  const bool pool = node.op == "max_pool";
  if (!pool && node.op != "conv2d" && node.op != "conv2d_weight_gradient") return;
  const ValueId padded = node.in[0];
  const Node* pad = producer_of(graph, padded);
  if (!pad || pad->op != "pad" || (pool && !is_rectified(graph, pad->in[0]))) return;
  const Shape& large = graph.values[index(padded)].meta.shape;
  if (widen(node, large, kernel_of(graph, node), pad->attrs.list("pads"))) node.in[0] = pad->in[0];
}

// A gradient of padded images that is cropped at once is that of the plain ones. True when `crop`
// is no longer needed.
bool fold_into_gradient(Graph& graph, const std::vector<std::vector<NodeId>>& readers,
                        const Node& crop) {
  const ValueId padded = crop.in[0];
  const NodeId producer = graph.values[index(padded)].producer;
  if (producer < 0 || readers[index(padded)].size() != 1 || is_kept(graph, padded)) return false;
  Node& node = graph.nodes[index(producer)];
  if (node.op != "conv2d_input_gradient" && node.op != "max_pool_gradient") return false;
  const Shape& large = graph.values[index(padded)].meta.shape;
  if (!widen(node, large, kernel_of(graph, node), crop.attrs.list("pads"))) return false;
  node.attrs.set("input_shape", graph.values[index(crop.out[0])].meta.shape.dims());
  node.out[0] = crop.out[0];
  return true;
}

}  // namespace

void fold_padding(Graph& graph) {
  for (Node& node : graph.nodes) fold_into_reader(graph, node);
  const auto readers = readers_of(graph);
  std::vector<bool> dropped(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (node.op == "crop") dropped[n] = fold_into_gradient(graph, readers, node);
    if (node.op == "pad")
      dropped[n] = readers[index(node.out[0])].empty() && !is_kept(graph, node.out[0]);
  }
  rebuild(graph, dropped);
}

}  // namespace pl::pass
