// The list of passes, and the small ones. What needs no pass: dropout keeps nothing for its
// gradient (it makes its mask again from a counter), and max-pool keeps a byte per output already.
#include "plan/passes.h"

#include <algorithm>
#include <chrono>
#include <map>

#include "base/error.h"
#include "op/op.h"
#include "op/update.h"
#include "plan/rewrite.h"

namespace pl {

// On a GPU cuDNN's convolutions gain more than fusing them with what follows does.
PassOptions passes_for(DeviceKind device) {
  if (device != DeviceKind::cuda) return {};
  return {.off = {"fuse-conv-pool"}, .device = true};
}

const std::vector<Pass>& passes() {
  static const std::vector<Pass> list = {
      {"dead-code", "drops what neither a kept value nor a variable needs", pass::drop_dead_code},
      {"common-subexpressions", "computes equal calls once", pass::share_common_subexpressions},
      {"loss-head",
       "matmul, cross-entropy over 1,024 classes or more, and their gradients become one call in "
       "blocks of rows: no whole logits",
       pass::block_loss_head},
      {"fold-padding",
       "zeros around images become the padding of the convolution or pool that reads them",
       pass::fold_padding},
      {"relu-behind-pool",
       "relu(x) then max-pool becomes max-pool then relu: a quarter of the work, and the "
       "large activation dies at once",
       pass::move_relu_behind_pool},
      {"relu-bits",
       "a bit per element instead of a rectified value whose sign alone the backward part reads",
       pass::store_relu_bits},
      {"batch-norm",
       "batch norm in two parts, and with it the addition and the relu behind it, forward and "
       "backward",
       pass::fuse_batch_norm},
      {"norm-bias",
       "a bias in front of batch norm, which takes it away again, is added to the moving mean "
       "alone",
       pass::drop_norm_bias, true},
      {"fuse-relu", "relu becomes the epilogue of the matmul or convolution before it",
       pass::fuse_relu},
      {"fuse-conv-pool",
       "a convolution over few channels, its max-pool and relu become one call, and their "
       "gradients another: no large image between them",
       pass::fuse_conv_pool},
      {"gradient-onto", "the gradient of an embedding is added in the place of the tied head's",
       pass::add_gradient_onto},
      {"fuse-product",
       "what is added to a product, gelu's slope behind one, and the gradients of layer norm with "
       "the branch around it become one call each",
       pass::fuse_product, true},
      {"narrow-bias", "biases in the dtype of the products that add them, cast once a step",
       pass::narrow_bias, true},
      {"attention-apart",
       "gradients of attention do not take the place of what the device's library still reads",
       pass::keep_attention_apart, true},
      {"early-update", "updates each variable as soon as its gradient is final",
       pass::update_early},
      {"fuse-pointwise",
       "chains of pointwise ops become one pass in tiles: what lies between them never exists",
       pass::fuse_pointwise},
  };
  return list;
}

void run_passes(Graph& graph, const PassOptions& options) {
  for (const Pass& pass : passes()) {
    if (options.off.contains(pass.name) || (pass.device && !options.device)) continue;
    const auto start = std::chrono::steady_clock::now();
    pass.run(graph);
    check_graph(graph);
    const std::chrono::duration<double, std::milli> spent =
        std::chrono::steady_clock::now() - start;
    if (options.after) options.after(pass, graph, spent.count());
  }
}

namespace pass {

void drop_dead_code(Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false);
  for (ValueId id : graph.keep) needed[index(id)] = true;
  std::vector<bool> dropped(graph.nodes.size(), true);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    const Op* op = find_op(node.op);
    bool live = op && op->effects.writes_state;
    for (ValueId out : node.out) live = live || needed[index(out)];
    if (!live) continue;
    dropped[n] = false;
    for (ValueId in : node.in) needed[index(in)] = true;
  }
  rebuild(graph, dropped);
}

void share_common_subexpressions(Graph& graph) {
  std::map<std::string, NodeId> seen;
  std::vector<bool> dropped(graph.nodes.size(), false);
  std::vector<ValueId> same(graph.values.size());
  for (size_t v = 0; v < same.size(); ++v) same[v] = static_cast<ValueId>(v);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& node = graph.nodes[n];
    for (ValueId& in : node.in) in = same[index(in)];
    const Op* op = find_op(node.op);
    if (!op || op->effects.writes_state || node.loop >= 0) continue;
    std::string key = node.op + node.attrs.print();
    for (ValueId in : node.in) key += " " + std::to_string(in);
    for (ValueId out : node.out) key += " " + graph.values[index(out)].meta.text();
    auto [at, fresh] = seen.emplace(std::move(key), static_cast<NodeId>(n));
    if (fresh) continue;
    dropped[n] = true;
    const Node& first = graph.nodes[index(at->second)];
    for (size_t o = 0; o < node.out.size(); ++o) same[index(node.out[o])] = first.out[o];
  }
  for (ValueId& id : graph.keep) id = same[index(id)];
  rebuild(graph, dropped);
}

void fuse_relu(Graph& graph) {
  const auto readers = readers_of(graph);
  std::vector<bool> dropped(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& relu = graph.nodes[n];
    if (relu.op != "relu") continue;
    const ValueId before = relu.in[0];
    const NodeId producer = graph.values[index(before)].producer;
    if (producer < 0 || readers[index(before)].size() != 1) continue;
    if (is_kept(graph, before)) continue;
    Node& matrix = graph.nodes[index(producer)];
    if ((matrix.op != "matmul" && matrix.op != "conv2d") || matrix.attrs.has("activation"))
      continue;
    matrix.attrs.set("activation", std::string("relu"));
    matrix.out[0] = relu.out[0];
    dropped[n] = true;
  }
  rebuild(graph, dropped);
}

namespace {

// Calls body(node) for the nodes that read the storage of a value: itself, or one that aliases it
// (reshape).
template <class Body>
void each_reader(const Graph& graph, const std::vector<std::vector<NodeId>>& readers, ValueId id,
                 const Body& body) {
  for (NodeId reader : readers[index(id)]) {
    body(reader);
    const Node& node = graph.nodes[index(reader)];
    const Op* op = find_op(node.op);
    if (!op) continue;
    for (const InOut& pair : op->alias)
      if (node.in[index(pair.in)] == id)
        each_reader(graph, readers, node.out[index(pair.out)], body);
  }
}

// What may run as soon as its operands are there: updates, and what is computed for them (of
// category optimizer), unless something else in the step reads it.
std::vector<bool> movable_nodes(const Graph& graph,
                                const std::vector<std::vector<NodeId>>& readers) {
  std::vector<bool> movable(graph.nodes.size(), false);
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    const Op* op = find_op(node.op);
    if (!op) continue;
    bool moves = true;
    for (ValueId out : node.out) {
      const Value& value = graph.values[index(out)];
      moves = moves && (op->effects.writes_state || value.category == Category::optimizer);
      for (NodeId reader : readers[index(out)]) moves = moves && movable[index(reader)];
    }
    movable[n] = moves;
  }
  return movable;
}

}  // namespace

void update_early(Graph& graph) {
  const auto readers = readers_of(graph);
  const std::vector<bool> movable = movable_nodes(graph, readers);
  // For each node: the one that stays where it is and after which this one can run; itself if it
  // does not move.
  std::vector<NodeId> place(graph.nodes.size());
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    place[n] = static_cast<NodeId>(n);
    if (!movable[n]) continue;
    const Node& node = graph.nodes[n];
    NodeId ready = -1;
    auto wait_for = [&](NodeId other) {
      if (other >= 0) ready = std::max(ready, place[index(other)]);
    };
    for (ValueId in : node.in) wait_for(graph.values[index(in)].producer);
    for (const InOut& pair : next_versions(get_op(node.op), node.out.size()))
      each_reader(graph, readers, node.in[index(pair.in)], [&](NodeId reader) {
        if (reader != static_cast<NodeId>(n)) wait_for(reader);
      });
    place[n] = ready;
  }
  // What waits for nothing runs with the first that needs it, not before the forward part.
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    if (!movable[n] || place[n] >= 0) continue;
    NodeId first = static_cast<NodeId>(n);
    for (ValueId out : graph.nodes[n].out)
      for (NodeId reader : readers[index(out)]) first = std::min(first, place[index(reader)]);
    place[n] = first < static_cast<NodeId>(n) ? first : -1;
  }
  std::vector<std::vector<NodeId>> after(graph.nodes.size() + 1);
  std::vector<bool> moved(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!movable[n] || place[n] >= static_cast<NodeId>(n)) continue;
    moved[n] = true;
    after[index(place[n] + 1)].push_back(static_cast<NodeId>(n));
  }
  std::vector<NodeId> order;
  for (size_t n = 0; n <= graph.nodes.size(); ++n) {
    for (NodeId update : after[n]) order.push_back(update);
    if (n < graph.nodes.size() && !moved[n]) order.push_back(static_cast<NodeId>(n));
  }
  rebuild(graph, std::vector<bool>(graph.nodes.size(), false), order);
}

}  // namespace pass
}  // namespace pl
