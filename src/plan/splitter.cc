#include "plan/splitter.h"

#include <algorithm>

#include "base/error.h"
#include "op/accumulate.h"
#include "op/embedding.h"
#include "op/layer_norm_gradients.h"
#include "op/linear_cross_entropy.h"
#include "op/matmul_accumulate.h"
#include "op/reduce.h"
#include "op/step_params.h"

namespace pl {
namespace {

bool step_params_value(const Value& value) {
  return value.meta == step_params_meta() && !value.rows && value.path == "step_params";
}

}  // namespace

Splitter::Splitter(const Graph& whole, int64_t trips, int64_t batch)
    : whole_(whole),
      trips_(trips),
      batch_(batch),
      part_(whole.values.size(), Part::before),
      summed_(whole.values.size(), false),
      early_(whole.nodes.size(), false),
      in_body_(whole.values.size(), -1),
      outside_(whole.values.size(), -1) {}

Graph Splitter::run() {
  for (ValueId id : whole_.inputs)
    if (whole_.values[index(id)].rows) part_[index(id)] = Part::body;
  for (const Node& node : whole_.nodes) node_part_.push_back(classify(node));
  copy_sources();
  for (size_t n = 0; n < whole_.nodes.size(); ++n)
    if (node_part_[n] == Part::before || early_[n]) copy_outside(whole_.nodes[n]);
  for (size_t n = 0; n < whole_.nodes.size(); ++n)
    if (node_part_[n] == Part::body) copy_to_body(whole_.nodes[n]);
  close_loop();
  for (size_t n = 0; n < whole_.nodes.size(); ++n)
    if (node_part_[n] == Part::after) copy_outside(whole_.nodes[n]);
  for (ValueId id : whole_.keep) outer_.keep.push_back(outside_[index(id)]);
  for (size_t v = 0; v < whole_.variables.size(); ++v)
    outer_.variables[v].last = outside_[index(whole_.variables[v].last)];
  check_graph(outer_);
  return std::move(outer_);
}

ValueId Splitter::add_outside(ValueId id) {
  Value value = whole_.values[index(id)];
  outer_.values.push_back(std::move(value));
  return outside_[index(id)] = static_cast<ValueId>(outer_.values.size()) - 1;
}

void Splitter::copy_sources() {
  for (const GraphVariable& variable : whole_.variables) {
    outer_.variables.push_back(variable);
    outer_.variables.back().first = add_outside(variable.first);
  }
  for (ValueId id : whole_.inputs) outer_.inputs.push_back(add_outside(id));
}

void Splitter::copy_outside(const Node& node) {
  Node copy = node;
  for (ValueId& in : copy.in) in = outside_[index(in)];
  for (ValueId& out : copy.out) {
    out = add_outside(out);
    outer_.values[index(out)].producer = static_cast<NodeId>(outer_.nodes.size());
  }
  outer_.nodes.push_back(std::move(copy));
}

ValueId Splitter::add_body(Value value) {
  loop_.body.values.push_back(std::move(value));
  return static_cast<ValueId>(loop_.body.values.size()) - 1;
}

ValueId Splitter::body_variable(const std::string& path, const Meta& meta, Category category) {
  const auto variable = static_cast<VariableId>(loop_.body.variables.size());
  const ValueId id =
      add_body({.meta = meta, .variable = variable, .category = category, .path = path});
  loop_.body.variables.push_back({path, meta, category, id, id});
  return id;
}

// The body's name for a value of the whole step that a body node reads.
ValueId Splitter::body_operand(ValueId id) {
  if (in_body_[index(id)] >= 0) return in_body_[index(id)];
  const Value& value = whole_.values[index(id)];
  ValueId result;
  if (value.rows) {  // an input: trip i reads its part
    result = add_body(
        {.meta = part_meta(id), .category = value.category, .rows = true, .path = value.path});
    loop_.body.inputs.push_back(result);
    loop_.sliced.push_back({outside_[index(id)], result, starts_of(id)});
  } else if (step_params_value(value)) {  // a copy that says which samples the trip has
    result = add_body({.meta = value.meta, .category = value.category, .path = value.path});
    loop_.body.inputs.push_back(result);
    loop_.params.push_back({outside_[index(id)], result});
  } else {
    result = body_variable(value.path, value.meta, value.category);
    loop_.shared.push_back({outside_[index(id)], result});
  }
  return in_body_[index(id)] = result;
}

void Splitter::copy_to_body(const Node& node) {
  const Op& op = get_op(node.op);
  Node copy = node;
  Metas metas;
  for (ValueId& in : copy.in) {
    in = body_operand(in);
    metas.push_back(loop_.body.values[index(in)].meta);
  }
  adapt(node, copy);
  Metas outs;
  try {
    outs = op.infer(metas, copy.attrs);
  } catch (const UserError&) {
    refuse(node, "holds the batch in its shape");
  }
  const auto id = static_cast<NodeId>(loop_.body.nodes.size());
  for (size_t o = 0; o < copy.out.size(); ++o) {
    const ValueId out = copy.out[o];
    const Value& value = whole_.values[index(out)];
    if (!fits(out, outs[o])) refuse(node, "holds the batch in its shape");
    copy.out[o] = in_body_[index(out)] = add_body({.meta = outs[o],
                                                   .producer = id,
                                                   .category = value.category,
                                                   .rows = value.rows,
                                                   .path = value.path});
  }
  loop_.body.nodes.push_back(std::move(copy));
  for (ValueId out : node.out)
    if (summed_[index(out)]) accumulate(out);
}

// The sum lives outside; the term dies as soon as it is added.
void Splitter::accumulate(ValueId id) {
  const bool added = loop_.body.values[index(in_body_[index(id)])].variable >= 0;
  if (added || !wanted_outside(id) || accumulate_in_place(id)) return;
  collect(id, {.op = kAccumulate.name});
}

namespace {

// The op that adds outputs of a node to sums, its first operands.
struct Adding {
  const Op* op = nullptr;  // null: there is none
  size_t first = 0, sums = 1;
};
Adding adding_op(const Node& node) {
  if (node.op == kMatmul.name && node.in.size() == 2 &&
      node.attrs.text("activation", "none") == "none")
    return {&kMatmulAccumulate};
  if (node.op == kEmbeddingGradient.name) return {&kEmbeddingGradientAccumulate};
  if (node.op == kReduceSum.name) return {&kReduceSumAccumulate};
  if (node.op == kLinearCrossEntropy.name) return {&kLinearCrossEntropyAccumulate, 2};
  if (node.op == kLayerNormGradients.name && node.out.size() == 4)
    return {&kLayerNormGradientsAccumulate, 1, 3};
  return {};
}

}  // namespace

// Nothing in the body reads it but `reader`, and no kept value is made of it.
bool Splitter::only_reader(ValueId id, const Node* reader) const {
  if (std::find(whole_.keep.begin(), whole_.keep.end(), id) != whole_.keep.end()) return false;
  for (size_t n = 0; n < whole_.nodes.size(); ++n) {
    const Node& node = whole_.nodes[n];
    if (node_part_[n] != Part::after && &node != reader &&
        std::find(node.in.begin(), node.in.end(), id) != node.in.end())
      return false;
  }
  return true;
}

// Where the node that made the term can add it to the sum itself, the term has no bytes of its own:
// the node's output becomes the sum's next version. A node of several sums adds all of them, or
// none. A second gradient that was made onto a first one (a tied head) follows it into the sum.
bool Splitter::accumulate_in_place(ValueId id) {
  if (!adds_in_place() || !only_reader(id, nullptr)) return false;
  const Value& value = whole_.values[index(id)];
  std::vector<ValueId> chain{id};  // of the whole step; the first is added first
  const Node* maker = &whole_.nodes[index(value.producer)];
  if (maker->op == kEmbeddingGradientOnto.name) {
    const ValueId first = maker->in[0];
    if (whole_.values[index(first)].producer < 0 || is_outside(first) ||
        !only_reader(first, maker) || wanted_outside(first))
      return false;
    chain.insert(chain.begin(), first);
    maker = &whole_.nodes[index(whole_.values[index(first)].producer)];
  }
  const Adding adding = adding_op(*maker);
  if (!adding.op || maker->out.size() < adding.first + adding.sums) return false;
  const ValueId head = chain[0];
  const std::span<const ValueId> summed = std::span(maker->out).subspan(adding.first, adding.sums);
  if (std::find(summed.begin(), summed.end(), head) == summed.end() ||
      wide(value.meta.dtype) != value.meta.dtype)
    return false;
  for (ValueId other : summed)
    if (other != head && (!wanted_outside(other) || !only_reader(other, nullptr))) return false;
  Graph& body = loop_.body;
  Node& node = body.nodes[index(body.values[index(in_body_[index(head)])].producer)];
  node.op = adding.op->name;
  std::vector<ValueId> sums;
  for (ValueId term : summed)
    sums.push_back(make_sum(term == head ? chain : std::vector<ValueId>{term}));
  node.in.insert(node.in.begin(), sums.begin(), sums.end());
  return true;
}

// A sum whose next versions are the terms in the body, one after the other; the last one is the
// whole's. Answers its first version.
ValueId Splitter::make_sum(const std::vector<ValueId>& terms) {
  Graph& body = loop_.body;
  const Value& value = whole_.values[index(terms.back())];
  const ValueId sum = body_variable(value.path, value.meta, value.category);
  const VariableId variable = body.values[index(sum)].variable;
  for (size_t i = 0; i < terms.size(); ++i) {
    Value& next = body.values[index(in_body_[index(terms[i])])];
    if (i > 0) body.nodes[index(next.producer)].op = kEmbeddingGradientAccumulate.name;
    next.variable = variable;
    next.version = static_cast<int>(i) + 1;
    next.category = value.category;
  }
  const ValueId last = in_body_[index(terms.back())];
  body.variables[index(variable)].last = last;
  loop_.accumulated.push_back({last, add_outside(terms.back())});
  return sum;
}

void Splitter::collect(ValueId id, Node add) {
  const Value& value = whole_.values[index(id)];
  const ValueId sum = body_variable(value.path, value.meta, value.category);
  const VariableId variable = loop_.body.values[index(sum)].variable;
  const ValueId next = add_body({.meta = value.meta,
                                 .producer = static_cast<NodeId>(loop_.body.nodes.size()),
                                 .variable = variable,
                                 .version = 1,
                                 .category = value.category,
                                 .path = value.path});
  add.in.insert(add.in.begin(), {sum, in_body_[index(id)]});
  add.out = {next};
  add.path = value.path;
  loop_.body.variables[index(variable)].last = next;
  loop_.body.nodes.push_back(std::move(add));
  loop_.accumulated.push_back({next, add_outside(id)});
}

bool Splitter::wanted_outside(ValueId id) const {
  if (std::find(whole_.keep.begin(), whole_.keep.end(), id) != whole_.keep.end()) return true;
  for (size_t n = 0; n < whole_.nodes.size(); ++n) {
    const Node& node = whole_.nodes[n];
    if (node_part_[n] == Part::after &&
        std::find(node.in.begin(), node.in.end(), id) != node.in.end())
      return true;
  }
  return false;
}

// The loop stacks bytes: of a value and its aliases only the first, the rest follow outside.
void Splitter::stack(ValueId id) {
  if (outside_[index(id)] >= 0) return;
  const NodeId producer = whole_.values[index(id)].producer;
  const Node& node = whole_.nodes[index(producer)];
  const auto alias = get_op(node.op).alias;
  if (!alias.empty()) {
    if (std::find(aliases_.begin(), aliases_.end(), producer) != aliases_.end()) return;
    stack(node.in[index(alias[0].in)]);
    aliases_.push_back(producer);
    return;
  }
  loop_.stacked.push_back({in_body_[index(id)], add_outside(id)});
  loop_.body.keep.push_back(in_body_[index(id)]);
}

void Splitter::close_loop() {
  for (ValueId id : whole_.keep)
    if (whole_.values[index(id)].rows) keep(id);
  Node node{.op = "loop", .path = "batch", .loop = 0};
  for (const auto* list : {&loop_.shared, &loop_.sliced, &loop_.params})
    for (const Loop::In& link : *list) node.in.push_back(link.outer);
  for (const auto* list : {&loop_.stacked, &loop_.accumulated})
    for (const Loop::Out& link : *list) {
      node.out.push_back(link.outer);
      outer_.values[index(link.outer)].producer = static_cast<NodeId>(outer_.nodes.size());
    }
  loop_.trips = trips_;
  finish(loop_);
  outer_.nodes.push_back(std::move(node));
  outer_.loops.push_back(std::move(loop_));
  for (NodeId alias : aliases_) copy_outside(whole_.nodes[index(alias)]);
}

}  // namespace pl
