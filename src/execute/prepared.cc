#include "execute/prepared.h"

namespace pl {

Prepared prepare_graph(Graph graph, Backend& backend, const VariableLayout& layout,
                       const PassOptions& options, const Decision& decision) {
  Prepared result;
  run_passes(graph, options);
  KernelBook book(backend);
  result.facts = book.facts(graph);
  result.plan = make_plan(graph, result.facts, layout, backend.alignment(), decision);
  validate(graph, result.plan, result.facts);
  result.kernels = book.kernels(graph);
  result.graph = std::move(graph);
  return result;
}

}  // namespace pl
