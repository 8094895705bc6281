#include "plan/validate_links.h"

#include "plan/validate_bands.h"

namespace pl {
namespace {

class LinksReplay {
 public:
  using Require = std::function<void(bool holds, const std::string& what)>;
  LinksReplay(const Graph& graph, const Step& step, const Plan& body, const Require& require)
      : graph_(graph),
        step_(step),
        node_(graph.nodes[static_cast<size_t>(step.node)]),
        loop_(graph.loops[static_cast<size_t>(node_.loop)]),
        body_(body),
        require_(require) {}

  void run() const {
    require_(body_.variable_at.size() == loop_.body.variables.size() &&
                 body_.input_at.size() == loop_.body.inputs.size() &&
                 body_.keep_at.size() == loop_.body.keep.size(),
             "offsets of a body are missing");
    for (const Loop::In& link : loop_.shared) {
      const size_t variable = unchanged(link.body, link.outer, "a shared value is changed");
      require_(body_.variable_at[variable] == place(node_.in, step_.in, link.outer),
               "a shared value is not where the body reads it");
    }
    for (const Loop::In& link : loop_.params) check_equal(link.body, link.outer);
    if (loop_.bands != 0) validate_bands(graph_, loop_);
    for (const Loop::In& link : loop_.sliced) {
      if (loop_.bands == 0) check_parts(link.body, link.outer);
      require_(place(loop_.body.inputs, body_.input_at, link.body) ==
                   place(node_.in, step_.in, link.outer),
               "a sliced value is not where the body reads it");
    }
    for (const Loop::Out& link : loop_.stacked) {
      check_parts(link.body, link.outer);
      require_(place(loop_.body.keep, body_.keep_at, link.body) ==
                   place(node_.out, step_.out, link.outer),
               "a stacked value is not where the body writes it");
    }
    for (const Loop::Out& link : loop_.accumulated) {
      const size_t variable = unchanged(link.body, link.outer, "a sum is changed once more");
      require_(body_.variable_at[variable] == place(node_.out, step_.out, link.outer),
               "a sum is not where the body adds to it");
    }
    require_(loop_.carried.empty(), "carried values are not planned");
  }

 private:
  const Value& outer(ValueId id) const { return graph_.values[static_cast<size_t>(id)]; }
  const Value& inner(ValueId id) const {
    require_(id >= 0 && static_cast<size_t>(id) < loop_.body.values.size(),
             "a loop link names no value of the body");
    return loop_.body.values[static_cast<size_t>(id)];
  }
  ByteOffset place(const std::vector<ValueId>& ids, const std::vector<ByteOffset>& places,
                   ValueId id) const {
    for (size_t i = 0; i < ids.size(); ++i)
      if (ids[i] == id) return places[i];
    require_(false, "a loop link leads nowhere");
    return -1;
  }
  void check_equal(ValueId part, ValueId whole) const {
    require_(inner(part).meta == outer(whole).meta,
             outer(whole).path + " is something else in the body");
  }
  // The body's variable that is `whole`, and is in its last version what the link names.
  size_t unchanged(ValueId part, ValueId whole, const char* otherwise) const {
    check_equal(part, whole);
    const VariableId variable = inner(part).variable;
    require_(variable >= 0 && static_cast<size_t>(variable) < body_.variable_at.size(),
             "a loop link names no variable of the body");
    require_(loop_.body.variables[static_cast<size_t>(variable)].last == part, otherwise);
    return static_cast<size_t>(variable);
  }
  // Part i begins i * (its bytes) behind the first, so rows must be the outermost dimension.
  void check_parts(ValueId part, ValueId whole) const {
    const Meta &p = inner(part).meta, &w = outer(whole).meta;
    bool fit = p.dtype == w.dtype && p.shape.rank() == w.shape.rank() && w.shape.rank() > 0;
    for (int axis = 0; fit && axis < w.shape.rank(); ++axis)
      fit = w.shape[axis] == p.shape[axis] * (axis == 0 ? loop_.trips : 1);
    require_(fit, "the parts of " + outer(whole).path + " do not make up the whole");
  }

  const Graph& graph_;
  const Step& step_;
  const Node& node_;
  const Loop& loop_;
  const Plan& body_;
  const Require& require_;
};

}  // namespace

void validate_links(const Graph& graph, const Step& step, const Plan& body,
                    const std::function<void(bool holds, const std::string& what)>& require) {
  LinksReplay(graph, step, body, require).run();
}

}  // namespace pl
