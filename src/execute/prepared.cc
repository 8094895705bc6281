#include "execute/prepared.h"

#include "plan/device_plan.h"

namespace pl {

Prepared prepare_graph(Graph graph, Backend& backend, const VariableLayout& layout,
                       const PassOptions& options, const Decision& decision) {
  Prepared result;
  run_passes(graph, options);
  KernelBook book(backend);
  result.facts = book.facts(graph);
  const auto make = backend.on_host() ? make_plan : make_device_plan;
  result.plan = make(graph, result.facts, layout, backend.alignment(), decision);
  validate(graph, result.plan, result.facts);
  result.kernels = book.kernels(graph);
  result.graph = std::move(graph);
  return result;
}

}  // namespace pl
