#include "op/recorder.h"

#include "base/error.h"

namespace pl {
namespace {
thread_local Recorder* current_recorder = nullptr;

// Of what a node makes: a weight in 16 bits is still a parameter.
Category category_of(const Graph& graph, const Node& node, Category category) {
  if (category != Category::activations || node.op != "cast") return category;
  const Value& in = graph.values[static_cast<size_t>(node.in[0])];
  return in.variable >= 0 ? in.category : category;
}
}  // namespace

ValueId Recorder::add_value(Value value) {
  graph_.values.push_back(std::move(value));
  return static_cast<ValueId>(graph_.values.size()) - 1;
}

Tensor Recorder::input(std::string name, Meta meta, bool rows) {
  const ValueId id =
      add_value({.meta = meta, .category = Category::input, .rows = rows, .path = std::move(name)});
  graph_.inputs.push_back(id);
  return Tensor(std::move(meta), this, id);
}

Tensor Recorder::variable(std::string path, Meta meta, Category category) {
  const auto variable = static_cast<VariableId>(graph_.variables.size());
  const ValueId id =
      add_value({.meta = meta, .variable = variable, .category = category, .path = path});
  graph_.variables.push_back({std::move(path), meta, category, id, id});
  return Tensor(std::move(meta), this, id);
}

void Recorder::push_scope(const std::string& name) { scopes_.push_back(name); }
void Recorder::pop_scope() { scopes_.pop_back(); }

std::string Recorder::path() const {
  std::string out;
  for (const std::string& scope : scopes_) out += (out.empty() ? "" : "/") + scope;
  return out;
}

Tensors Recorder::append(const Op& op, const Tensors& in, Attrs attrs) {
  Node node{.op = op.name, .path = path()};
  Metas metas;
  RowMask mask = 0;
  for (size_t i = 0; i < in.size(); ++i) {
    check(in[i].recorder() == this, "operands belong to different traces");
    node.in.push_back(in[i].id());
    metas.push_back(in[i].meta());
    if (graph_.values[static_cast<size_t>(in[i].id())].rows) mask |= RowMask{1} << i;
  }
  Metas outs;
  try {
    outs = op.infer(metas, attrs);
  } catch (const UserError& error) {
    if (node.path.empty()) throw;
    throw UserError("[" + node.path + "] " + error.what());
  }
  const auto id = static_cast<NodeId>(graph_.nodes.size());
  Tensors result;
  for (size_t o = 0; o < outs.size(); ++o) {
    const bool rows = output_rows(op, attrs, mask, static_cast<int>(o)) == Rows::maps;
    Value value{.meta = outs[o],
                .producer = id,
                .category = category_of(graph_, node, category_),
                .rows = rows,
                .path = node.path};
    for (const InOut& pair : op.next_version) {
      if (pair.out != static_cast<int>(o)) continue;
      const Value& before =
          graph_.values[static_cast<size_t>(node.in[static_cast<size_t>(pair.in)])];
      check(before.variable >= 0, "an update needs a variable");
      value.variable = before.variable;
      value.version = before.version + 1;
      value.category = before.category;
      value.path = before.path;
    }
    const VariableId variable = value.variable;
    const ValueId out = add_value(std::move(value));
    if (variable >= 0) graph_.variables[static_cast<size_t>(variable)].last = out;
    node.out.push_back(out);
    result.emplace_back(outs[o], this, out);
  }
  node.attrs = std::move(attrs);
  graph_.nodes.push_back(std::move(node));
  return result;
}

void Recorder::keep(const Tensor& tensor, std::string name) {
  check(tensor.recorder() == this, "kept tensor belongs to another trace");
  graph_.keep.push_back(tensor.id());
  graph_.values[static_cast<size_t>(tensor.id())].path = std::move(name);
}

bool carries_rows(const Tensor& tensor) {
  if (!tensor.is_symbol()) return false;
  return tensor.recorder()->graph().values[static_cast<size_t>(tensor.id())].rows;
}

Tensor last_version(const Tensor& variable) {
  if (!variable.is_symbol()) return variable;
  const Graph& graph = variable.recorder()->graph();
  const VariableId id = graph.values[index(variable.id())].variable;
  check(id >= 0, "the last version of what is not a variable");
  return Tensor(variable.meta(), variable.recorder(), graph.variables[index(id)].last);
}

RecorderScope::RecorderScope(Recorder& recorder) : previous_(current_recorder) {
  current_recorder = &recorder;
}
RecorderScope::~RecorderScope() { current_recorder = previous_; }
Recorder* RecorderScope::current() { return current_recorder; }

}  // namespace pl
