// make_plan: from a decision to addresses, and the figures people ask for. Loop bodies are laid out
// first; a body's height is the workspace of its loop node.
#include <algorithm>

#include "base/error.h"
#include "base/hash.h"
#include "op/op.h"
#include "plan/device_plan.h"
#include "plan/graph_problem.h"
#include "plan/plan.h"
#include "plan/remat.h"

namespace pl {
namespace {

constexpr size_t kCulprits = 5;

// A graph in its final order, with addresses from 0.
struct Laid {
  GraphProblem made;
  std::vector<int> order;  // nodes of the problem
  std::vector<int> steps;  // the same with marks of stays (with_marks)
  Layout layout;
  std::vector<Stay> stays;
  std::vector<ByteOffset> stay_at;  // in host memory
  Bytes away = 0;                   // the most of it, bodies' included
  double waits_ms = 0;
  Bytes height = 0;
  std::vector<Bytes> live;  // at each step, a loop counting what its body really has live at most
  int peak_step = -1;
  Bytes floor = 0;  // certificate for the transient part
  std::vector<Laid> bodies;
};

bool is_mark(const Laid& laid, size_t step) {
  return index(laid.steps[step]) >= laid.made.problem.nodes.size();
}

// The value that has left, or begins to come back.
int marked_value(const Laid& laid, size_t step) {
  return static_cast<int>((index(laid.steps[step]) - laid.made.problem.nodes.size()) %
                          laid.made.problem.values.size());
}

// Null: a mark.
const Node* node_at(const Graph& graph, const Laid& laid, size_t step) {
  if (is_mark(laid, step)) return nullptr;
  return &graph.nodes[index(laid.made.node_of[index(laid.steps[step])])];
}

int loop_at(const Graph& graph, const Laid& laid, size_t step) {
  const Node* node = node_at(graph, laid, step);
  return node ? node->loop : -1;
}

// Places in host memory. What is there while a loop runs lies above what its body has there.
void lay_stays(const Graph& graph, const Decision& decision, Laid& laid) {
  laid.stays = decision.stays;
  laid.waits_ms = decision.waits_ms;
  const int count = static_cast<int>(laid.order.size());
  Bytes inside = 0;
  for (size_t s = 0; s < laid.steps.size(); ++s)
    if (const int l = loop_at(graph, laid, s); l >= 0)
      inside = std::max(inside, laid.bodies[index(l)].away);
  const Bytes own = assign_stays(laid.made.problem, laid.stays, count, laid.stay_at);
  for (ByteOffset& at : laid.stay_at) at += inside;
  laid.away = inside + own;
}

// Of a gradient. A device's launch takes as long as an update of some such.
constexpr Bytes kMostHeld = 512 * kKiB;

// Addresses where small operands of updates last until others are there to run with them: as long
// as so many bytes are free anyway, less `slack`. False: no such addresses were found.
bool hold_for_updates(const Graph& graph, Bytes slack, Laid& laid) {
  const int count = static_cast<int>(laid.steps.size());
  std::vector<StorageBlock> blocks = laid.layout.blocks;
  std::vector<StorageBlock*> held;
  Bytes bytes = 0;
  int last = -1;  // update that they are held for
  auto release = [&] {
    for (StorageBlock* block : held) block->end = last;
    held.clear();
    bytes = 0;
  };
  for (int s = 0; s < count; ++s) {
    if (laid.live[index(s)] + bytes > laid.height - slack) release();
    const Node* node = node_at(graph, laid, index(s));
    if (!node || !get_op(node->op).effects.writes_state) continue;
    for (const int read : laid.layout.steps[index(s)].reads) {
      if (read < 0) continue;
      StorageBlock& block = blocks[index(read)];
      if (block.end != s || block.bytes > kMostHeld) continue;
      held.push_back(&block);
      bytes += block.bytes;
      last = s;
    }
  }
  release();
  if (assign_addresses(blocks, count) != laid.height) return false;
  for (size_t b = 0; b < blocks.size(); ++b) laid.layout.blocks[b].at = blocks[b].at;
  return true;
}

Laid lay(const Graph& graph, const GraphFacts& facts, const Decision& decision, Bytes alignment,
         const Loop* loop) {
  check(facts.nodes.size() == graph.nodes.size() && facts.loops.size() == graph.loops.size(),
        "one Facts per node");
  Laid laid;
  laid.bodies.resize(graph.loops.size());
  std::vector<Facts> nodes = facts.nodes, least = facts.nodes;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const int l = graph.nodes[n].loop;
    if (l < 0) continue;
    check(graph.loops[index(l)].carried.empty(), "carried values are not planned");
    Laid& body = laid.bodies[index(l)];
    body = lay(graph.loops[index(l)].body, facts.loops[index(l)],
               index(l) < decision.loops.size() ? decision.loops[index(l)] : Decision{}, alignment,
               &graph.loops[index(l)]);
    nodes[n].workspace = body.height;
    least[n].workspace = body.floor;
  }
  laid.made = make_problem(graph, nodes, alignment, loop);
  if (!decision.stays.empty()) laid.made.problem.copies.bytes_per_ms = 1;  // values may leave
  auto steps = lower(laid.made.problem, decision.drops);
  check(steps.has_value(), "a drop that cannot be");
  laid.order = std::move(*steps);
  laid.steps = with_marks(laid.made.problem, laid.order, decision.stays);
  lay_stays(graph, decision, laid);
  laid.layout = lay_out(laid.made.problem, laid.steps);
  const int count = static_cast<int>(laid.steps.size());
  laid.height = assign_addresses(laid.layout.blocks, count);
  laid.live = live_bytes(laid.layout.blocks, count);
  for (size_t s = 0; s < laid.steps.size(); ++s)
    if (const int l = loop_at(graph, laid, s); l >= 0) {
      const Laid& body = laid.bodies[index(l)];
      const Bytes most =
          body.live.empty() ? 0 : *std::max_element(body.live.begin(), body.live.end());
      laid.live[s] -= body.height - most;
    }
  laid.peak_step =
      static_cast<int>(std::max_element(laid.live.begin(), laid.live.end()) - laid.live.begin());
  Problem bare =
      graph.loops.empty() ? laid.made.problem : make_problem(graph, least, alignment, loop).problem;
  bare.copies = laid.made.problem.copies;
  laid.floor = lower_bound(bare);
  return laid;
}

// The value that opened each block; -1 for workspaces.
std::vector<ValueId> owners(const Graph& graph, const Laid& laid) {
  std::vector<ValueId> owner(laid.layout.blocks.size(), -1);
  for (size_t v = 0; v < graph.values.size(); ++v)
    if (laid.layout.source_block[v] >= 0)
      owner[index(laid.layout.source_block[v])] = static_cast<ValueId>(v);
  for (size_t s = 0; s < laid.steps.size(); ++s) {
    if (is_mark(laid, s)) {
      for (int block : laid.layout.steps[s].writes) owner[index(block)] = marked_value(laid, s);
      continue;
    }
    const Problem::Node& node = laid.made.problem.nodes[index(laid.steps[s])];
    for (size_t w = 0; w < node.writes.size(); ++w) {
      const int block = laid.layout.steps[s].writes[w];
      if (block >= 0 && owner[index(block)] < 0) owner[index(block)] = node.writes[w];
    }
  }
  return owner;
}

// Adds what is live at the fullest step, by category and by value.
void add_peak(const Graph& graph, const Laid& laid, Plan& plan) {
  const std::vector<ValueId> owner = owners(graph, laid);
  const int peak = laid.peak_step;
  const auto at = static_cast<size_t>(peak);
  const bool steps = at < laid.steps.size();
  const int loop = steps ? loop_at(graph, laid, at) : -1;
  for (size_t b = 0; b < laid.layout.blocks.size(); ++b) {
    const StorageBlock& block = laid.layout.blocks[b];
    if (block.start > peak || block.end < peak) continue;
    const bool workspace = steps && static_cast<int>(b) == laid.layout.steps[at].workspace;
    if (workspace && loop >= 0) continue;  // the body says what is in it
    LiveValue live{.category = Category::workspace, .bytes = block.bytes};
    if (workspace) {
      const Node* node = node_at(graph, laid, at);
      live.op = node->op;
      live.path = without_scopes(node->path);
      live.meta = {Dtype::uint8, Shape{block.bytes}};
    } else {
      const Value& value = graph.values[index(owner[b])];
      live.category = value.category;
      live.path = without_scopes(value.path);
      live.op = value.producer < 0 ? "input" : graph.nodes[index(value.producer)].op;
      live.meta = value.meta;
    }
    plan.at_peak[index(static_cast<int>(live.category))] += block.bytes;
    plan.culprits.push_back(std::move(live));
  }
  if (loop >= 0) add_peak(graph.loops[index(loop)].body, laid.bodies[index(loop)], plan);
}

// Turns blocks into offsets from the arena's start.
class Emitter {
 public:
  Emitter(const Graph& graph, const GraphFacts& facts, const Laid& laid, ByteOffset base,
          Bytes alignment)
      : graph_(graph), facts_(facts), laid_(laid), base_(base), outside_(graph.values.size(), -1) {
    plan_.alignment = alignment;
    plan_.persistent = base;
    plan_.arena = base + laid.height;
  }

  // Where a value lies that has no block here.
  void place(ValueId id, ByteOffset at) { outside_[index(laid_.made.root[index(id)])] = at; }

  Plan run(int64_t trips) {
    for (const GraphVariable& variable : graph_.variables)
      plan_.variable_at.push_back(outside_[index(variable.first)]);
    for (size_t v = 0; v < graph_.values.size(); ++v)  // all versions share the place
      if (graph_.values[v].variable >= 0)
        outside_[v] = plan_.variable_at[index(graph_.values[v].variable)];
    plan_.loops.resize(graph_.loops.size());
    place_stays();
    for (size_t s = 0; s < laid_.steps.size(); ++s)
      if (is_mark(laid_, s))
        emit_mark(s);
      else
        emit(s);
    add_work(graph_, facts_, laid_.made, laid_.order, trips, plan_.ms, plan_.recomputed);
    plan_.ms += laid_.waits_ms * static_cast<double>(trips);
    for (const Plan& body : plan_.loops) {
      plan_.ms += body.ms;
      plan_.recomputed.values += body.recomputed.values;
      plan_.recomputed.bytes += body.recomputed.bytes;
      plan_.recomputed.ms += body.recomputed.ms;
    }
    for (ValueId id : graph_.inputs)
      plan_.input_at.push_back(place_of(id, laid_.layout.source_block[index(id)]));
    for (ValueId id : graph_.keep) {
      const ValueId root = laid_.made.root[index(id)];
      plan_.keep_at.push_back(place_of(root, laid_.layout.final_block[index(root)]));
    }
    return std::move(plan_);
  }

 private:
  // What has no bytes may lie anywhere.
  ByteOffset place_of(ValueId root, int block) const {
    if (block >= 0) return base_ + laid_.layout.blocks[index(block)].at;
    return laid_.made.outside[index(root)] ? outside_[index(root)] : base_;
  }

  void place_stays() {
    plan_.away = laid_.away;
    for (size_t i = 0; i < laid_.stays.size(); ++i) {
      const Stay& stay = laid_.stays[i];
      plan_.stays.push_back({stay.value, stay.out_after, stay.out_until, stay.in_from,
                             stay.in_before, 0, 0, laid_.stay_at[i]});
    }
  }

  // The block of a value that has left is where it was; that of one that comes back, where it will
  // be.
  void emit_mark(size_t s) {
    const StepBlocks& blocks = laid_.layout.steps[s];
    const int next = static_cast<int>(plan_.steps.size());
    for (HostStay& stay : plan_.stays) {
      if (stay.value != marked_value(laid_, s)) continue;
      if (!blocks.reads.empty() && stay.out_until == next - 1)
        stay.from = base_ + laid_.layout.blocks[index(blocks.reads[0])].at;
      if (!blocks.writes.empty() && stay.in_from == next)
        stay.to = base_ + laid_.layout.blocks[index(blocks.writes[0])].at;
    }
  }

  void emit(size_t s) {
    const int n = laid_.steps[s];
    const Problem::Node& made = laid_.made.problem.nodes[index(n)];
    const StepBlocks& blocks = laid_.layout.steps[s];
    const NodeId id = laid_.made.node_of[index(n)];
    const Node& node = graph_.nodes[index(id)];
    Step step{.node = id};
    for (int read : laid_.made.read_of[index(n)])
      step.in.push_back(place_of(made.reads[index(read)], blocks.reads[index(read)]));
    for (size_t o = 0; o < node.out.size(); ++o)
      step.out.push_back(place_of(made.writes[o], blocks.writes[o]));
    if (blocks.workspace >= 0)
      step.workspace_at = base_ + laid_.layout.blocks[index(blocks.workspace)].at;
    if (node.loop >= 0) emit_loop(node, step);
    plan_.steps.push_back(std::move(step));
  }

  void emit_loop(const Node& node, const Step& step) {
    const Loop& loop = graph_.loops[index(node.loop)];
    const ByteOffset base = step.workspace_at > 0 ? step.workspace_at : base_;
    Emitter body(loop.body, facts_.loops[index(node.loop)], laid_.bodies[index(node.loop)], base,
                 plan_.alignment);
    auto outer = [&](ValueId id) {
      for (size_t i = 0; i < node.in.size(); ++i)
        if (node.in[i] == id) return step.in[i];
      for (size_t o = 0; o < node.out.size(); ++o)
        if (node.out[o] == id) return step.out[o];
      throw InternalError("[plan] a loop link leads nowhere");
    };
    for (const auto* list : {&loop.shared, &loop.sliced})
      for (const Loop::In& link : *list) body.place(link.body, outer(link.outer));
    for (const Loop::Out& link : loop.stacked) body.place(link.body, outer(link.outer));
    for (const Loop::Out& link : loop.accumulated) {
      const VariableId variable = loop.body.values[index(link.body)].variable;
      body.place(loop.body.variables[index(variable)].first, outer(link.outer));
    }
    plan_.loops[index(node.loop)] = body.run(loop.trips);
  }

  const Graph& graph_;
  const GraphFacts& facts_;
  const Laid& laid_;
  ByteOffset base_;
  std::vector<ByteOffset> outside_;  // per value without a block here
  Plan plan_;
};

// All numerics keys in base order, whatever is computed twice; a split is part of it.
void hash_keys(const Graph& graph, const GraphFacts& facts, Xxh3& keys) {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const std::string& key = facts.nodes[n].key;
    keys.update(key.data(), key.size() + 1);
    if (const int l = graph.nodes[n].loop; l >= 0) {
      const Loop& loop = graph.loops[index(l)];
      keys.update(&loop.trips, sizeof loop.trips);
      if (loop.bands > 0) keys.update(&loop.bands, sizeof loop.bands);
      hash_keys(graph.loops[index(l)].body, facts.loops[index(l)], keys);
    }
  }
}

Plan plan_of(const Graph& graph, const GraphFacts& facts, const VariableLayout& layout,
             Bytes alignment, const Laid& laid) {
  Emitter emitter(graph, facts, laid, layout.bytes, alignment);
  for (const GraphVariable& variable : graph.variables) {
    const auto* entry = layout.find(variable.path);
    check(entry && entry->meta == variable.meta, "a variable is missing from the layout");
    emitter.place(variable.first, entry->at);
  }
  Plan plan = emitter.run(1);
  Xxh3 keys;
  hash_keys(graph, facts, keys);
  plan.kernels = hex16(keys.digest());
  if (!facts.device.empty()) keys.update(facts.device.data(), facts.device.size() + 1);
  plan.numerics = hex16(keys.digest());
  plan.floor = layout.bytes + laid.floor;
  const auto at_peak = laid.steps.begin() + laid.peak_step;
  plan.peak_step = static_cast<int>(std::count_if(laid.steps.begin(), at_peak, [&](int step) {
    return index(step) < laid.made.problem.nodes.size();
  }));
  add_peak(graph, laid, plan);
  for (const auto& entry : layout.entries)
    plan.at_peak[index(static_cast<int>(entry.category))] +=
        align_up(entry.meta.bytes(), alignment);
  for (Bytes bytes : plan.at_peak) plan.bound += bytes;
  std::stable_sort(plan.culprits.begin(), plan.culprits.end(),
                   [](const auto& a, const auto& b) { return a.bytes > b.bytes; });
  if (plan.culprits.size() > kCulprits) plan.culprits.resize(kCulprits);
  return plan;
}

}  // namespace

Plan make_plan(const Graph& graph, const GraphFacts& facts, const VariableLayout& layout,
               Bytes alignment, const Decision& decision) {
  return plan_of(graph, facts, layout, alignment, lay(graph, facts, decision, alignment, nullptr));
}

Plan make_device_plan(const Graph& graph, const GraphFacts& facts, const VariableLayout& layout,
                      Bytes alignment, const Decision& decision) {
  Laid laid = lay(graph, facts, decision, alignment, nullptr);
  // Behind a loop updates are neighbours. Addresses to the last byte are hard to find.
  if (graph.loops.empty())
    for (const Bytes slack : {Bytes{0}, laid.height / 32, laid.height / 4})
      if (hold_for_updates(graph, slack, laid)) break;
  return plan_of(graph, facts, layout, alignment, laid);
}

}  // namespace pl
