// Biases of products in the products' own dtype: libraries of devices add such a bias before they
// write the result, and need another pass over it for any other. The cast is made once a step.
//
//   (a, w, b) -> matmul -> y   =>   b -> cast -> c; (a, w, c) -> matmul -> y
#include <map>

#include "op/matmul_fused.h"
#include "plan/passes.h"
#include "plan/rewrite.h"

namespace pl::pass {
namespace {

// Which operand is the bias; 0: there is none.
size_t bias_of(const Node& node) {
  const size_t at = node.op == kMatmul.name ? 2 : node.op == kMatmulAdd.name ? 3 : 0;
  return at > 0 && node.in.size() > at ? at : 0;
}

}  // namespace

void narrow_bias(Graph& graph) {
  const size_t count = graph.nodes.size();
  std::map<ValueId, ValueId> casts;  // of a bias, as the first that needs it has it
  std::vector<NodeId> order;
  for (size_t n = 0; n < count; ++n) {
    if (const size_t at = bias_of(graph.nodes[n])) {
      const ValueId bias = graph.nodes[n].in[at];
      const Dtype dtype = graph.values[index(graph.nodes[n].out[0])].meta.dtype;
      const Meta meta = graph.values[index(bias)].meta;
      if (size_of(dtype) == 2 && meta.dtype != dtype) {
        auto [cast, fresh] = casts.emplace(bias, static_cast<ValueId>(graph.values.size()));
        if (fresh) {
          order.push_back(static_cast<NodeId>(graph.nodes.size()));
          graph.values.push_back(
              {.meta = {dtype, meta.shape}, .producer = order.back(), .path = graph.nodes[n].path});
          graph.nodes.push_back({.op = "cast",
                                 .in = {bias},
                                 .out = {cast->second},
                                 .attrs = {{"dtype", std::string(name_of(dtype))}},
                                 .path = graph.nodes[n].path});
        }
        graph.nodes[n].in[at] = cast->second;
      }
    }
    order.push_back(static_cast<NodeId>(n));
  }
  rebuild(graph, std::vector<bool>(graph.nodes.size(), false), order);
}

}  // namespace pl::pass
