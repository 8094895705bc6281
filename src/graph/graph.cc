#include "graph/graph.h"

#include <algorithm>

#include "base/error.h"

namespace pl {

const char* name_of(Category category) {
  constexpr const char* names[] = {"parameters", "gradients", "optimizer", "activations",
                                   "workspace",  "input",     "other"};
  return names[static_cast<int>(category)];
}

namespace {

std::string id_text(ValueId id) { return "%" + std::to_string(id); }

std::string list_text(const std::vector<ValueId>& ids) {
  std::string out;
  for (size_t i = 0; i < ids.size(); ++i) out += (i ? ", " : "") + id_text(ids[i]);
  return out;
}

std::string starts_text(const Loop::In& link) {
  std::string out = " from";
  for (int64_t start : link.starts) out += " " + std::to_string(start);
  return out;
}

void print_into(const Graph& graph, const std::string& indent, std::string& out) {
  for (const GraphVariable& variable : graph.variables)
    out += indent + "variable " + variable.path + " " + variable.meta.text() + " " +
           name_of(variable.category) + " " + id_text(variable.first) + " -> " +
           id_text(variable.last) + "\n";
  for (ValueId id : graph.inputs) {
    const Value& value = graph.values[static_cast<size_t>(id)];
    out += indent + "input " + value.path + " " + value.meta.text() + " " + id_text(id) + "\n";
  }
  for (const Node& node : graph.nodes) {
    out += indent + list_text(node.out) + " = " + node.op + "(" + list_text(node.in) + ")";
    if (!node.attrs.entries().empty()) out += " " + node.attrs.print();
    out += " :";
    for (ValueId id : node.out) out += " " + graph.values[static_cast<size_t>(id)].meta.text();
    if (!node.path.empty()) out += "  # " + node.path;
    out += "\n";
    if (node.loop >= 0) {
      const Loop& loop = graph.loops[static_cast<size_t>(node.loop)];
      out += indent + "  loop " + std::to_string(loop.trips) + " trips";
      if (loop.bands > 0) out += " of " + std::to_string(loop.bands) + " bands";
      out += "\n";
      for (const Loop::In& link : loop.sliced)
        if (!link.starts.empty())
          out += indent + "    rows of " + id_text(link.body) + starts_text(link) + "\n";
      print_into(loop.body, indent + "    ", out);
    }
  }
  for (ValueId id : graph.keep)
    out += indent + "keep " + graph.values[static_cast<size_t>(id)].path + " " + id_text(id) + "\n";
}

class Checker {
 public:
  explicit Checker(const Graph& graph) : graph_(graph), written_(graph.values.size(), false) {}

  void run() {
    for (const Value& value : graph_.values) value.meta.bytes();
    check_sources();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) check_node(static_cast<NodeId>(i));
    for (ValueId id : graph_.keep)
      require(in_range(id) && written_[index(id)], "kept value is never written", -1);
    for (bool written : written_) require(written, "a value is never written", -1);
    check_versions();
  }

 private:
  bool in_range(ValueId id) const { return id >= 0 && index(id) < graph_.values.size(); }

  void require(bool holds, const std::string& what, NodeId node) const {
    if (holds) return;
    std::string where = node < 0 ? ""
                                 : " at node " + std::to_string(node) + " (" +
                                       graph_.nodes[index(node)].op + ", " +
                                       graph_.nodes[index(node)].path + ")";
    throw InternalError("[graph] " + what + where);
  }

  void check_sources() {
    for (const GraphVariable& variable : graph_.variables) {
      require(in_range(variable.first) && in_range(variable.last), "variable value out of range",
              -1);
      require(!written_[index(variable.first)], "two variables share a value", -1);
      written_[index(variable.first)] = true;
    }
    for (ValueId id : graph_.inputs) {
      require(in_range(id) && !written_[index(id)], "input out of range or listed twice", -1);
      written_[index(id)] = true;
    }
    for (size_t i = 0; i < graph_.values.size(); ++i)
      if (written_[i]) require(graph_.values[i].producer == -1, "a source has a producer", -1);
  }

  void check_node(NodeId id) {
    const Node& node = graph_.nodes[index(id)];
    for (ValueId in : node.in)
      require(in_range(in) && written_[index(in)], "reads a value before it is written", id);
    for (ValueId out : node.out) {
      require(in_range(out) && !written_[index(out)], "writes a value twice", id);
      require(graph_.values[index(out)].producer == id, "producer does not match", id);
      written_[index(out)] = true;
    }
    require((node.op == "loop") == (node.loop >= 0), "loop index and op disagree", id);
    if (node.loop >= 0) check_loop(node, id);
  }

  // The first version of the variable whose last version is accumulated.
  ValueId accumulator_of(const Graph& body, ValueId last, NodeId id) const {
    for (const GraphVariable& variable : body.variables)
      if (variable.last == last && variable.first != last) return variable.first;
    require(false, "a loop accumulates what is not a variable of its body", id);
    return -1;
  }

  void check_loop(const Node& node, NodeId id) const {
    require(index(node.loop) < graph_.loops.size(), "loop index out of range", id);
    const Loop& loop = graph_.loops[index(node.loop)];
    require(loop.trips > 0, "a loop needs at least one trip", id);
    require(loop.bands == 0 || (loop.bands > 0 && loop.trips % loop.bands == 0 &&
                                loop.samples == 1 && loop.stacked.empty()),
            "bands are those of one sample", id);
    std::vector<ValueId> outer_in, outer_out, body_in, body_out;
    for (const auto* list : {&loop.shared, &loop.sliced, &loop.params})
      for (const Loop::In& link : *list) {
        outer_in.push_back(link.outer);
        body_in.push_back(link.body);
      }
    for (const Loop::Out& link : loop.stacked) {
      body_out.push_back(link.body);
      outer_out.push_back(link.outer);
    }
    for (const Loop::Out& link : loop.accumulated) {
      outer_out.push_back(link.outer);
      body_in.push_back(accumulator_of(loop.body, link.body, id));
    }
    for (const Loop::Carried& link : loop.carried) {
      outer_in.push_back(link.initial);
      body_in.push_back(link.body_in);
      body_out.push_back(link.body_out);
      outer_out.push_back(link.final);
    }
    auto same = [](std::vector<ValueId> a, std::vector<ValueId> b) {
      std::sort(a.begin(), a.end());
      std::sort(b.begin(), b.end());
      return a == b;
    };
    require(same(outer_in, node.in), "loop links do not match its inputs", id);
    require(same(outer_out, node.out), "loop links do not match its outputs", id);
    std::vector<ValueId> sources = loop.body.inputs;
    for (const GraphVariable& variable : loop.body.variables) sources.push_back(variable.first);
    require(same(body_in, sources), "loop links do not match the body's inputs and variables", id);
    const auto& kept = loop.body.keep;
    for (ValueId value : body_out)
      require(std::find(kept.begin(), kept.end(), value) != kept.end(),
              "a loop link reads a value that the body does not keep", id);
    check_graph(loop.body);
    check_link_metas(loop, id);
  }

  // What the body sees of a value is the value, or a part of its rows.
  void check_link_metas(const Loop& loop, NodeId id) const {
    auto inner = [&](ValueId body) { return loop.body.values[index(body)]; };
    auto equal = [&](ValueId outer, ValueId body) {
      require(graph_.values[index(outer)].meta == inner(body).meta,
              "a loop link leads to a value that has not the body's shape", id);
    };
    auto part = [&](ValueId outer, ValueId body) {
      std::vector<Dim> dims = inner(body).meta.shape.dims();
      if (!dims.empty()) dims[0] *= loop.trips;
      require(!dims.empty() && graph_.values[index(outer)].meta ==
                                   Meta{inner(body).meta.dtype, Shape(std::move(dims))},
              "the parts of a loop link do not make up the whole", id);
    };
    for (const Loop::In& link : loop.shared) {
      const VariableId variable = inner(link.body).variable;
      require(variable >= 0 && loop.body.variables[index(variable)].last == link.body,
              "a shared value is a variable of the body that the body does not change", id);
      equal(link.outer, link.body);
    }
    for (const Loop::In& link : loop.params) equal(link.outer, link.body);
    for (const Loop::Out& link : loop.accumulated) equal(link.outer, link.body);
    for (const Loop::Carried& link : loop.carried) {
      equal(link.initial, link.body_in);
      equal(link.final, link.body_out);
    }
    for (const Loop::In& link : loop.sliced)
      if (loop.bands > 0)
        check_bands(loop, link, id);
      else
        part(link.outer, link.body);
    for (const Loop::Out& link : loop.stacked) part(link.outer, link.body);
  }

  // A band has all of its image but rows, and lies inside.
  void check_bands(const Loop& loop, const Loop::In& link, NodeId id) const {
    const Meta &whole = graph_.values[index(link.outer)].meta,
               &part = loop.body.values[index(link.body)].meta;
    std::vector<Dim> dims = part.shape.dims();
    bool fits = dims.size() > 1 && whole.shape.rank() > 1 &&
                static_cast<int64_t>(link.starts.size()) == loop.bands;
    for (size_t b = 0; fits && b < link.starts.size(); ++b)
      fits = link.starts[b] >= 0 && link.starts[b] <= whole.shape[1] - part.shape[1];
    if (fits) {
      dims[0] *= loop.trips / loop.bands;
      dims[1] = whole.shape[1];
    }
    require(fits && whole == Meta{part.dtype, Shape(std::move(dims))},
            "a band of a loop link does not lie in its image", id);
  }

  // Versions of a variable form a chain; all readers of one come before the writer of the next.
  void check_versions() const {
    std::vector<NodeId> last_reader(graph_.values.size(), -1);
    for (size_t i = 0; i < graph_.nodes.size(); ++i)
      for (ValueId in : graph_.nodes[i].in) last_reader[index(in)] = static_cast<NodeId>(i);
    std::vector<std::vector<ValueId>> versions(graph_.variables.size());
    for (size_t i = 0; i < graph_.values.size(); ++i) {
      const Value& value = graph_.values[i];
      if (value.variable < 0) continue;
      require(index(value.variable) < graph_.variables.size(), "value of an unknown variable", -1);
      versions[index(value.variable)].push_back(static_cast<ValueId>(i));
    }
    for (size_t v = 0; v < versions.size(); ++v) {
      auto& chain = versions[v];
      std::sort(chain.begin(), chain.end(), [&](ValueId a, ValueId b) {
        return graph_.values[index(a)].version < graph_.values[index(b)].version;
      });
      require(!chain.empty() && chain.front() == graph_.variables[v].first &&
                  chain.back() == graph_.variables[v].last,
              "a variable's versions are not a chain", -1);
      for (size_t k = 1; k < chain.size(); ++k) {
        const NodeId writer = graph_.values[index(chain[k])].producer;
        require(graph_.values[index(chain[k])].version == static_cast<int>(k),
                "a version is missing", writer);
        require(last_reader[index(chain[k - 1])] <= writer,
                "a version is read after its replacement", writer);
      }
    }
  }

  const Graph& graph_;
  std::vector<bool> written_;
};

}  // namespace

Bytes trip_offset(const Loop& loop, const Meta& part, const Meta& whole,
                  const std::vector<int64_t>& starts, int64_t trip) {
  if (loop.bands == 0) return trip * part.bytes();
  const Bytes row = part.bytes() / (part.shape[0] * part.shape[1]);
  return (trip / loop.bands * whole.shape[1] + starts[static_cast<size_t>(trip % loop.bands)]) *
         row;
}

std::string print(const Graph& graph) {
  std::string out;
  print_into(graph, "", out);
  return out;
}

void check_graph(const Graph& graph) { Checker(graph).run(); }

}  // namespace pl
