#include "execute/prepared.h"

#include <algorithm>

#include "backend/cpu/code_pages.h"
#include "base/error.h"

namespace pl {
namespace {

// Rates of one core for a first prediction of time. Not measured on the machine: a figure for
// ranking, replaced once the engine calibrates itself.
constexpr double kFlopsPerCore = 80e9;
constexpr double kBytesPerSecond = 20e9;
constexpr double kSecondsPerCall = 2e-6;

// Preparing a kernel reads code that training never does; beyond this much it is given back.
constexpr Bytes kCodePagesKept = 14 * kMiB;

double predicted_ms(const Cost& cost, int threads) {
  return 1e3 * (std::max(cost.flops / (kFlopsPerCore * threads), cost.bytes / kBytesPerSecond) +
                kSecondsPerCall);
}

}  // namespace

Prepared prepare_graph(Graph graph, Backend& backend, const VariableLayout& layout,
                       const PassOptions& options) {
  Prepared result;
  run_passes(graph, options);
  for (const Node& node : graph.nodes) {
    const Op& op = get_op(node.op);
    Facts facts;
    std::unique_ptr<Kernel> kernel;
    if (op.alias.empty()) {
      Metas in, out;
      for (ValueId id : node.in) in.push_back(graph.values[static_cast<size_t>(id)].meta);
      for (ValueId id : node.out) out.push_back(graph.values[static_cast<size_t>(id)].meta);
      trim_code_pages(kCodePagesKept);
      kernel = prepare(op, {backend, in, out, node.attrs});
      facts = {kernel->workspace_bytes, kernel->key,
               predicted_ms(op.cost(in, out, node.attrs), backend.threads())};
      result.kernel_bytes += kernel->footprint;
      result.transient_bytes = std::max(result.transient_bytes, kernel->transient);
    }
    result.facts.push_back(std::move(facts));
    result.kernels.push_back(std::move(kernel));
  }
  result.plan = make_plan(graph, result.facts, layout, backend.alignment());
  validate(graph, result.plan, result.facts);
  result.graph = std::move(graph);
  return result;
}

}  // namespace pl
