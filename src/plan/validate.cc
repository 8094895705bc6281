// The validator: an independent reading of what a plan would do to memory. It knows the graph, the
// plan and the catalogue's alias, in-place and version pairs, and shares no code with the planner.
//
// Memory is a map of disjoint byte ranges, each holding one value's content. A step first checks
// that every operand is there whole, then writes: a write wipes whatever it touches. A step may run
// more than once; a value then has several copies, and each reader names the one it takes.
//
// A loop's body is read once, for the first trip. It may write to nothing but its own part and the
// loop's results, so that each further trip finds all it reads as the first one did.
//
// A value in host memory: see validate_stays.h.
#include <algorithm>
#include <map>

#include "base/error.h"
#include "plan/plan.h"
#include "plan/validate_links.h"
#include "plan/validate_remat.h"
#include "plan/validate_stays.h"

namespace pl {
namespace {

class Replay {
 public:
  // `outer`: the graph is the body of its `loop`. What lies outside of the body's own part is then
  // its business.
  Replay(const Graph& graph, const Plan& plan, const GraphFacts& facts,
         const Replay* outer = nullptr, const Loop* loop = nullptr)
      : graph_(graph),
        plan_(plan),
        facts_(facts),
        outer_(outer),
        loop_(loop),
        content_(graph.values.size()),
        outside_(graph.values.size(), false),
        runs_(graph.nodes.size(), 0),
        stays_(graph, plan, [this](bool holds, const std::string& what) { require(holds, what); }) {
  }

  void run() {
    require(facts_.nodes.size() == graph_.nodes.size(), "facts are missing");
    require(plan_.alignment > 0, "the alignment is no number of bytes");
    require(plan_.persistent >= 0 && plan_.arena >= plan_.persistent,
            "the arena is smaller than its variables");
    require(plan_.loops.size() == graph_.loops.size() && facts_.loops.size() == graph_.loops.size(),
            "a loop has no plan");
    require(plan_.variable_at.size() == graph_.variables.size() &&
                plan_.input_at.size() == graph_.inputs.size() &&
                plan_.keep_at.size() == graph_.keep.size(),
            "offsets are missing");
    Bytes inside = 0;
    for (const Plan& body : plan_.loops) inside = std::max(inside, body.away);
    stays_.check_shape(inside);
    name_contents();
    forgotten_ = forgotten_behind(graph_, content_);
    load_sources();
    for (size_t s = 0; s < plan_.steps.size(); ++s) {
      at_ = s;
      come_back();
      play(s);
      leave();
    }
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
    throw InternalError("[validate] " + what + where + (loop_ ? " of a loop's body" : ""));
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
      if (node.loop < 0)
        for (const InOut& pair : get_op(node.op).alias)
          content_[static_cast<size_t>(node.out[static_cast<size_t>(pair.out)])] =
              content_[static_cast<size_t>(node.in[static_cast<size_t>(pair.in)])];
    if (!loop_) return;
    for (const Loop::In& link : loop_->sliced) outside_[static_cast<size_t>(link.body)] = true;
    for (const Loop::Out& link : loop_->stacked)
      outside_[static_cast<size_t>(content(link.body))] = true;
    // A value and its alias may both be shared: to the body they are one.
    std::map<ValueId, ValueId> first;
    for (const Loop::In& link : loop_->shared)
      content_[static_cast<size_t>(link.body)] =
          first.emplace(outer_->content(link.outer), link.body).first->second;
  }
  ValueId content(ValueId id) const { return content_[static_cast<size_t>(id)]; }

  void check_place(ByteOffset at, Bytes bytes, const std::string& who) const {
    require(at >= 0 && at % plan_.alignment == 0, who + " is not aligned");
    require(at <= plan_.arena && bytes <= plan_.arena - at, who + " lies outside the arena");
  }

  // What a step makes lies in the transient part, or in the part that a body has to itself.
  void check_transient(ByteOffset at, Bytes bytes, const std::string& who) const {
    if (loop_ && bytes > 0)
      require(at >= plan_.persistent && at < plan_.arena, who + " lies outside the body's part");
    check_place(at, bytes, who);
    require(bytes == 0 || at >= plan_.persistent, who + " lies among the variables");
  }

  // Until a copy back has ended nobody may read there; from then on the value is there.
  void come_back() {
    for (const auto& [what, stay] : stays_.before(static_cast<int>(at_))) {
      const Bytes bytes = granted(value(stay->value).meta.bytes());
      wipe(stay->to, stay->to + bytes);
      if (what == StaysReplay::Event::What::arrived && bytes > 0)
        memory_[stay->to] = {stay->to + bytes, content(stay->value)};
    }
  }
  void leave() {
    for (const HostStay* stay : stays_.behind(static_cast<int>(at_))) {
      require(holds(stay->from, stay->value),
              value(stay->value).path + " is not where it leaves from");
      stays_.sent(*stay);
    }
  }

  void wipe(ByteOffset begin, ByteOffset end) {
    auto it = memory_.lower_bound(begin);
    if (it != memory_.begin() && std::prev(it)->second.end > begin) --it;
    while (it != memory_.end() && it->first < end) it = memory_.erase(it);
  }
  void put(ByteOffset at, Bytes bytes, ValueId id) {
    if (bytes > 0) stays_.written(at, at + bytes);
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
      const GraphVariable& variable = graph_.variables[v];
      const ByteOffset at = plan_.variable_at[v];
      const Bytes bytes = granted(variable.meta.bytes());
      if (loop_) {
        require(at >= 0 && at % plan_.alignment == 0, variable.path + " is not aligned");
        require(!touch(at, bytes, plan_.persistent, plan_.arena - plan_.persistent),
                variable.path + " lies in the body's own part");
      } else {
        check_place(at, bytes, "variable " + variable.path);
        require(bytes <= plan_.persistent - at,
                "variable " + variable.path + " lies in the transient part");
      }
      const bool again = content(variable.first) != variable.first && holds(at, variable.first);
      require(again || free_range(at, at + bytes),
              "variable " + variable.path + " overlaps another");
      put(at, bytes, variable.first);
    }
    for (size_t i = 0; i < graph_.inputs.size(); ++i) {
      const Bytes bytes = granted(value(graph_.inputs[i]).meta.bytes());
      if (outside_[static_cast<size_t>(graph_.inputs[i])]) {
        require(!touch(plan_.input_at[i], bytes, plan_.persistent, plan_.arena - plan_.persistent),
                "a sliced input lies in the body's own part");
      } else {
        check_transient(plan_.input_at[i], bytes, "input " + value(graph_.inputs[i]).path);
      }
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
    return a_bytes > 0 && b_bytes > 0 && a < b + b_bytes && b < a + a_bytes;
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
    if (node.loop >= 0) {
      play_loop(step, node);
      return;
    }
    const Op& op = get_op(node.op);
    require(op.alias.empty(), "an alias is no step");
    require(step.in.size() == node.in.size() && step.out.size() == node.out.size(),
            "operands are missing");
    const bool effect = op.effects.writes_state || !op.next_version.empty();
    require(++runs_[static_cast<size_t>(step.node)] == 1 || !effect, "an effect runs twice");
    for (size_t i = 0; i < node.in.size(); ++i)
      require(holds(step.in[i], node.in[i]),
              "operand " + std::to_string(i) + " (%" + std::to_string(node.in[i]) + ", " +
                  value(node.in[i]).path + ") is not where it is read");
    const Bytes workspace = granted(facts_.nodes[static_cast<size_t>(step.node)].workspace);
    if (workspace > 0) {
      check_transient(step.workspace_at, workspace, "the workspace");
      for (size_t i = 0; i < node.in.size(); ++i)
        require(!touch(step.workspace_at, workspace, step.in[i],
                       granted(value(node.in[i]).meta.bytes())),
                "the workspace overlaps an operand");
      stays_.written(step.workspace_at, step.workspace_at + workspace);
      wipe(step.workspace_at, step.workspace_at + workspace);
    }
    for (size_t o = 0; o < node.out.size(); ++o) play_output(step, node, op, o, workspace);
    for (size_t o = 0; o < node.out.size(); ++o)
      put(step.out[o], granted(value(node.out[o]).meta.bytes()), node.out[o]);
    if (runs_[static_cast<size_t>(step.node)] == 1)
      for (ValueId id : forgotten_[static_cast<size_t>(step.node)])
        std::erase_if(memory_, [&](const auto& at) { return at.second.content == id; });
  }

  // A loop's body runs in a part of its own, which holds nothing else meanwhile; the loop reads its
  // operands and writes its results in the places that the body names.
  void play_loop(const Step& step, const Node& node) {
    const Loop& loop = graph_.loops[static_cast<size_t>(node.loop)];
    const Plan& body = plan_.loops[static_cast<size_t>(node.loop)];
    require(step.in.size() == node.in.size() && step.out.size() == node.out.size(),
            "operands are missing");
    require(++runs_[static_cast<size_t>(step.node)] == 1, "a loop runs twice");
    require(loop.trips > 0, "a loop without trips");
    const Bytes own = body.arena - body.persistent;
    require(own >= 0, "a body's part is smaller than nothing");
    require(body.alignment == plan_.alignment, "the body is aligned in another way");
    check_transient(body.persistent, own, "the body's part");
    for (size_t i = 0; i < node.in.size(); ++i) {
      const Bytes bytes = granted(value(node.in[i]).meta.bytes());
      require(holds(step.in[i], node.in[i]), "operand " + std::to_string(i) + " (" +
                                                 value(node.in[i]).path +
                                                 ") is not where the loop reads it");
      require(!touch(body.persistent, own, step.in[i], bytes),
              "the body's part has an operand in it");
    }
    if (own > 0) stays_.written(body.persistent, body.arena);
    wipe(body.persistent, body.arena);
    for (size_t o = 0; o < node.out.size(); ++o) {
      const Bytes bytes = granted(value(node.out[o]).meta.bytes());
      check_transient(step.out[o], bytes, "output " + std::to_string(o));
      require(!touch(body.persistent, own, step.out[o], bytes),
              "the body's part has a result in it");
      for (size_t p = 0; p < o; ++p)
        require(!touch(step.out[o], bytes, step.out[p], granted(value(node.out[p]).meta.bytes())),
                "outputs overlap");
      for (size_t i = 0; i < node.in.size(); ++i)
        require(!touch(step.out[o], bytes, step.in[i], granted(value(node.in[i]).meta.bytes())),
                "a result of the loop overwrites an operand");
    }
    validate_links(graph_, step, body,
                   [this](bool holds, const std::string& what) { require(holds, what); });
    Replay(loop.body, body, facts_.loops[static_cast<size_t>(node.loop)], this, &loop).run();
    for (size_t o = 0; o < node.out.size(); ++o)
      put(step.out[o], granted(value(node.out[o]).meta.bytes()), node.out[o]);
  }

  void play_output(const Step& step, const Node& node, const Op& op, size_t o,
                   Bytes workspace) const {
    const ValueId out = node.out[o];
    const Bytes bytes = granted(value(out).meta.bytes());
    if (outside_[static_cast<size_t>(out)]) {
      require(stacked_place(out) == step.out[o], "a stacked value is not written in its place");
      return;
    }
    if (value(out).variable >= 0)
      require(step.out[o] == plan_.variable_at[static_cast<size_t>(value(out).variable)],
              "a variable is not updated in its place");
    else
      check_transient(step.out[o], bytes, "output " + std::to_string(o));
    if (workspace > 0)
      require(!touch(step.out[o], bytes, step.workspace_at, workspace),
              "an output overlaps the workspace");
    for (size_t p = 0; p < o; ++p)
      require(!touch(step.out[o], bytes, step.out[p], granted(value(node.out[p]).meta.bytes())),
              "outputs overlap");
    for (size_t i = 0; i < node.in.size(); ++i) {
      if (!touch(step.out[o], bytes, step.in[i], granted(value(node.in[i]).meta.bytes()))) continue;
      // A smaller operand is broadcast: its elements are read again after the first write.
      const bool allowed = !node.attrs.integer("apart", 0) &&
                           (listed(op.in_place, i, o) || listed(op.next_version, i, o)) &&
                           step.out[o] == step.in[i] &&
                           value(out).meta.bytes() == value(node.in[i]).meta.bytes();
      require(allowed, "output " + std::to_string(o) + " overwrites operand " + std::to_string(i));
    }
  }

  ByteOffset stacked_place(ValueId id) const {
    for (size_t k = 0; k < graph_.keep.size(); ++k)
      if (content(graph_.keep[k]) == content(id)) return plan_.keep_at[k];
    fail("a stacked value is not kept");
  }

  void finish() {
    at_ = plan_.steps.size();
    require(!stays_.on_the_way(), "a value is still on its way");
    for (size_t n = 0; n < graph_.nodes.size(); ++n)
      require(
          runs_[n] > 0 || (graph_.nodes[n].loop < 0 && !get_op(graph_.nodes[n].op).alias.empty()),
          "node " + std::to_string(n) + " (" + graph_.nodes[n].op + ") never runs");
    for (size_t v = 0; v < graph_.variables.size(); ++v)
      require(holds(plan_.variable_at[v], graph_.variables[v].last),
              "variable " + graph_.variables[v].path + " does not end with its last version");
    for (size_t k = 0; k < graph_.keep.size(); ++k)
      require(holds(plan_.keep_at[k], graph_.keep[k]), "a kept value is lost at the end");
    // Whoever runs steps writes such an input once, for all of them.
    for (size_t i = 0; i < graph_.inputs.size() && !loop_; ++i)
      for (size_t k = 0; k < graph_.keep.size(); ++k)
        require(graph_.keep[k] != graph_.inputs[i] || plan_.keep_at[k] == plan_.input_at[i],
                "a kept input does not end where it began");
  }

  const Graph& graph_;
  const Plan& plan_;
  const GraphFacts& facts_;
  const Replay* outer_;
  const Loop* loop_;
  std::vector<ValueId> content_;  // per value: whose bytes it has
  std::vector<bool> outside_;     // of a body: sliced and stacked values
  std::vector<int> runs_;
  std::vector<std::vector<ValueId>> forgotten_;  // per node: behind its first run
  std::map<ByteOffset, Range> memory_;           // begin -> end and content
  StaysReplay stays_;
  size_t at_ = static_cast<size_t>(-1);
};

}  // namespace

void validate(const Graph& graph, const Plan& plan, const GraphFacts& facts) {
  Replay(graph, plan, facts).run();
}

}  // namespace pl
