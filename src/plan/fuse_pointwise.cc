// Chains of pointwise ops become one node each, which computes them tile by tile.
//
//   x -> scale -> tanh -> (+ total) -> ...      =>    (x, total) -> fused_pointwise -> ...
//
// No plan gets larger by it. A group reads its operands at its sink's place, so some are held
// longer than before; in return what it made on the way is gone. The pass tries, compares the bytes
// that are live at every step, and the bound below which no plan can go, with those of the graph as
// it was, and takes back what does not pay.
#include <algorithm>
#include <limits>
#include <numeric>

#include "op/fused_pointwise.h"
#include "plan/graph_problem.h"
#include "plan/passes.h"
#include "plan/pointwise_groups.h"
#include "plan/rewrite.h"

namespace pl::pass {
namespace {

constexpr int kTrials = 24;
constexpr Bytes kGrain = 64;

// Bytes live at each node in base order, kernels' workspaces apart.
struct Profile {
  GraphProblem made;
  std::vector<Bytes> live;  // per node of the graph; 0 for aliases
};

Profile profile_of(const Graph& graph) {
  Profile profile;
  profile.made = make_problem(graph, std::vector<Facts>(graph.nodes.size()), kGrain);
  std::vector<int> steps(profile.made.node_of.size());
  std::iota(steps.begin(), steps.end(), 0);
  const Evaluation evaluation = evaluate(profile.made.problem, steps);
  profile.live.assign(graph.nodes.size(), 0);
  for (size_t s = 0; s < steps.size(); ++s)
    profile.live[index(profile.made.node_of[s])] = evaluation.live[s];
  return profile;
}

Node fused_node(const Graph& graph, const PointwiseGroup& group) {
  const Node& sink = graph.nodes[index(group.sink)];
  const Meta& out = graph.values[index(sink.out[0])].meta;
  Metas metas;
  for (ValueId id : group.operands) metas.push_back(graph.values[index(id)].meta);
  return {.op = kFusedPointwise.name,
          .in = group.operands,
          .out = sink.out,
          .attrs = fused_pointwise_attrs(metas, out.shape, print(group.program), out.dtype),
          .path = sink.path};
}

// Nodes that a kept value or an update needs.
std::vector<bool> needed_nodes(const Graph& graph) {
  std::vector<bool> needed(graph.values.size(), false), live(graph.nodes.size(), false);
  for (ValueId id : graph.keep) needed[index(id)] = true;
  for (size_t n = graph.nodes.size(); n-- > 0;) {
    const Node& node = graph.nodes[n];
    bool wanted = node.loop >= 0 || get_op(node.op).effects.writes_state;
    for (ValueId out : node.out) wanted = wanted || needed[index(out)];
    live[n] = wanted;
    if (wanted)
      for (ValueId in : node.in) needed[index(in)] = true;
  }
  return live;
}

class Fuser {
 public:
  explicit Fuser(const Graph& graph) : graph_(graph) {
    limits_.most_members.assign(graph.nodes.size(), std::numeric_limits<int>::max());
    groups_ = group_pointwise(graph_, limits_);
    if (groups_.empty()) return;
    before_ = profile_of(graph);
    last_read_.assign(graph.values.size(), -1);
    for (size_t n = 0; n < graph.nodes.size(); ++n)
      for (ValueId in : graph.nodes[n].in)
        last_read_[index(before_.made.root[index(in)])] = static_cast<NodeId>(n);
    for (ValueId id : graph.keep)
      last_read_[index(before_.made.root[index(id)])] = static_cast<NodeId>(graph.nodes.size());
  }

  // The graph with its chains fused; the graph itself if there is nothing to gain.
  Graph run() {
    for (int trial = 0; trial < kTrials; ++trial) {
      if (trial > 0) groups_ = group_pointwise(graph_, limits_);
      if (groups_.empty()) return graph_;
      fused_ = graph_;
      for (const PointwiseGroup& group : groups_)
        fused_.nodes[index(group.sink)] = fused_node(graph_, group);
      live_ = needed_nodes(fused_);
      if (forbid_pointless()) continue;
      Graph result = fused_;
      std::vector<bool> dropped = live_;
      dropped.flip();
      rebuild(result, dropped);
      const Profile after = profile_of(result);
      if (forbid_worse(after)) continue;
      if (lower_bound(after.made.problem) <= least_before()) return result;
      if (limits_.most_large_operands <= 1) return graph_;
      --limits_.most_large_operands;
    }
    return graph_;
  }

 private:
  // A value that is stored all the same need not be computed again.
  bool forbid_pointless() {
    bool any = false;
    for (const PointwiseGroup& group : groups_) {
      if (!live_[index(group.sink)]) continue;
      for (ValueId id : group.inlined)
        if (live_[index(graph_.values[index(id)].producer)])
          any = limits_.stored.insert(id).second || any;
    }
    return any;
  }

  Bytes least_before() {
    if (least_before_ < 0) least_before_ = lower_bound(before_.made.problem);
    return least_before_;
  }

  const PointwiseGroup* group_at(NodeId sink) const {
    for (const PointwiseGroup& group : groups_)
      if (group.sink == sink) return &group;
    return nullptr;
  }

  // At no step may more be live than before. At a group's own, that is the fullest of its members'.
  bool forbid_worse(const Profile& after) {
    bool any = false;
    size_t at = 0;  // in the graph behind the rewrite
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      if (!live_[n]) continue;
      const PointwiseGroup* group = group_at(static_cast<NodeId>(n));
      Bytes allowed = before_.live[n];
      if (group)
        for (NodeId member : group->members)
          allowed = std::max(allowed, before_.live[index(member)]);
      if (after.live[at++] > allowed) {
        blame(static_cast<NodeId>(n), group);
        any = true;
      }
    }
    return any;
  }

  // Groups that hold an operand over node n which was not held before.
  void blame(NodeId n, const PointwiseGroup* own) {
    bool found = false;
    for (const PointwiseGroup& group : groups_) {
      if (!live_[index(group.sink)] || group.sink < n) continue;
      if (std::any_of(group.operands.begin(), group.operands.end(),
                      [&](ValueId id) { return held_longer(id, n); })) {
        shrink(group);
        found = true;
      }
    }
    if (own && !found) shrink(*own);
    if (own || found) return;
    for (const PointwiseGroup& group : groups_)  // whoever it was
      if (group.sink > n) shrink(group);
  }

  bool held_longer(ValueId id, NodeId n) const {
    const ValueId root = before_.made.root[index(id)];
    const Value& value = graph_.values[index(root)];
    return value.variable < 0 && value.producer <= n && last_read_[index(root)] <= n;
  }

  void shrink(const PointwiseGroup& group) {
    if (!group.inlined.empty()) {
      limits_.stored.insert(group.inlined.begin(), group.inlined.end());
      return;
    }
    int& most = limits_.most_members[index(group.sink)];
    most = std::min(most, std::max(1, static_cast<int>(group.members.size()) / 2));
  }

  const Graph& graph_;
  Profile before_;
  Bytes least_before_ = -1;        // the bound below which no plan of the graph as it was can go
  std::vector<NodeId> last_read_;  // per root
  GroupLimits limits_;
  std::vector<PointwiseGroup> groups_;
  Graph fused_;
  std::vector<bool> live_;  // per node of fused_
};

}  // namespace

void fuse_pointwise(Graph& graph) {
  if (!graph.loops.empty()) return;  // runs before the batch is split
  Graph fused = Fuser(graph).run();
  graph = std::move(fused);
}

}  // namespace pl::pass
