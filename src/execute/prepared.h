// Prepared: one signature (training at a batch size, evaluation, ...) from traced graph to
// validated plan with its kernels. The arena and the run come later.
#pragma once

#include <memory>
#include <vector>

#include "backend/backend.h"
#include "plan/passes.h"
#include "plan/plan.h"

namespace pl {

struct Prepared {
  Graph graph;
  std::vector<std::unique_ptr<Kernel>> kernels;  // per node; null for aliases
  std::vector<Facts> facts;                      // per node
  Plan plan;
  Bytes transient_bytes = 0;  // the most a library takes from the heap within one kernel
  Bytes kernel_bytes = 0;     // bound of what the prepared kernels hold themselves
};

// Passes, kernels, plan, validation. `layout` covers every variable of the graph.
Prepared prepare_graph(Graph graph, Backend& backend, const VariableLayout& layout,
                       const PassOptions& options = {});

}  // namespace pl
