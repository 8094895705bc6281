#include "trace/gradient.h"

#include "base/error.h"
#include "trace/backward.h"

namespace pl {
namespace {

Trail trail_of(const Graph& graph) {
  Trail trail;
  for (const Value& value : graph.values)
    trail.values.push_back({value.meta.dtype, value.variable >= 0});
  for (const Node& node : graph.nodes) trail.steps.push_back({&get_op(node.op), node.in, node.out});
  return trail;
}

Tensors tensors_of(Recorder& recorder, const std::vector<ValueId>& ids) {
  Tensors tensors;
  for (ValueId id : ids)
    tensors.emplace_back(recorder.graph().values[index(id)].meta, &recorder, id);
  return tensors;
}

}  // namespace

Tensors gradients(const Tensor& root, const Tensors& wrt, const Tensor& seed) {
  check(root.is_symbol() && seed.meta() == root.meta(), "the seed must look like the root");
  Recorder& recorder = *root.recorder();
  const Category category = recorder.category();
  const NodeId last = recorder.graph().values[index(root.id())].producer;
  const Trail trail = trail_of(recorder.graph());
  std::vector<int> ids;
  for (const Tensor& tensor : wrt) ids.push_back(tensor.id());
  Backward backward(trail, ids);
  recorder.set_category(Category::gradients);
  backward.add(root.id(), seed);
  for (NodeId id = last; id >= 0; --id) {
    const Trail::Step& step = trail.steps[index(id)];
    if (!backward.reaches(step)) continue;
    // A copy: appending gradient nodes moves the graph's vectors.
    const Node node = recorder.graph().nodes[index(id)];
    const Tensors in = tensors_of(recorder, node.in), out = tensors_of(recorder, node.out);
    backward.visit(step, {node.attrs, in, out, node.path, &recorder});
  }
  recorder.set_category(category);
  Tensors result;
  for (const Tensor& tensor : wrt) result.push_back(backward.sum(tensor.id()));
  return result;
}

}  // namespace pl
