#include "plan/split.h"

#include <algorithm>

#include "base/error.h"
#include "op/accumulate.h"
#include "op/op.h"
#include "op/step_params.h"

namespace pl {
namespace {

// Where a value or a node of the whole step goes.
enum class Part : uint8_t { before, body, after };

// Every divisor up to here is a choice; beyond it each is about twice the one before.
constexpr int64_t kDense = 4, kRatio = 15;  // tenths

bool step_params_value(const Value& value) {
  return value.meta == step_params_meta() && !value.rows && value.path == "step_params";
}

class Splitter {
 public:
  Splitter(const Graph& whole, int64_t trips)
      : whole_(whole),
        trips_(trips),
        batch_(samples_of(whole)),
        part_(whole.values.size(), Part::before),
        summed_(whole.values.size(), false),
        in_body_(whole.values.size(), -1),
        outside_(whole.values.size(), -1) {}

  Graph run() {
    check(trips_ > 0 && batch_ > 0 && batch_ % trips_ == 0, "trips divide the batch");
    for (ValueId id : whole_.inputs)
      if (whole_.values[index(id)].rows) part_[index(id)] = Part::body;
    for (const Node& node : whole_.nodes) node_part_.push_back(classify(node));
    copy_sources();
    for (size_t n = 0; n < whole_.nodes.size(); ++n)
      if (node_part_[n] == Part::before) copy_outside(whole_.nodes[n]);
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

 private:
  [[noreturn]] void refuse(const Node& node, const std::string& why) const {
    throw UserError("[split] " + (node.path.empty() ? node.op : node.path) + ": " + node.op + " " +
                    why + ", so the batch cannot be split; use --split off");
  }

  // The node sums what the trips sum, so that it can work on the terms of one trip. Operands that
  // are added as they are, which the output could replace, must be terms themselves; the rest are
  // samples that the op sums.
  bool adds_up(const Op& op, const Node& node) const {
    if (!op.additive) return false;
    bool terms = false;
    for (size_t i = 0; i < node.in.size(); ++i) {
      const bool term = std::any_of(op.in_place.begin(), op.in_place.end(), [&](const InOut& pair) {
        return pair.in == static_cast<int>(i);
      });
      const ValueId in = node.in[i];
      if (term ? !summed_[index(in)] : !whole_.values[index(in)].rows) return false;
      terms = terms || term;
    }
    return terms;
  }

  RowMask rows_in(const Node& node) const {
    RowMask mask = 0;
    for (size_t i = 0; i < node.in.size(); ++i)
      if (whole_.values[index(node.in[i])].rows) mask |= RowMask{1} << i;
    return mask;
  }

  Part classify(const Node& node) {
    const Op& op = get_op(node.op);
    const RowMask mask = rows_in(node);
    bool behind = op.effects.writes_state;
    for (ValueId in : node.in)
      behind = behind || part_[index(in)] == Part::after || summed_[index(in)];
    if (adds_up(op, node)) {
      for (ValueId out : node.out) {
        part_[index(out)] = Part::body;
        summed_[index(out)] = true;
      }
      return Part::body;
    }
    Part part = behind ? Part::after : Part::before;
    bool any_rows = mask != 0;
    for (ValueId out : node.out) any_rows = any_rows || whole_.values[index(out)].rows;
    if (any_rows) {
      if (behind) refuse(node, "works on samples with something summed over all of them");
      part = Part::body;
    }
    for (size_t o = 0; o < node.out.size(); ++o) {
      const ValueId out = node.out[o];
      part_[index(out)] = part;
      if (part != Part::body || whole_.values[index(out)].rows) continue;
      if (output_rows(op, node.attrs, mask, static_cast<int>(o)) != Rows::sums)
        refuse(node, "mixes the samples of the batch");
      if (!is_floating(whole_.values[index(out)].meta.dtype))
        refuse(node,
               "sums samples in " + std::string(name_of(whole_.values[index(out)].meta.dtype)));
      summed_[index(out)] = true;
    }
    return part;
  }

  ValueId add_outside(ValueId id) {
    Value value = whole_.values[index(id)];
    outer_.values.push_back(std::move(value));
    return outside_[index(id)] = static_cast<ValueId>(outer_.values.size()) - 1;
  }

  void copy_sources() {
    for (const Variable& variable : whole_.variables) {
      outer_.variables.push_back(variable);
      outer_.variables.back().first = add_outside(variable.first);
    }
    for (ValueId id : whole_.inputs) outer_.inputs.push_back(add_outside(id));
  }

  void copy_outside(const Node& node) {
    Node copy = node;
    for (ValueId& in : copy.in) in = outside_[index(in)];
    for (ValueId& out : copy.out) {
      out = add_outside(out);
      outer_.values[index(out)].producer = static_cast<NodeId>(outer_.nodes.size());
    }
    outer_.nodes.push_back(std::move(copy));
  }

  ValueId add_body(Value value) {
    loop_.body.values.push_back(std::move(value));
    return static_cast<ValueId>(loop_.body.values.size()) - 1;
  }

  ValueId body_variable(const std::string& path, const Meta& meta, Category category) {
    const auto variable = static_cast<VariableId>(loop_.body.variables.size());
    const ValueId id =
        add_body({.meta = meta, .variable = variable, .category = category, .path = path});
    loop_.body.variables.push_back({path, meta, category, id, id});
    return id;
  }

  // The body's name for a value of the whole step that a body node reads.
  ValueId body_operand(ValueId id) {
    if (in_body_[index(id)] >= 0) return in_body_[index(id)];
    const Value& value = whole_.values[index(id)];
    ValueId result;
    if (value.rows) {  // an input: trip i reads its part
      result = add_body({.meta = slice(value.meta),
                         .category = value.category,
                         .rows = true,
                         .path = value.path});
      loop_.body.inputs.push_back(result);
      loop_.sliced.push_back({outside_[index(id)], result});
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

  Meta slice(const Meta& meta) const {
    std::vector<Dim> dims = meta.shape.dims();
    dims[0] /= trips_;
    return {meta.dtype, Shape(std::move(dims))};
  }

  void copy_to_body(const Node& node) {
    const Op& op = get_op(node.op);
    Node copy = node;
    Metas metas;
    for (ValueId& in : copy.in) {
      in = body_operand(in);
      metas.push_back(loop_.body.values[index(in)].meta);
    }
    // Ops that make rows out of nothing hold the batch in their shape.
    if (copy.attrs.integer("rows", 0) && copy.attrs.has("shape")) {
      std::vector<Dim> shape = copy.attrs.list("shape");
      if (!shape.empty() && shape[0] > 0) shape[0] /= trips_;
      copy.attrs.set("shape", std::move(shape));
    }
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
      if (outs[o] != (value.rows ? slice(value.meta) : value.meta))
        refuse(node, "holds the batch in its shape");
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
  void accumulate(ValueId id) {
    if (!wanted_outside(id)) return;
    const Value& value = whole_.values[index(id)];
    const ValueId sum = body_variable(value.path, value.meta, value.category);
    const VariableId variable = loop_.body.values[index(sum)].variable;
    Node add{.op = kAccumulate.name, .in = {sum, in_body_[index(id)]}, .path = value.path};
    const ValueId next = add_body({.meta = value.meta,
                                   .producer = static_cast<NodeId>(loop_.body.nodes.size()),
                                   .variable = variable,
                                   .version = 1,
                                   .category = value.category,
                                   .path = value.path});
    add.out.push_back(next);
    loop_.body.variables[index(variable)].last = next;
    loop_.body.nodes.push_back(std::move(add));
    loop_.accumulated.push_back({next, add_outside(id)});
  }

  bool wanted_outside(ValueId id) const {
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
  void stack(ValueId id) {
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

  void close_loop() {
    for (ValueId id : whole_.keep)
      if (whole_.values[index(id)].rows) stack(id);
    Node node{.op = "loop", .path = "batch", .loop = 0};
    for (const auto* list : {&loop_.shared, &loop_.sliced, &loop_.params})
      for (const Loop::In& link : *list) node.in.push_back(link.outer);
    for (const auto* list : {&loop_.stacked, &loop_.accumulated})
      for (const Loop::Out& link : *list) {
        node.out.push_back(link.outer);
        outer_.values[index(link.outer)].producer = static_cast<NodeId>(outer_.nodes.size());
      }
    loop_.trips = trips_;
    loop_.samples = batch_ / trips_;
    outer_.nodes.push_back(std::move(node));
    outer_.loops.push_back(std::move(loop_));
    for (NodeId alias : aliases_) copy_outside(whole_.nodes[index(alias)]);
  }

  const Graph& whole_;
  int64_t trips_, batch_;
  std::vector<Part> node_part_;
  std::vector<Part> part_;    // per value of the whole step
  std::vector<bool> summed_;  // per value: made in the body, summed over the trips
  std::vector<ValueId> in_body_, outside_;
  std::vector<NodeId> aliases_;  // that are kept, in order
  Graph outer_;
  Loop loop_;
};

}  // namespace

int64_t samples_of(const Graph& graph) {
  for (ValueId id : graph.inputs) {
    const Value& value = graph.values[index(id)];
    if (value.rows) return value.meta.shape[0];
  }
  return 0;
}

Graph split_batch(const Graph& graph, int64_t trips) { return Splitter(graph, trips).run(); }

std::vector<int64_t> split_choices(int64_t batch) {
  std::vector<int64_t> divisors;
  for (int64_t d = 1; d * d <= batch; ++d) {
    if (batch % d != 0) continue;
    divisors.push_back(d);
    if (d * d != batch) divisors.push_back(batch / d);
  }
  std::sort(divisors.begin(), divisors.end());
  std::vector<int64_t> choices;
  for (int64_t d : divisors) {
    const int64_t last = choices.empty() ? 0 : choices.back();
    if (d <= kDense || 10 * d >= kRatio * last) choices.push_back(d);
  }
  // The finest split is the last resort: it takes the place of a near neighbour.
  if (!choices.empty() && choices.back() != batch) choices.back() = batch;
  return choices;
}

}  // namespace pl
