// Batch normalisation and what follows it, in as few passes over memory as its sums allow. Moments
// become values of their own, which are small: the normalised value is then cheap to make again.
//
//   x -> batch_norm -> z, m, v            x -> batch_moments -> m, v
//   z -> relu -> y                   =>   (x, m, v) -> batch_norm_apply(relu) -> y
//   (y, dy) -> relu_gradient -> g         (x, m, v, dy) -> batch_norm_relu_gradient -> dx
//   (x, m, v, g) -> batch_norm_gradient -> dx
//
// x decides the sign, so that neither y nor bits are kept for it. Where something is added in
// between, y does, and the gradient of what was added, g, is written on the way:
//
//   (z, r) -> add -> s -> relu -> y       (x, m, v, r) -> batch_norm_add(relu) -> y
//   (y, dy) -> relu_gradient -> g    =>   (x, m, v, dy, y) -> batch_norm_add_relu_gradient -> dx, g
//   (x, m, v, g) -> batch_norm_gradient -> dx
//
// A relu may be clipped (relu6).
#include <algorithm>

#include "op/batch_norm.h"
#include "op/batch_norm_gradient.h"
#include "op/relu.h"
#include "op/relu_bits.h"
#include "plan/passes.h"
#include "plan/rewrite.h"

namespace pl::pass {
namespace {

using Readers = std::vector<std::vector<NodeId>>;

// The node that makes `id`, or null.
Node* producer_of(Graph& graph, ValueId id) {
  const NodeId producer = graph.values[index(id)].producer;
  return producer < 0 ? nullptr : &graph.nodes[index(producer)];
}

// The normalisation without activation that makes `id` for one reader alone, or null.
Node* normaliser_of(Graph& graph, const Readers& readers, ValueId id) {
  Node* node = producer_of(graph, id);
  const bool normalises =
      node && (node->op == kBatchNormApply.name || node->op == kBatchNormAdd.name);
  if (!normalises || node->attrs.has("activation")) return nullptr;
  return readers[index(id)].size() == 1 && !is_kept(graph, id) ? node : nullptr;
}

// The first four operands of batch_norm_apply and of its gradient: x, mean, variance, gamma.
bool same_call(const Node& forward, const Node& backward) {
  return std::equal(forward.in.begin(), forward.in.begin() + 4, backward.in.begin());
}

void take_apart(Graph& graph) {
  const size_t count = graph.nodes.size();
  std::vector<NodeId> order;
  for (size_t n = 0; n < count; ++n) {
    order.push_back(static_cast<NodeId>(n));
    if (graph.nodes[n].op != kBatchNorm.name) continue;
    Node apply = graph.nodes[n];
    const ValueId x = apply.in[0], mean = apply.out[1], variance = apply.out[2];
    apply.op = kBatchNormApply.name;
    apply.in = {x, mean, variance, apply.in[1], apply.in[2]};
    apply.out = {apply.out[0]};
    Node& moments = graph.nodes[n];
    moments.op = kBatchMoments.name;
    moments.in = {x};
    moments.out = {mean, variance};
    moments.attrs = {};
    order.push_back(static_cast<NodeId>(graph.nodes.size()));
    graph.nodes.push_back(std::move(apply));
  }
  rebuild(graph, std::vector<bool>(graph.nodes.size(), false), order);
}

// The sum takes in the normalisation among its operands; of two the later one, for which the other
// waits already.
void join_sums(Graph& graph) {
  const Readers readers = readers_of(graph);
  std::vector<bool> dropped(graph.nodes.size(), false);
  for (Node& sum : graph.nodes) {
    if (sum.op != "add" || sum.in[0] == sum.in[1]) continue;
    int chosen = -1;
    for (int i = 0; i < 2; ++i) {
      const ValueId id = sum.in[index(i)];
      if (graph.values[index(id)].meta != graph.values[index(sum.out[0])].meta) chosen = 2;
      const Node* node = normaliser_of(graph, readers, id);
      if (chosen == 2 || !node || node->op != kBatchNormApply.name) continue;
      if (chosen < 0 ||
          graph.values[index(id)].producer > graph.values[index(sum.in[index(chosen)])].producer)
        chosen = i;
    }
    if (chosen < 0 || chosen == 2) continue;
    const NodeId producer = graph.values[index(sum.in[index(chosen)])].producer;
    Node joined = graph.nodes[index(producer)];
    joined.op = kBatchNormAdd.name;
    joined.in.push_back(sum.in[index(1 - chosen)]);
    joined.out = sum.out;
    dropped[index(producer)] = true;
    sum = std::move(joined);
  }
  rebuild(graph, dropped);
}

// Bits that relu-bits stored for a sign that x decides are not needed.
void forget_bits(Graph& graph) {
  const Readers readers = readers_of(graph);
  for (Node& relu : graph.nodes) {
    if (relu.op != kReluBits.name) continue;
    const Node* forward = normaliser_of(graph, readers, relu.in[0]);
    const auto& of_bits = readers[index(relu.out[1])];
    if (!forward || forward->op != kBatchNormApply.name || of_bits.size() != 1) continue;
    Node& mask = graph.nodes[index(of_bits[0])];
    const ValueId g = mask.out[0];
    if (mask.op != kReluBitsGradient.name || readers[index(g)].size() != 1 || is_kept(graph, g))
      continue;
    const Node& backward = graph.nodes[index(readers[index(g)][0])];
    if (backward.op != kBatchNormGradient.name || backward.in[4] != g ||
        !same_call(*forward, backward))
      continue;
    mask.op = kReluGradient.name;
    mask.in[0] = relu.out[0];
    relu.op = kRelu.name;
    relu.out.pop_back();
  }
  rebuild(graph, std::vector<bool>(graph.nodes.size(), false));
}

// A relu, clipped or not; whether both are clipped alike.
bool is_relu(const Node& node) { return node.op == kRelu.name || node.op == "clipped_relu"; }
bool is_relu_gradient(const Node& node) {
  return node.op == kReluGradient.name || node.op == "clipped_relu_gradient";
}
bool same_clip(const Attrs& a, const Attrs& b) {
  return a.has("most") == b.has("most") && a.real("most", 0) == b.real("most", 0);
}
void copy_clip(const Attrs& from, Attrs& to) {
  if (from.has("most")) to.set("most", from.real("most"));
}

void join_relus(Graph& graph) {
  const Readers readers = readers_of(graph);
  std::vector<bool> dropped(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& relu = graph.nodes[n];
    if (!is_relu(relu)) continue;
    Node* normaliser = normaliser_of(graph, readers, relu.in[0]);
    if (!normaliser) continue;
    normaliser->attrs.set("activation", std::string("relu"));
    copy_clip(relu.attrs, normaliser->attrs);
    normaliser->out[0] = relu.out[0];
    dropped[n] = true;
  }
  rebuild(graph, dropped);
}

void join_gradients(Graph& graph) {
  const Readers readers = readers_of(graph);
  std::vector<bool> dropped(graph.nodes.size(), false);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& backward = graph.nodes[n];
    if (backward.op != kBatchNormGradient.name) continue;
    const ValueId g = backward.in[4];
    const Node* mask = producer_of(graph, g);
    if (!mask || !is_relu_gradient(*mask) || mask->in[0] == mask->in[1]) continue;
    const ValueId y = mask->in[0], dy = mask->in[1];
    const Node* forward = producer_of(graph, y);
    const bool by_x = forward && forward->op == kBatchNormApply.name &&
                      forward->attrs.has("activation") && same_call(*forward, backward) &&
                      same_clip(forward->attrs, mask->attrs) && readers[index(g)].size() == 1 &&
                      !is_kept(graph, g);
    if (!by_x && readers[index(g)].front() != static_cast<NodeId>(n)) continue;
    dropped[index(graph.values[index(g)].producer)] = true;
    backward.in[4] = dy;
    copy_clip(mask->attrs, backward.attrs);
    if (by_x) {
      backward.op = kBatchNormReluGradient.name;
      backward.in.push_back(forward->in[4]);
    } else {
      backward.op = kBatchNormAddReluGradient.name;
      backward.in.push_back(y);
      backward.out.push_back(g);
    }
  }
  rebuild(graph, dropped);
}

}  // namespace

void fuse_batch_norm(Graph& graph) {
  take_apart(graph);
  join_sums(graph);
  forget_bits(graph);
  join_relus(graph);
  join_gradients(graph);
}

}  // namespace pl::pass
