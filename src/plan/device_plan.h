// Plans of a device, which runs several updates as one launch where nothing takes their operands'
// bytes meanwhile (execute/executor_together.cc).
#pragma once

#include "plan/plan.h"

namespace pl {

// make_plan(), with the same steps, the same arena and other addresses: what updates read stays
// where it is until the next ones follow, as far as the arena has room for it.
Plan make_device_plan(const Graph& graph, const GraphFacts& facts, const VariableLayout& layout,
                      Bytes alignment, const Decision& decision = {});

}  // namespace pl
