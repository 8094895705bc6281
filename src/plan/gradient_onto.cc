// A table read by an embedding and by a tied head has two gradients. Their sum is made in the place
// of the first: add(a, embedding_gradient(...)) becomes embedding_gradient_onto(a, ...).
#include <algorithm>

#include "plan/passes.h"
#include "plan/rewrite.h"

namespace pl::pass {

void add_gradient_onto(Graph& graph) {
  const auto readers = readers_of(graph);
  std::vector<bool> dropped(graph.nodes.size(), false);
  // The node that makes `id`, if it is an embedding_gradient with one reader.
  auto gradient_of = [&](ValueId id) -> NodeId {
    const NodeId producer = graph.values[index(id)].producer;
    if (producer < 0 || graph.nodes[index(producer)].op != "embedding_gradient") return -1;
    return !is_kept(graph, id) && readers[index(id)].size() == 1 ? producer : -1;
  };
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    Node& sum = graph.nodes[n];
    if (sum.op != "add" || sum.in[0] == sum.in[1] ||
        graph.values[index(sum.in[0])].meta != graph.values[index(sum.in[1])].meta)
      continue;
    for (const size_t side : {size_t{1}, size_t{0}}) {
      const NodeId made_by = gradient_of(sum.in[side]);
      if (made_by < 0) continue;
      const Node& gradient = graph.nodes[index(made_by)];
      sum.op = "embedding_gradient_onto";
      sum.in = {sum.in[1 - side], gradient.in[0], gradient.in[1]};
      sum.attrs = gradient.attrs;
      sum.path = gradient.path;
      dropped[index(made_by)] = true;
      break;
    }
  }
  rebuild(graph, dropped);
}

}  // namespace pl::pass
