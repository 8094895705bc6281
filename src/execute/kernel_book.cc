#include "execute/kernel_book.h"

#include "backend/cpu/code_pages.h"
#include "base/error.h"

namespace pl {
namespace {

// Preparing a kernel reads code that training never does; beyond this much it is given back.
constexpr Bytes kCodePagesKept = 14 * kMiB;

struct CallMetas {
  Metas in, out;
};

CallMetas metas_of(const Graph& graph, const Node& node) {
  CallMetas metas;
  for (ValueId id : node.in) metas.in.push_back(graph.values[index(id)].meta);
  for (ValueId id : node.out) metas.out.push_back(graph.values[index(id)].meta);
  return metas;
}

bool runs(const Node& node) { return node.loop < 0 && get_op(node.op).alias.empty(); }

}  // namespace

// Preparing for a device may take a library's search: there a kernel stays for the run.
std::shared_ptr<Kernel> KernelBook::make(const Op& op, const Metas& in, const Metas& out,
                                         const Attrs& attrs, const std::string& name) {
  if (backend_.on_host()) {
    trim_code_pages(kCodePagesKept);
    return prepare(op, {backend_, in, out, attrs});
  }
  std::shared_ptr<Kernel>& kept = kept_[name];
  if (!kept) kept = prepare(op, {backend_, in, out, attrs});
  return kept;
}

int KernelBook::find(const Graph& graph, const Node& node) {
  std::string name = call_text(graph, node);
  if (auto at = ids_.find(name); at != ids_.end()) return at->second;
  const Op& op = get_op(node.op);
  const CallMetas metas = metas_of(graph, node);
  const std::shared_ptr<Kernel> kernel = make(op, metas.in, metas.out, node.attrs, name);
  const Cost cost = op.cost(metas.in, metas.out, node.attrs);
  Call call{.op = node.op,
            .library = kernel->library,
            .footprint = kernel->footprint,
            .transient = kernel->transient};
  call.facts.workspace = kernel->workspace_bytes;
  call.facts.key = kernel->key;
  call.facts.nominal_ms = nominal_ms(op, cost, backend_);
  call.facts.ms = costs_.ms(call_key(graph, node, kernel->key, backend_.threads()), op, cost);
  const int id = static_cast<int>(calls_.size());
  calls_.push_back(std::move(call));
  ids_.emplace(std::move(name), id);
  return id;
}

GraphFacts KernelBook::facts(const Graph& graph, KernelBill* bill) {
  GraphFacts facts;
  for (const Node& node : graph.nodes) {
    if (bill) ++bill->nodes;
    if (!runs(node)) {
      facts.nodes.emplace_back();
      continue;
    }
    const int id = find(graph, node);
    if (bill) bill->calls.insert(id);
    facts.nodes.push_back(calls_[static_cast<size_t>(id)].facts);
  }
  for (const Loop& loop : graph.loops) facts.loops.push_back(this->facts(loop.body, bill));
  return facts;
}

KernelSet KernelBook::kernels(const Graph& graph) {
  KernelSet set;
  for (const Node& node : graph.nodes) {
    if (!runs(node)) {
      set.nodes.push_back(nullptr);
      continue;
    }
    const std::string name = call_text(graph, node);
    std::weak_ptr<Kernel>& living = living_[name];
    std::shared_ptr<Kernel> kernel = living.lock();
    if (!kernel) {
      const CallMetas metas = metas_of(graph, node);
      kernel = make(get_op(node.op), metas.in, metas.out, node.attrs, name);
      living = kernel;
      // The plan was made with what the first one of its kind asked for.
      if (const auto at = ids_.find(name); at != ids_.end()) {
        const Facts& facts = calls_[static_cast<size_t>(at->second)].facts;
        check(kernel->workspace_bytes == facts.workspace && kernel->key == facts.key,
              "a kernel is not the one that was planned with");
      }
    }
    set.nodes.push_back(std::move(kernel));
  }
  for (const Loop& loop : graph.loops) set.loops.push_back(kernels(loop.body));
  return set;
}

}  // namespace pl
