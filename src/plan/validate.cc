// The validator: an independent reading of what a plan would do to memory. It knows the graph, the
// plan and the catalogue's alias, in-place and version pairs, and shares no code with the planner.
//
// Memory is a map of disjoint byte ranges, each holding one value's content. A step first checks
// that every operand is there whole, then writes: a write wipes whatever it touches.
#include <map>
#include <set>

#include "base/error.h"
#include "plan/plan.h"

namespace pl {
namespace {

class Replay {
 public:
  Replay(const Graph& graph, const Plan& plan, std::span<const Facts> facts)
      : graph_(graph),
        plan_(plan),
        facts_(facts),
        content_(graph.values.size()),
        runs_(graph.nodes.size(), 0) {}

  void run() {
    require(plan_.persistent >= 0 && plan_.arena >= plan_.persistent,
            "the arena is smaller than its variables");
    require(plan_.variable_at.size() == graph_.variables.size() &&
                plan_.input_at.size() == graph_.inputs.size() &&
                plan_.keep_at.size() == graph_.keep.size(),
            "offsets are missing");
    name_contents();
    load_sources();
    for (size_t s = 0; s < plan_.steps.size(); ++s) play(s);
    finish();
  }

 private:
  struct Range {
    ByteOffset end;
    ValueId content;
  };

  [[noreturn]] void fail(const std::string& what) const {
    std::string where = " before the first step";
    if (at_ < plan_.steps.size()) {
      where = " at step " + std::to_string(at_);
      const NodeId id = plan_.steps[at_].node;
      if (known(id)) {
        const Node& node = graph_.nodes[static_cast<size_t>(id)];
        where += " (" + node.op + ", " + node.path + ")";
      }
    } else if (at_ == plan_.steps.size()) {
      where = " behind the last step";
    }
    throw InternalError("[validate] " + what + where);
  }
  void require(bool holds, const std::string& what) const {
    if (!holds) fail(what);
  }

  bool known(NodeId id) const { return id >= 0 && static_cast<size_t>(id) < graph_.nodes.size(); }
  const Value& value(ValueId id) const { return graph_.values[static_cast<size_t>(id)]; }
  Bytes granted(Bytes bytes) const {
    return (bytes + plan_.alignment - 1) / plan_.alignment * plan_.alignment;
  }

  // An alias node moves no bytes: its output has its input's content.
  void name_contents() {
    for (size_t v = 0; v < content_.size(); ++v) content_[v] = static_cast<ValueId>(v);
    for (const Node& node : graph_.nodes)
      for (const InOut& pair : get_op(node.op).alias)
        content_[static_cast<size_t>(node.out[static_cast<size_t>(pair.out)])] =
            content_[static_cast<size_t>(node.in[static_cast<size_t>(pair.in)])];
  }
  ValueId content(ValueId id) const { return content_[static_cast<size_t>(id)]; }

  void check_place(ByteOffset at, Bytes bytes, const std::string& who) const {
    require(at >= 0 && at % plan_.alignment == 0, who + " is not aligned");
    require(at <= plan_.arena && bytes <= plan_.arena - at, who + " lies outside the arena");
  }

  void wipe(ByteOffset begin, ByteOffset end) {
    auto it = memory_.lower_bound(begin);
    if (it != memory_.begin() && std::prev(it)->second.end > begin) --it;
    while (it != memory_.end() && it->first < end) it = memory_.erase(it);
  }
  void put(ByteOffset at, Bytes bytes, ValueId id) {
    wipe(at, at + bytes);
    if (bytes > 0) memory_[at] = {at + bytes, content(id)};
  }
  bool holds(ByteOffset at, ValueId id) const {
    const Bytes bytes = granted(value(id).meta.bytes());
    if (bytes == 0) return true;
    auto it = memory_.find(at);
    return it != memory_.end() && it->second.end == at + bytes && it->second.content == content(id);
  }

  void load_sources() {
    for (size_t v = 0; v < graph_.variables.size(); ++v) {
      const Variable& variable = graph_.variables[v];
      const ByteOffset at = plan_.variable_at[v];
      const Bytes bytes = granted(variable.meta.bytes());
      check_place(at, bytes, "variable " + variable.path);
      require(bytes <= plan_.persistent - at,
              "variable " + variable.path + " lies in the transient part");
      require(free_range(at, at + bytes), "variable " + variable.path + " overlaps another");
      put(at, bytes, variable.first);
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const Bytes bytes = granted(value(graph_.inputs[i]).meta.bytes());
      check_place(plan_.input_at[i], bytes, "input " + value(graph_.inputs[i]).path);
      require(plan_.input_at[i] >= plan_.persistent, "an input lies among the variables");
      require(free_range(plan_.input_at[i], plan_.input_at[i] + bytes), "inputs overlap");
      put(plan_.input_at[i], bytes, graph_.inputs[i]);
    }
  }
  bool free_range(ByteOffset begin, ByteOffset end) const {
    auto it = memory_.lower_bound(begin);
    if (it != memory_.begin() && std::prev(it)->second.end > begin) return false;
    return it == memory_.end() || it->first >= end;
  }

  static bool touch(ByteOffset a, Bytes a_bytes, ByteOffset b, Bytes b_bytes) {
    return a < b + b_bytes && b < a + a_bytes;
  }

  bool listed(std::span<const InOut> pairs, size_t in, size_t out) const {
    for (const InOut& pair : pairs)
      if (pair.in == static_cast<int>(in) && pair.out == static_cast<int>(out)) return true;
    return false;
  }

  void play(size_t s) {
    at_ = s;
    const Step& step = plan_.steps[s];
    require(known(step.node), "unknown node");
    const Node& node = graph_.nodes[static_cast<size_t>(step.node)];
    const Op& op = get_op(node.op);
    require(op.alias.empty(), "an alias is no step");
    require(step.in.size() == node.in.size() && step.out.size() == node.out.size(),
            "operands are missing");
    require(++runs_[static_cast<size_t>(step.node)] == 1 || !op.effects.writes_state,
            "an effect runs twice");
    for (size_t i = 0; i < node.in.size(); ++i)
      require(holds(step.in[i], node.in[i]),
              "operand " + std::to_string(i) + " (%" + std::to_string(node.in[i]) + ", " +
                  value(node.in[i]).path + ") is not where it is read");
    const Bytes workspace = granted(facts_[static_cast<size_t>(step.node)].workspace);
    if (workspace > 0) {
      check_place(step.workspace_at, workspace, "the workspace");
      require(step.workspace_at >= plan_.persistent, "the workspace lies among the variables");
      for (size_t i = 0; i < node.in.size(); ++i)
        require(!touch(step.workspace_at, workspace, step.in[i],
                       granted(value(node.in[i]).meta.bytes())),
                "the workspace overlaps an operand");
      wipe(step.workspace_at, step.workspace_at + workspace);
    }
    for (size_t o = 0; o < node.out.size(); ++o) play_output(step, node, op, o, workspace);
    for (size_t o = 0; o < node.out.size(); ++o)
      put(step.out[o], granted(value(node.out[o]).meta.bytes()), node.out[o]);
  }

  void play_output(const Step& step, const Node& node, const Op& op, size_t o,
                   Bytes workspace) const {
    const ValueId out = node.out[o];
    const Bytes bytes = granted(value(out).meta.bytes());
    check_place(step.out[o], bytes, "output " + std::to_string(o));
    if (value(out).variable >= 0) {
      require(step.out[o] == plan_.variable_at[static_cast<size_t>(value(out).variable)],
              "a variable is not updated in its place");
    } else {
      require(bytes == 0 || step.out[o] >= plan_.persistent, "an output lies among the variables");
    }
    if (workspace > 0)
      require(!touch(step.out[o], bytes, step.workspace_at, workspace),
              "an output overlaps the workspace");
    for (size_t p = 0; p < o; ++p)
      require(!touch(step.out[o], bytes, step.out[p], granted(value(node.out[p]).meta.bytes())),
              "outputs overlap");
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (!touch(step.out[o], bytes, step.in[i], granted(value(node.in[i]).meta.bytes()))) continue;
      // A smaller operand is broadcast: its elements are read again after the first write.
      const bool allowed = (listed(op.in_place, i, o) || listed(op.next_version, i, o)) &&
                           step.out[o] == step.in[i] &&
                           value(out).meta.bytes() == value(node.in[i]).meta.bytes();
      require(allowed, "output " + std::to_string(o) + " overwrites operand " + std::to_string(i));
    }
  }

  void finish() {
    at_ = plan_.steps.size();
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      require(runs_[n] > 0 || !get_op(graph_.nodes[n].op).alias.empty(),
              "node " + std::to_string(n) + " (" + graph_.nodes[n].op + ") never runs");
    for (size_t v = 0; v < graph_.variables.size(); ++v)
      require(holds(plan_.variable_at[v], graph_.variables[v].last),
              "variable " + graph_.variables[v].path + " does not end with its last version");
    for (size_t k = 0; k < graph_.keep.size(); ++k)
      require(holds(plan_.keep_at[k], graph_.keep[k]), "a kept value is lost at the end");
  }

  const Graph& graph_;
  const Plan& plan_;
  std::span<const Facts> facts_;
  std::vector<ValueId> content_;
  std::vector<int> runs_;
  std::map<ByteOffset, Range> memory_;  // begin -> end and content
  size_t at_ = static_cast<size_t>(-1);
};

}  // namespace

void validate(const Graph& graph, const Plan& plan, std::span<const Facts> facts) {
  check(facts.size() == graph.nodes.size(), "one Facts per node");
  Replay(graph, plan, facts).run();
}

}  // namespace pl
