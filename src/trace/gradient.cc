#include "trace/gradient.h"

#include "base/error.h"
#include "op/cast.h"
#include "op/pointwise.h"

namespace pl {
namespace {

// Values that depend on any of `wrt`, in the first `node_count` nodes.
std::vector<bool> dependants(const Graph& graph, const Tensors& wrt) {
  std::vector<bool> depends(graph.values.size(), false);
  for (const Tensor& tensor : wrt) depends[index(tensor.id())] = true;
  for (const Node& node : graph.nodes) {
    bool any = false;
    for (ValueId in : node.in) any = any || depends[index(in)];
    if (!any) continue;
    for (ValueId out : node.out)
      if (is_floating(graph.values[index(out)].meta.dtype)) depends[index(out)] = true;
  }
  return depends;
}

// Variables cast to 16 bits, under all their shapes.
std::vector<bool> rounded_variables(const Graph& graph) {
  std::vector<bool> rounded(graph.values.size(), false);
  for (const Node& node : graph.nodes) {
    if (node.op != "cast" && node.op != "reshape") continue;
    const Value &in = graph.values[index(node.in[0])], &out = graph.values[index(node.out[0])];
    const bool narrows = size_of(out.meta.dtype) < size_of(in.meta.dtype);
    rounded[index(node.out[0])] = node.op == "reshape"
                                      ? rounded[index(node.in[0])]
                                      : in.variable >= 0 && narrows && is_floating(out.meta.dtype);
  }
  return rounded;
}

class Backward {
 public:
  Backward(Recorder& recorder, const Tensors& wrt)
      : recorder_(recorder),
        depends_(dependants(recorder.graph(), wrt)),
        widened_(rounded_variables(recorder.graph())),
        sum_(recorder.graph().values.size()) {}

  void add(ValueId id, const Tensor& gradient) {
    Tensor& sum = sum_[index(id)];
    const Tensor part = widened_[index(id)] ? cast(gradient, wide(gradient.dtype())) : gradient;
    sum = sum.defined() ? pl::add(sum, part) : part;
  }

  void visit(NodeId id) {
    // A copy: appending gradient nodes moves the graph's vectors.
    const Node node = recorder_.graph().nodes[index(id)];
    Tensors in, out, dout;
    bool flows = false;
    for (ValueId value : node.out) {
      out.push_back(tensor(value));
      dout.push_back(sum_[index(value)]);
      flows = flows || dout.back().defined();
    }
    uint64_t wanted = 0, widened = 0;
    for (size_t i = 0; i < node.in.size(); ++i) {
      in.push_back(tensor(node.in[i]));
      if (depends_[index(node.in[i])]) wanted |= uint64_t{1} << i;
      if (widened_[index(node.in[i])]) widened |= uint64_t{1} << i;
    }
    if (!flows || !wanted) return;
    const Op& op = get_op(node.op);
    if (!op.gradient)
      throw UserError("[gradient] " + node.path + ": expected an op with a gradient, received " +
                      node.op + "; stop the gradient before it or use another op");
    PathScope scope(&recorder_, node.path);
    const Tensors gradients = op.gradient({node.attrs, in, out, dout, wanted, widened});
    check(gradients.size() == in.size(), "an op's gradient must answer for every input");
    for (size_t i = 0; i < in.size(); ++i)
      if (gradients[i].defined() && ((wanted >> i) & 1)) add(node.in[i], gradients[i]);
  }

  Tensor sum(ValueId id) const { return sum_[index(id)]; }

 private:
  Tensor tensor(ValueId id) {
    return Tensor(recorder_.graph().values[index(id)].meta, &recorder_, id);
  }

  Recorder& recorder_;
  std::vector<bool> depends_;  // per value of the forward graph
  std::vector<bool> widened_;  // likewise: its gradient is summed in float32
  Tensors sum_;                // gradient so far, per value of the forward graph
};

}  // namespace

Tensors gradients(const Tensor& root, const Tensors& wrt, const Tensor& seed) {
  check(root.is_symbol() && seed.meta() == root.meta(), "the seed must look like the root");
  Recorder& recorder = *root.recorder();
  const Category category = recorder.category();
  const NodeId last = recorder.graph().values[index(root.id())].producer;
  Backward backward(recorder, wrt);
  recorder.set_category(Category::gradients);
  backward.add(root.id(), seed);
  for (NodeId id = last; id >= 0; --id) backward.visit(id);
  recorder.set_category(category);
  Tensors result;
  for (const Tensor& tensor : wrt) result.push_back(backward.sum(tensor.id()));
  return result;
}

}  // namespace pl
