// Groups grow from their sinks backwards. An operand's producer joins if nobody else reads what it
// makes, or if all who read it are pointwise as well: then each computes it anew, and it is never
// stored. The latest node joins first, and what is computed anew right before its reader, so that
// a group that is cut short is a run of neighbours with few operands.
#include "plan/pointwise_groups.h"

#include <algorithm>
#include <limits>
#include <map>
#include <optional>

#include "op/infer.h"
#include "op/op.h"
#include "op/update.h"
#include "plan/graph_problem.h"
#include "plan/remat.h"
#include "plan/rewrite.h"
#include "plan/split.h"

namespace pl {
namespace {

constexpr int kMostMembers = 64;
constexpr int kRegisters = 8;  // of the tiles that a program may need: they lie in a core's cache

class Grouper {
 public:
  Grouper(const Graph& graph, const GroupLimits& limits)
      : graph_(graph),
        limits_(limits),
        readers_(readers_of(graph)),
        root_(alias_roots(graph)),
        kept_(graph.values.size(), false),
        replaced_at_(graph.values.size(), std::numeric_limits<int>::max()),
        taken_(graph.nodes.size(), false) {
    for (ValueId id : graph.keep) kept_[index(id)] = true;
    const bool samples = samples_of(graph) > 0;
    for (size_t n = 0; n < graph.nodes.size(); ++n) {
      const Node& node = graph.nodes[n];
      code_.push_back(instruction(node, samples));
      scope_.push_back(remat_scope(node.path));
      if (node.loop < 0)
        for (const InOut& pair : next_versions(get_op(node.op), node.out.size()))
          replaced_at_[index(root_[index(node.in[index(pair.in)])])] = static_cast<int>(n);
    }
  }

  std::vector<PointwiseGroup> run() {
    std::vector<PointwiseGroup> groups;
    for (size_t n = graph_.nodes.size(); n-- > 0;) {
      if (!code_[n] || taken_[n]) continue;
      PointwiseGroup group = grow(static_cast<NodeId>(n));
      if (group.members.size() < 2) continue;
      for (NodeId member : group.members)
        if (std::find(group.inlined.begin(), group.inlined.end(), made_by(member)) ==
            group.inlined.end())
          taken_[index(member)] = true;
      groups.push_back(std::move(group));
    }
    std::reverse(groups.begin(), groups.end());
    return groups;
  }

 private:
  struct Candidate {
    double place;  // where its node stands, or would if it were made for this reader alone
    ValueId value;
  };
  // A group while it grows.
  struct Growth {
    std::vector<NodeId> members;
    std::vector<ValueId> inlined;
    std::map<NodeId, double> place;
    std::vector<Candidate> open;  // may join
    bool has(NodeId n) const { return place.contains(n); }
  };

  const Value& value(ValueId id) const { return graph_.values[index(id)]; }
  ValueId made_by(NodeId n) const { return graph_.nodes[index(n)].out[0]; }

  // What a node does in a program, if it can be part of one.
  std::optional<TileInstruction> instruction(const Node& node, bool samples) const {
    if (node.loop >= 0 || node.out.size() != 1) return std::nullopt;
    const auto made = tile_instruction(node.op, node.attrs);
    const Value& out = value(node.out[0]);
    if (!made || !is_real(out.meta.dtype) || out.variable >= 0) return std::nullopt;
    // Programs round to bfloat16 after each instruction, but not to float16.
    if (out.meta.dtype == Dtype::float16) return std::nullopt;
    const size_t operands = made->op == TileOp::dropout ? 1 : node.in.size();
    for (size_t i = 0; i < operands; ++i) {
      const Dtype dtype = value(node.in[i]).meta.dtype;
      if (made->op == TileOp::cast ? !is_castable(dtype) : dtype != out.meta.dtype)
        return std::nullopt;
    }
    // Sums of what a split adds up over its trips are better added up as one.
    if (samples && !out.rows && get_op(node.op).additive) return std::nullopt;
    return made;
  }

  // The value may be computed by a member: it is of the sink's kind.
  bool alike(ValueId id, NodeId sink) const {
    const Value &a = value(id), &b = value(made_by(sink));
    return a.meta == b.meta && a.rows == b.rows && a.producer >= 0 && a.variable < 0 &&
           code_[index(a.producer)].has_value() && scope_[index(a.producer)] == scope_[index(sink)];
  }

  bool is_inlined(const Growth& group, ValueId id) const {
    return std::find(group.inlined.begin(), group.inlined.end(), id) != group.inlined.end();
  }

  enum class Join : uint8_t { no, alone, inlined };
  Join may_join(const Growth& group, ValueId id, NodeId sink) const {
    if (kept_[index(id)]) return Join::no;
    // Its operands are read at the sink's place: no update may come in between.
    for (ValueId in : graph_.nodes[index(value(id).producer)].in)
      if (replaced_at_[index(root_[index(in)])] <= sink) return Join::no;
    bool alone = true, pointwise = !limits_.stored.contains(id);
    for (NodeId reader : readers_[index(id)]) {
      alone = alone && group.has(reader) && !is_inlined(group, made_by(reader));
      pointwise = pointwise && code_[index(reader)] && alike(made_by(reader), sink);
    }
    return alone ? Join::alone : pointwise ? Join::inlined : Join::no;
  }

  void open_operands(Growth& group, NodeId n, NodeId sink) const {
    const Node& node = graph_.nodes[index(n)];
    const bool first_only = code_[index(n)]->op == TileOp::dropout;
    if (code_[index(n)]->op == TileOp::cast) return;
    for (size_t i = 0; i < (first_only ? 1 : node.in.size()); ++i) {
      const ValueId in = node.in[i];
      if (!alike(in, sink) || group.has(value(in).producer)) continue;
      // What the forward part made is computed anew beside its reader in the backward part.
      const bool anew =
          is_inlined(group, made_by(n)) || value(in).category != value(made_by(n)).category;
      const double place = anew ? group.place[n] - 1e-3 : static_cast<double>(value(in).producer);
      const auto known = std::find_if(group.open.begin(), group.open.end(),
                                      [&](const Candidate& c) { return c.value == in; });
      if (known == group.open.end()) group.open.push_back({place, in});
    }
  }

  std::vector<ValueId> operands_of_members(const std::vector<NodeId>& members) const {
    std::vector<ValueId> list;
    for (NodeId n : members)
      for (ValueId in : graph_.nodes[index(n)].in) {
        const NodeId producer = value(in).producer;
        if (producer >= 0 && std::find(members.begin(), members.end(), producer) != members.end())
          continue;
        if (std::find(list.begin(), list.end(), in) == list.end()) list.push_back(in);
      }
    return list;
  }

  int large_among(const std::vector<ValueId>& operands, NodeId sink) const {
    const Bytes bytes = value(made_by(sink)).meta.bytes();
    std::set<ValueId> large;
    for (ValueId id : operands)
      if (value(root_[index(id)]).variable < 0 && value(id).meta.bytes() >= bytes)
        large.insert(root_[index(id)]);
    return static_cast<int>(large.size());
  }

  PointwiseGroup grow(NodeId sink) {
    const int most =
        std::min(kMostMembers,
                 limits_.most_members.empty() ? kMostMembers : limits_.most_members[index(sink)]);
    Growth group;
    group.members = {sink};
    group.place[sink] = sink;
    open_operands(group, sink, sink);
    std::vector<int> large{large_among(operands_of_members(group.members), sink)};
    while (!group.open.empty() && static_cast<int>(group.members.size()) < most) {
      const auto next = std::max_element(
          group.open.begin(), group.open.end(),
          [](const Candidate& a, const Candidate& b) { return a.place < b.place; });
      const Candidate chosen = *next;
      group.open.erase(next);
      const NodeId n = value(chosen.value).producer;
      const Join join = may_join(group, chosen.value, sink);
      if (join == Join::no || group.has(n)) continue;
      group.members.push_back(n);
      group.place[n] = chosen.place;
      if (join == Join::inlined) group.inlined.push_back(chosen.value);
      open_operands(group, n, sink);
      large.push_back(large_among(operands_of_members(group.members), sink));
    }
    return cut(group, large);
  }

  // The whole group if that is possible, or else the first members with the fewest operands, of
  // which there are at least half as many as there could be.
  PointwiseGroup cut(const Growth& group, const std::vector<int>& large) const {
    const bool whole = group.open.empty();
    std::optional<PointwiseGroup> best;
    int fewest = 0;
    size_t longest = 0;
    for (size_t count = group.members.size(); count > 1; --count) {
      if (best && (whole && best->members.size() == group.members.size())) break;
      if (best && 2 * count < longest) break;
      if (best && large[count - 1] >= fewest) continue;
      auto made = make(group, count);
      if (!made) continue;
      if (!best) longest = count;
      fewest = large[count - 1];
      best = std::move(made);
    }
    return best ? std::move(*best) : PointwiseGroup{};
  }

  // The group of the first `count` members, if it keeps to all bounds.
  std::optional<PointwiseGroup> make(const Growth& growth, size_t count) const {
    PointwiseGroup group;
    group.sink = growth.members[0];
    group.members.assign(growth.members.begin(),
                         growth.members.begin() + static_cast<std::ptrdiff_t>(count));
    for (ValueId id : growth.inlined)
      if (std::find(group.members.begin(), group.members.end(), value(id).producer) !=
          group.members.end())
        group.inlined.push_back(id);
    group.operands = operands_of_members(group.members);
    if (group.operands.size() > static_cast<size_t>(kMostTileOperands) ||
        large_among(group.operands, group.sink) > limits_.most_large_operands)
      return std::nullopt;
    write_program(group);
    if (registers_of(group.program) > kRegisters) return std::nullopt;
    return group;
  }

  // Operands before the instructions that read them, the dearer one in registers first.
  void write_program(PointwiseGroup& group) const {
    std::map<ValueId, int> number;
    for (ValueId id : group.operands) number.emplace(id, static_cast<int>(number.size()));
    group.program.operands = static_cast<int>(group.operands.size());
    std::map<ValueId, int> need;
    registers_needed(group, made_by(group.sink), need);
    emit(group, made_by(group.sink), need, number);
  }

  int registers_needed(const PointwiseGroup& group, ValueId id,
                       std::map<ValueId, int>& need) const {
    if (const auto known = need.find(id); known != need.end()) return known->second;
    if (std::find(group.operands.begin(), group.operands.end(), id) != group.operands.end())
      return need[id] = 0;
    const Node& node = graph_.nodes[index(value(id).producer)];
    const int a = registers_needed(group, node.in[0], need);
    const int b = node.in.size() > 1 ? registers_needed(group, node.in[1], need) : 0;
    return need[id] = std::max({1, a, b, a == b && node.in.size() > 1 ? a + 1 : 0});
  }

  void emit(PointwiseGroup& group, ValueId id, const std::map<ValueId, int>& need,
            std::map<ValueId, int>& number) const {
    if (number.contains(id)) return;
    const NodeId n = value(id).producer;
    const Node& node = graph_.nodes[index(n)];
    TileInstruction made = *code_[index(n)];
    std::vector<ValueId> order = node.in;
    if (order.size() == 2 && need.at(order[1]) > need.at(order[0])) std::swap(order[0], order[1]);
    for (ValueId in : order) emit(group, in, need, number);
    made.a = number.at(node.in[0]);
    made.b = node.in.size() > 1 ? number.at(node.in[1]) : -1;
    const int result = group.program.operands + static_cast<int>(group.program.code.size());
    group.program.code.push_back(made);
    number[id] = result;
  }

  const Graph& graph_;
  const GroupLimits& limits_;
  std::vector<std::vector<NodeId>> readers_;
  std::vector<ValueId> root_;
  std::vector<bool> kept_;
  std::vector<int> replaced_at_;  // per root of a variable's version: the node that overwrites it
  std::vector<std::optional<TileInstruction>> code_;  // per node
  std::vector<std::string> scope_;                    // per node: a group stays within one
  std::vector<bool> taken_;                           // per node: a member that nobody else needs
};

}  // namespace

std::vector<PointwiseGroup> group_pointwise(const Graph& graph, const GroupLimits& limits) {
  return Grouper(graph, limits).run();
}

}  // namespace pl
