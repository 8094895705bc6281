// Prepared: one signature (training at a batch size, evaluation, ...) with its validated plan and
// its kernels. The arena and the run come later.
#pragma once

#include "execute/kernel_book.h"
#include "plan/passes.h"
#include "plan/plan.h"

namespace pl {

struct Prepared {
  Graph graph;
  GraphFacts facts;
  Plan plan;
  KernelSet kernels;  // empty when nothing will run
  int64_t split = 1;  // parts that the step is worked off in
  int64_t bands = 0;  // of each sample; 0: parts are whole samples
};

// Passes, facts, plan, validation, kernels. `layout` covers every variable of the graph.
Prepared prepare_graph(Graph graph, Backend& backend, const VariableLayout& layout,
                       const PassOptions& options = {}, const Decision& decision = {});

}  // namespace pl
