// The loss head over many classes becomes one call that works in blocks of rows, so that neither
// logits nor probabilities nor their gradient ever exist whole.
//
//   h, w [, bias] -> matmul -> x                           h, w, labels [, bias], dloss
//   x, labels -> sparse_softmax_cross_entropy -> loss, p     -> linear_cross_entropy
//   p, labels -> sparse_categorical_accuracy -> correct      -> loss, dh, dw [, dbias], correct
//   p, labels, dloss -> ..._gradient -> dx             =>
//   dx, w -> matmul -> dh;  dx, h -> matmul -> dw
//   dx -> reduce_sum -> dbias
//
// Reshapes may stand between, and in mixed precision casts: the call rounds no logits. dloss must
// not depend on the logits (a mean's does not); what it is made from moves in front of the call.
// Evaluation has no gradient half. Sums over rows are cut by the number of classes alone: whether
// this happens, and the bits it gives, depend neither on the batch nor on a budget.
#include <algorithm>

#include "op/op.h"
#include "plan/passes.h"
#include "plan/rewrite.h"

namespace pl::pass {
namespace {

constexpr Dim kLeastClasses = 1024;  // below, the logits are no larger than other activations

using Readers = std::vector<std::vector<NodeId>>;

struct Head {
  NodeId product = -1, entropy = -1, accuracy = -1;
  NodeId gradient = -1, dh = -1, dw = -1, dbias = -1;  // -1: evaluation (dbias: no bias)
  std::vector<NodeId> reshapes;                        // between them
};

// A value under all its shapes that keep the last dimension, and roundings.
struct Family {
  std::vector<ValueId> values;
  std::vector<NodeId> reshapes, readers;
  bool has(ValueId id) const { return std::find(values.begin(), values.end(), id) != values.end(); }
};

class Matcher {
 public:
  explicit Matcher(const Graph& graph) : graph_(graph), readers_(readers_of(graph)) {}

  // The head around cross-entropy node `n`, or product = -1.
  Head match(NodeId n) const {
    Head head{.entropy = n};
    const bool whole = match_forward(head) && match_probabilities(head) &&
                       (head.gradient < 0 || match_gradient(head));
    return whole ? head : Head{};
  }

 private:
  const Node& node(NodeId id) const { return graph_.nodes[index(id)]; }
  const Shape& shape(ValueId id) const { return graph_.values[index(id)].meta.shape; }
  bool kept(ValueId id) const { return is_kept(graph_, id); }

  // Another shape, or the rounding of logits and dlogits in mixed precision.
  bool is_view(const Node& node) const {
    auto dtype = [&](ValueId id) { return graph_.values[index(id)].meta.dtype; };
    return node.op == "reshape" || (node.op == "cast" && is_floating(dtype(node.in[0])) &&
                                    wide(dtype(node.in[0])) == wide(dtype(node.out[0])));
  }
  // The value that `id` is a view of.
  ValueId root(ValueId id) const {
    NodeId producer = graph_.values[index(id)].producer;
    while (producer >= 0 && is_view(node(producer))) {
      id = node(producer).in[0];
      producer = graph_.values[index(id)].producer;
    }
    return id;
  }
  bool same(ValueId a, ValueId b) const { return root(a) == root(b); }

  Family family(ValueId id) const {
    Family result{.values = {id}};
    for (size_t v = 0; v < result.values.size(); ++v)
      for (NodeId reader : readers_[index(result.values[v])]) {
        const bool view = is_view(node(reader)) && shape(node(reader).out[0]).rank() > 0 &&
                          shape(node(reader).out[0]).back() == shape(id).back();
        (view ? result.reshapes : result.readers).push_back(reader);
        if (view) result.values.push_back(node(reader).out[0]);
      }
    return result;
  }
  bool any_kept(const Family& family) const {
    return std::any_of(family.values.begin(), family.values.end(),
                       [&](ValueId id) { return kept(id); });
  }
  static void take_reshapes(Head& head, const Family& family) {
    head.reshapes.insert(head.reshapes.end(), family.reshapes.begin(), family.reshapes.end());
  }

  bool match_forward(Head& head) const {
    const Node& entropy = node(head.entropy);
    const ValueId logits = root(entropy.in[0]);
    head.product = graph_.values[index(logits)].producer;
    if (head.product < 0 || shape(logits).rank() < 2 || shape(logits).back() < kLeastClasses)
      return false;
    const Node& product = node(head.product);
    if (product.op != "matmul" || product.attrs.has("activation") ||
        product.attrs.integer("transpose_a", 0) || shape(product.in[1]).rank() != 2)
      return false;
    const Family views = family(logits);
    take_reshapes(head, views);
    return !any_kept(views) && views.has(entropy.in[0]) &&
           views.readers == std::vector<NodeId>{head.entropy};
  }

  bool match_probabilities(Head& head) const {
    const Node& entropy = node(head.entropy);
    const Family views = family(entropy.out[1]);
    take_reshapes(head, views);
    if (any_kept(views)) return false;
    for (NodeId reader : views.readers) {
      const Node& next = node(reader);
      NodeId& place = next.op == "sparse_categorical_accuracy" ? head.accuracy : head.gradient;
      const bool known = next.op == "sparse_categorical_accuracy" ||
                         next.op == "sparse_softmax_cross_entropy_gradient";
      if (!known || place >= 0 || !same(next.in[1], entropy.in[1])) return false;
      place = reader;
    }
    return true;
  }

  bool match_gradient(Head& head) const {
    const Node& product = node(head.product);
    const ValueId h = product.in[0], w = product.in[1];
    const bool tb = product.attrs.integer("transpose_b", 0);
    const Family views = family(node(head.gradient).out[0]);
    take_reshapes(head, views);
    if (any_kept(views)) return false;
    for (NodeId reader : views.readers) {
      const Node& next = node(reader);
      const bool left = views.has(next.in[0]);
      NodeId* place = nullptr;
      if (next.op == "matmul" && next.in.size() == 2 && !next.attrs.has("activation")) {
        const bool next_ta = next.attrs.integer("transpose_a", 0);
        const bool next_tb = next.attrs.integer("transpose_b", 0);
        const ValueId other = next.in[left ? 1 : 0];
        if (left && other == w && !next_ta && next_tb == !tb) place = &head.dh;
        if (left == tb && next_ta && !next_tb && same(other, h) &&
            shape(other).back() == shape(h).back())
          place = &head.dw;
      } else if (next.op == "reduce_sum" && product.in.size() > 2 && sums_rows(next)) {
        place = &head.dbias;
      }
      if (!place || *place >= 0) return false;
      *place = reader;
    }
    return head.dh >= 0 && head.dw >= 0 && (head.dbias >= 0) == (product.in.size() > 2);
  }

  bool sums_rows(const Node& sum) const {
    const auto& axes = sum.attrs.list("axes");
    const bool all_but_last = axes.size() + 1 == static_cast<size_t>(shape(sum.in[0]).rank());
    return all_but_last && (axes.empty() || axes.back() == static_cast<int64_t>(axes.size()) - 1);
  }

  const Graph& graph_;
  Readers readers_;
};

// The one node that replaces them, or one without outputs where the shapes do not fit. Its last
// output, `correct`, is missing where nobody asked for it.
Node make_call(const Graph& graph, const Head& head) {
  auto node = [&](NodeId id) -> const Node& { return graph.nodes[index(id)]; };
  const Node &product = node(head.product), &entropy = node(head.entropy);
  const bool bias = product.in.size() > 2;
  Node call{.op = "linear_cross_entropy",
            .in = {product.in[0], product.in[1], entropy.in[1]},
            .path = entropy.path};
  auto flag = [&](const char* name, bool value) {
    if (value) call.attrs.set(name, int64_t{1});
  };
  flag("transpose_b", product.attrs.integer("transpose_b", 0));
  flag("bias", bias);
  flag("gradients", head.gradient >= 0);
  if (bias) call.in.push_back(product.in[2]);
  std::vector<ValueId> out{entropy.out[0]};
  if (head.gradient >= 0) {
    call.in.push_back(node(head.gradient).in[2]);
    out.insert(out.end(), {node(head.dh).out[0], node(head.dw).out[0]});
    if (bias) out.push_back(node(head.dbias).out[0]);
  }
  if (head.accuracy >= 0) out.push_back(node(head.accuracy).out[0]);
  Metas in_metas, out_metas;
  for (ValueId id : call.in) in_metas.push_back(graph.values[index(id)].meta);
  for (ValueId id : out) out_metas.push_back(graph.values[index(id)].meta);
  if (head.accuracy < 0)
    out_metas.push_back({Dtype::float32, graph.values[index(entropy.in[1])].meta.shape});
  const bool fits = get_op(call.op).infer(in_metas, call.attrs) == out_metas;
  if (fits) call.out = std::move(out);
  return call;
}

// Marks the nodes that `id` is made from. False where one of them is `dropped` or has an effect.
bool mark_ancestors(const Graph& graph, ValueId id, const std::vector<bool>& dropped,
                    std::vector<bool>& marked) {
  std::vector<ValueId> open{id};
  while (!open.empty()) {
    const NodeId producer = graph.values[index(open.back())].producer;
    open.pop_back();
    if (producer < 0 || marked[index(producer)]) continue;
    const Node& node = graph.nodes[index(producer)];
    const Op* op = find_op(node.op);
    if (dropped[index(producer)] || !op || op->effects.writes_state) return false;
    marked[index(producer)] = true;
    open.insert(open.end(), node.in.begin(), node.in.end());
  }
  return true;
}

// Puts the call where the cross-entropy was. False, and nothing done, where dloss cannot be there.
bool replace(Graph& graph, const Head& head) {
  Node call = make_call(graph, head);
  if (call.out.empty()) return false;
  std::vector<bool> dropped(graph.nodes.size(), false), early(graph.nodes.size(), false);
  for (NodeId id :
       {head.product, head.entropy, head.accuracy, head.gradient, head.dh, head.dw, head.dbias})
    if (id >= 0) dropped[index(id)] = true;
  for (NodeId id : head.reshapes) dropped[index(id)] = true;
  if (head.gradient >= 0 && !mark_ancestors(graph, call.in.back(), dropped, early)) return false;
  if (head.accuracy < 0) {
    Value correct = graph.values[index(call.out[0])];
    correct.meta.dtype = Dtype::float32;
    call.out.push_back(static_cast<ValueId>(graph.values.size()));
    graph.values.push_back(std::move(correct));
  }
  std::vector<NodeId> order;
  const auto place = static_cast<size_t>(head.entropy);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (n == place)
      for (size_t later = n + 1; later < graph.nodes.size(); ++later)
        if (early[later]) order.push_back(static_cast<NodeId>(later));
    if (n <= place || !early[n]) order.push_back(static_cast<NodeId>(n));
  }
  graph.nodes[place] = std::move(call);
  dropped[place] = false;
  rebuild(graph, dropped, order);
  drop_dead_code(graph);  // reshapes that only they read
  return true;
}

}  // namespace

void block_loss_head(Graph& graph) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (graph.nodes[n].op != "sparse_softmax_cross_entropy") continue;
    const Head head = Matcher(graph).match(static_cast<NodeId>(n));
    // Ids have changed: start again. Each time there is one cross-entropy less.
    if (head.product >= 0 && replace(graph, head)) n = static_cast<size_t>(-1);
  }
}

}  // namespace pl::pass
