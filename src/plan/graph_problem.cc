#include "plan/graph_problem.h"

#include <algorithm>

#include "base/hash.h"
#include "op/update.h"
#include "plan/remat.h"

namespace pl {
namespace {

bool alias_node(const Node& node) { return node.loop < 0 && !get_op(node.op).alias.empty(); }

class Maker {
 public:
  Maker(const Graph& graph, std::span<const Facts> facts, Bytes alignment)
      : graph_(graph), facts_(facts), alignment_(alignment) {}

  GraphProblem run(const Loop* loop) {
    result_.root = alias_roots(graph_);
    result_.outside.assign(graph_.values.size(), false);
    result_.problem.values.resize(graph_.values.size());
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      if (!alias_node(graph_.nodes[n])) result_.node_of.push_back(static_cast<NodeId>(n));
    for (size_t v = 0; v < graph_.values.size(); ++v)
      if (graph_.values[v].variable >= 0) result_.outside[v] = true;
    if (loop) {
      for (const Loop::In& link : loop->sliced) result_.outside[index(link.body)] = true;
      for (const Loop::Out& link : loop->stacked) result_.outside[index(root(link.body))] = true;
    }
    for (size_t v = 0; v < graph_.values.size(); ++v)
      if (!result_.outside[v] && root(static_cast<ValueId>(v)) == static_cast<ValueId>(v))
        result_.problem.values[v].bytes = align_up(graph_.values[v].meta.bytes(), alignment_);
    for (size_t n = 0; n < result_.node_of.size(); ++n) add_node(static_cast<int>(n));
    for (ValueId id : graph_.keep) result_.problem.values[index(root(id))].keep = true;
    mark_joins(loop);
    release_values(graph_, result_);
    return std::move(result_);
  }

 private:
  ValueId root(ValueId id) const { return result_.root[index(id)]; }

  // Where what a device records ends: behind the loss, and around what lies elsewhere in each trip.
  void mark_joins(const Loop* loop) {
    if (!loop) {
      if (graph_.keep.empty()) return;
      const int producer = result_.problem.values[index(root(graph_.keep[0]))].producer;
      if (producer >= 0) result_.problem.nodes[index(producer)].joins = true;
      return;
    }
    std::vector<bool> moves(graph_.values.size(), false);
    for (const Loop::In& link : loop->sliced) moves[index(root(link.body))] = true;
    for (const Loop::Out& link : loop->stacked) moves[index(root(link.body))] = true;
    for (Problem::Node& node : result_.problem.nodes)
      for (const auto* list : {&node.reads, &node.writes})
        for (int value : *list) node.joins = node.joins || moves[index(value)];
  }

  uint64_t kind_of(const Node& node) const {
    std::string text = node.op + node.attrs.print();
    for (const auto* list : {&node.in, &node.out})
      for (ValueId id : *list) text += "|" + graph_.values[index(id)].meta.text();
    Xxh3 hash;
    hash.update(text.data(), text.size());
    return hash.digest() | 1;
  }

  void add_node(int n) {
    const Node& node = graph_.nodes[index(result_.node_of[index(n)])];
    const Facts& facts = facts_[index(result_.node_of[index(n)])];
    Problem::Node made;
    made.ms = facts.nominal_ms;
    made.workspace = align_up(facts.workspace, alignment_);
    made.kind = node.loop >= 0 ? 0 : kind_of(node);
    made.rerun = node.loop < 0 && !get_op(node.op).effects.writes_state;
    std::vector<int> read_of;
    for (ValueId in : node.in) {
      auto at = std::find(made.reads.begin(), made.reads.end(), root(in));
      read_of.push_back(static_cast<int>(at - made.reads.begin()));
      if (at == made.reads.end()) made.reads.push_back(root(in));
    }
    for (ValueId out : node.out) {
      made.writes.push_back(out);
      result_.problem.values[index(out)].producer = n;
    }
    if (node.loop < 0) {
      add_in_place(node, made, read_of);
      for (const InOut& pair : next_versions(get_op(node.op), node.out.size()))
        result_.problem.values[index(root(node.in[index(pair.in)]))].replaced_by = n;
    }
    result_.read_of.push_back(std::move(read_of));
    result_.problem.nodes.push_back(std::move(made));
  }

  // An operand that is broadcast has not the output's size, though its grant may; and every operand
  // that shares the bytes must allow it. `apart`: the kernel would have to copy.
  void add_in_place(const Node& node, Problem::Node& made, const std::vector<int>& read_of) {
    if (node.attrs.integer("apart", 0)) return;
    const Op& op = get_op(node.op);
    for (const InOut& pair : op.in_place) {
      if (index(pair.in) >= node.in.size()) continue;  // an op of many operands, called with fewer
      const ValueId in = root(node.in[index(pair.in)]), out = node.out[index(pair.out)];
      if (result_.outside[index(in)] || result_.outside[index(out)]) continue;
      if (graph_.values[index(in)].meta.bytes() != graph_.values[index(out)].meta.bytes()) continue;
      bool allowed = true;
      for (size_t other = 0; other < node.in.size(); ++other)
        if (root(node.in[other]) == in)
          allowed =
              allowed &&
              std::any_of(op.in_place.begin(), op.in_place.end(), [&](const InOut& candidate) {
                return candidate.in == static_cast<int>(other) && candidate.out == pair.out;
              });
      const InOut made_pair{read_of[index(pair.in)], pair.out};
      const bool known = std::any_of(
          made.in_place.begin(), made.in_place.end(),
          [&](const InOut& p) { return p.in == made_pair.in && p.out == made_pair.out; });
      if (allowed && !known) made.in_place.push_back(made_pair);
    }
  }

  const Graph& graph_;
  std::span<const Facts> facts_;
  Bytes alignment_;
  GraphProblem result_;
};

}  // namespace

std::vector<ValueId> alias_roots(const Graph& graph) {
  std::vector<ValueId> root(graph.values.size());
  for (size_t v = 0; v < root.size(); ++v) root[v] = static_cast<ValueId>(v);
  for (const Node& node : graph.nodes)
    if (alias_node(node))
      for (const InOut& pair : get_op(node.op).alias)
        root[index(node.out[index(pair.out)])] = root[index(node.in[index(pair.in)])];
  return root;
}

void add_work(const Graph& graph, const GraphFacts& facts, const GraphProblem& made,
              std::span<const int> steps, int64_t trips, double& ms, Recomputed& recomputed) {
  std::vector<bool> ran(made.problem.nodes.size(), false);
  for (int n : steps) {
    const NodeId id = made.node_of[index(n)];
    const double spent = facts.nodes[index(id)].ms * static_cast<double>(trips);
    ms += spent;
    if (ran[index(n)]) {
      const Node& node = graph.nodes[index(id)];
      recomputed.ms += spent;
      recomputed.values += trips * static_cast<int64_t>(node.out.size());
      for (ValueId out : node.out)
        recomputed.bytes += trips * graph.values[index(out)].meta.bytes();
    }
    ran[index(n)] = true;
  }
}

GraphProblem make_problem(const Graph& graph, std::span<const Facts> facts, Bytes alignment,
                          const Loop* loop) {
  return Maker(graph, facts, alignment).run(loop);
}

}  // namespace pl
