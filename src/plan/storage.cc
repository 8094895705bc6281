#include "plan/storage.h"

#include <algorithm>

#include "base/error.h"

namespace pl {
namespace {

// Works through the steps in order. Aliases are resolved first: `root_[v]` owns the bytes of v.
class Derivation {
 public:
  Derivation(const Graph& graph, std::span<const Facts> facts, Bytes alignment)
      : graph_(graph), facts_(facts), alignment_(alignment), root_(graph.values.size()) {}

  Storage run() {
    resolve_aliases();
    find_last_uses();
    result_.block_of.assign(graph_.values.size(), -1);
    result_.variable_of.assign(graph_.values.size(), -1);
    for (size_t v = 0; v < graph_.values.size(); ++v)
      result_.variable_of[v] = graph_.values[index(root_[v])].variable;
    for (ValueId id : graph_.inputs) open_block(id, 0);
    for (size_t s = 0; s < result_.order.size(); ++s) place_outputs(static_cast<int>(s));
    place_workspaces();
    for (size_t v = 0; v < graph_.values.size(); ++v)
      result_.block_of[v] = result_.block_of[index(root_[v])];
    return std::move(result_);
  }

 private:
  bool alias_node(const Node& node) const {
    const Op* op = find_op(node.op);
    return op && !op->alias.empty();
  }

  void resolve_aliases() {
    for (size_t v = 0; v < root_.size(); ++v) root_[v] = static_cast<ValueId>(v);
    for (size_t n = 0; n < graph_.nodes.size(); ++n) {
      const Node& node = graph_.nodes[n];
      if (!alias_node(node)) {
        result_.order.push_back(static_cast<NodeId>(n));
        continue;
      }
      for (const InOut& pair : get_op(node.op).alias)
        root_[index(node.out[index(pair.out)])] = root_[index(node.in[index(pair.in)])];
    }
  }

  void find_last_uses() {
    const int steps = static_cast<int>(result_.order.size());
    last_use_.assign(graph_.values.size(), -1);
    for (int s = 0; s < steps; ++s) {
      const Node& node = graph_.nodes[index(result_.order[index(s)])];
      for (ValueId in : node.in) last_use_[index(root_[index(in)])] = s;
      for (ValueId out : node.out)
        last_use_[index(root_[index(out)])] = std::max(last_use_[index(root_[index(out)])], s);
    }
    for (ValueId id : graph_.keep) last_use_[index(root_[index(id)])] = steps - 1;
    for (ValueId id : graph_.inputs) last_use_[index(id)] = std::max(last_use_[index(id)], 0);
    kept_.assign(graph_.values.size(), false);
    for (ValueId id : graph_.keep) kept_[index(root_[index(id)])] = true;
  }

  void open_block(ValueId id, int start) {
    result_.block_of[index(id)] = static_cast<int>(result_.blocks.size());
    result_.blocks.push_back(
        {start, last_use_[index(id)], grant(graph_.values[index(id)].meta.bytes())});
    result_.first_value.push_back(id);
    result_.dying_value.push_back(id);
  }

  Bytes grant(Bytes bytes) const { return align_up(bytes, alignment_); }

  // Whether output `out` of the step can take the place of input `in`: the input's bytes are
  // transient, die here, have the same size (an operand that is broadcast has not, though its grant
  // may), and every operand that shares them allows it.
  bool can_replace(const Node& node, const Op& op, InOut pair, int s) const {
    const ValueId in = root_[index(node.in[index(pair.in)])];
    if (result_.variable_of[index(in)] >= 0 || kept_[index(in)] || last_use_[index(in)] != s)
      return false;
    const int block = result_.block_of[index(in)];
    if (block < 0 || graph_.values[index(in)].meta.bytes() !=
                         graph_.values[index(node.out[index(pair.out)])].meta.bytes())
      return false;
    for (size_t other = 0; other < node.in.size(); ++other) {
      if (root_[index(node.in[other])] != in) continue;
      const bool allowed =
          std::any_of(op.in_place.begin(), op.in_place.end(), [&](const InOut& candidate) {
            return candidate.in == static_cast<int>(other) && candidate.out == pair.out;
          });
      if (!allowed) return false;
    }
    for (ValueId out : node.out)
      if (result_.block_of[index(out)] == block) return false;  // taken by an earlier output
    return true;
  }

  void place_outputs(int s) {
    const Node& node = graph_.nodes[index(result_.order[index(s)])];
    const Op& op = get_op(node.op);
    for (size_t o = 0; o < node.out.size(); ++o) {
      const ValueId out = node.out[o];
      if (result_.variable_of[index(out)] >= 0) continue;
      bool placed = false;
      for (const InOut& pair : op.in_place) {
        if (pair.out != static_cast<int>(o) || !can_replace(node, op, pair, s)) continue;
        const int block = result_.block_of[index(root_[index(node.in[index(pair.in)])])];
        result_.block_of[index(out)] = block;
        result_.dying_value[index(block)] = out;
        Block& shared = result_.blocks[index(block)];
        shared.end = std::max(shared.end, last_use_[index(out)]);
        placed = true;
        break;
      }
      if (!placed) open_block(out, s);
    }
  }

  void place_workspaces() {
    result_.workspace_block.assign(result_.order.size(), -1);
    for (size_t s = 0; s < result_.order.size(); ++s) {
      const Bytes bytes = grant(facts_[index(result_.order[s])].workspace);
      if (bytes == 0) continue;
      result_.workspace_block[s] = static_cast<int>(result_.blocks.size());
      result_.blocks.push_back({static_cast<int>(s), static_cast<int>(s), bytes});
      result_.first_value.push_back(-1);
      result_.dying_value.push_back(-1);
    }
  }

  const Graph& graph_;
  std::span<const Facts> facts_;
  Bytes alignment_;
  std::vector<ValueId> root_;
  std::vector<int> last_use_;  // per root
  std::vector<bool> kept_;     // per root
  Storage result_;
};

}  // namespace

Storage derive_storage(const Graph& graph, std::span<const Facts> facts, Bytes alignment) {
  return Derivation(graph, facts, alignment).run();
}

std::vector<Bytes> live_bytes(const std::vector<Block>& blocks, int steps) {
  // A graph of aliases alone has no steps, but its inputs are there.
  std::vector<Bytes> live(index(std::max(steps, 1)) + 1, 0);
  for (const Block& block : blocks) {
    live[index(block.start)] += block.bytes;
    live[index(block.end) + 1] -= block.bytes;
  }
  for (size_t s = 1; s < live.size(); ++s) live[s] += live[s - 1];
  live.pop_back();
  return live;
}

}  // namespace pl
