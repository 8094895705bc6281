#include "execute/kernel_book.h"

#include <algorithm>
#include <cmath>
#include <thread>

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

// The host's kernels take addresses as they come.
KernelBook::Slices KernelBook::slices_of(const Graph& graph, const Loop& loop) const {
  return backend_.on_host() ? Slices{} : alignments_of(graph, loop);
}

KernelBook::Asked KernelBook::ask(const Graph& graph, size_t n, const Slices& slices) const {
  const Node& node = graph.nodes[n];
  Asked asked{graph, node, nullptr, call_text(graph, node)};
  if (slices.empty() || (slices[n].in.empty() && slices[n].out.empty())) return asked;
  asked.slices = &slices[n];
  asked.name += "@";
  for (const auto* list : {&slices[n].in, &slices[n].out})
    for (Bytes bytes : *list)
      asked.name += bytes < kFullAlignment ? std::to_string(bytes) + "," : ",";
  return asked;
}

// Preparing for a device may take a library's search: there a kernel stays for the run.
std::shared_ptr<Kernel> KernelBook::make(const Asked& asked) {
  const CallMetas metas = metas_of(asked.graph, asked.node);
  const PrepareCall call{backend_, metas.in, metas.out, asked.node.attrs, asked.slices};
  const Op& op = get_op(asked.node.op);
  if (backend_.on_host()) {
    trim_code_pages(kCodePagesKept);
    return prepare(op, call);
  }
  std::shared_ptr<Kernel>& kept = kept_[asked.name];
  if (!kept && preparing_) kept = preparing_->take(asked.name);
  if (!kept) kept = prepare(op, call);
  return kept;
}

void KernelBook::list_ahead(const Graph& graph, const Slices& slices, bool known_too,
                            std::set<std::string>& names,
                            std::vector<Preparing::Call>& list) const {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!runs(node)) continue;
    Asked asked = ask(graph, n, slices);
    if (kept_.contains(asked.name) || (!known_too && known_.contains(asked.name))) continue;
    if (!names.insert(asked.name).second) continue;
    CallMetas metas = metas_of(graph, node);
    list.push_back({.name = std::move(asked.name),
                    .op = &get_op(node.op),
                    .in = std::move(metas.in),
                    .out = std::move(metas.out),
                    .attrs = node.attrs,
                    .slices = {}});
    if (asked.slices) list.back().slices = *asked.slices;
  }
  for (const Loop& loop : graph.loops)
    list_ahead(loop.body, slices_of(graph, loop), known_too, names, list);
}

void KernelBook::finish_preparing() {
  if (!preparing_) return;
  for (auto& [name, kernel] : preparing_->take_all()) kept_[name] = std::move(kernel);
  preparing_.reset();
}

// A library takes up to a tenth of a second for each of some calls, on one core.
void KernelBook::prepare_ahead(std::span<const Graph* const> graphs, bool known_too) {
  const DeviceWork* device = device_work(backend_);
  if (!device || only_known_) return;
  std::set<std::string> names;
  std::vector<Preparing::Call> list;
  for (const Graph* graph : graphs) list_ahead(*graph, {}, known_too, names, list);
  const size_t threads = std::min<size_t>(
      {device->preparing_threads(), std::thread::hardware_concurrency(), list.size()});
  finish_preparing();
  if (threads > 1) preparing_ = std::make_unique<Preparing>(backend_, std::move(list), threads);
}

// What a device was measured at is what the search looks at too: rates of a typical GPU would have
// it compute again what is dear there.
void KernelBook::look_up(const Asked& asked, Call& call) {
  const Op& op = get_op(asked.node.op);
  if (timer_ && !costs_.knows(call.key)) {
    const CallMetas metas = metas_of(asked.graph, asked.node);
    const std::shared_ptr<Kernel> kernel = make(asked);
    // As the file has it: a run that reads it plans with the same numbers.
    if (const auto ms = timer_->ms(op, *kernel, metas.in, metas.out))
      learned_ |= costs_.learn(call.key, op, call.cost, std::round(*ms * kPsPerMs) / kPsPerMs);
  }
  call.facts.ms = costs_.ms(call.key, op, call.cost);
  if (!backend_.on_host() && costs_.size() > 0) call.facts.nominal_ms = call.facts.ms;
}

KernelBook::Timing::Timing(KernelBook& book, Bytes room) : book_(book) {
  if (book.times_calls())
    book.timer_ = std::make_unique<CallTimer>(book.backend_, *device_work(book.backend_), room);
}

KernelBook::Timing::~Timing() {
  book_.timer_.reset();
  if (!book_.learned_) return;
  book_.learned_ = false;
  try {
    book_.costs_.save();
  } catch (const Error&) {
    // A cache that cannot be written costs the next run a second, and nothing else.
  }
}

void KernelBook::time_ready(const Graph& graph, const Slices& slices, bool sharing) {
  if (!timer_) return;
  const DeviceWork& device = *device_work(backend_);
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!runs(graph.nodes[n])) continue;
    const Asked asked = ask(graph, n, slices);
    if (preparing_)
      if (std::shared_ptr<Kernel> made = preparing_->take_ready(asked.name))
        kept_[asked.name] = made;
    const auto kernel = kept_.find(asked.name);
    if (kernel == kept_.end() || !kernel->second || device.shares(*kernel->second) != sharing)
      continue;
    const int id = find(asked);
    look_up(asked, calls_[static_cast<size_t>(id)]);
  }
  for (const Loop& loop : graph.loops) time_ready(loop.body, slices_of(graph, loop), sharing);
}

bool KernelBook::timed(const Graph& graph, const Slices& slices) const {
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    const Node& node = graph.nodes[n];
    if (!runs(node)) continue;
    const std::string name = ask(graph, n, slices).name;
    CallKey key;
    if (const auto at = ids_.find(name); at != ids_.end())
      key = call(at->second).key;
    else if (const auto noted = known_.find(name); noted != known_.end())
      key = call_key(graph, node, noted->second.key, backend_.threads());
    else
      return false;
    if (!costs_.knows(key)) return false;
  }
  return std::all_of(graph.loops.begin(), graph.loops.end(),
                     [&](const Loop& loop) { return timed(loop.body, slices_of(graph, loop)); });
}

int KernelBook::find(const Asked& asked) {
  const auto& [graph, node, slices, name] = asked;
  if (auto at = ids_.find(name); at != ids_.end()) return at->second;
  const Op& op = get_op(node.op);
  const CallMetas metas = metas_of(graph, node);
  Call call{.op = node.op, .cost = op.cost(metas.in, metas.out, node.attrs)};
  if (const auto known = known_.find(name); known != known_.end()) {
    call.facts.workspace = known->second.workspace;
    call.facts.key = known->second.key;
  } else {
    if (only_known_)
      throw UserError("[calls] " + node.op + ": expected a call of the file, received " + name +
                      "; write the file anew where the device is");
    asked_ = true;
    const std::shared_ptr<Kernel> kernel = make(asked);
    call.library = kernel->library;
    call.footprint = kernel->footprint;
    call.transient = kernel->transient;
    call.facts.workspace = kernel->workspace_bytes;
    call.facts.key = kernel->key;
  }
  call.key = call_key(graph, node, call.facts.key, backend_.threads());
  call.facts.nominal_ms = nominal_ms(op, call.cost, backend_);
  if (const auto known = known_.find(name); known != known_.end() && only_known_)
    costs_.learn(call.key, op, call.cost, known->second.ms);
  look_up(asked, call);
  const int id = static_cast<int>(calls_.size());
  calls_.push_back(std::move(call));
  ids_.emplace(name, id);
  return id;
}

std::map<std::string, KernelBook::Known> KernelBook::known_calls() const {
  std::map<std::string, Known> known = known_;
  for (const auto& [name, id] : ids_) {
    const Facts& facts = call(id).facts;
    known[name] = {facts.workspace, facts.key, facts.ms};
  }
  return known;
}

GraphFacts KernelBook::facts(const Graph& graph, const Slices& slices, KernelBill* bill) {
  GraphFacts facts;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (bill) ++bill->nodes;
    if (!runs(graph.nodes[n])) {
      facts.nodes.emplace_back();
      continue;
    }
    const Asked asked = ask(graph, n, slices);
    const int id = find(asked);
    if (timer_) look_up(asked, calls_[static_cast<size_t>(id)]);
    if (bill) bill->calls.insert(id);
    facts.nodes.push_back(calls_[static_cast<size_t>(id)].facts);
  }
  for (const Loop& loop : graph.loops)
    facts.loops.push_back(this->facts(loop.body, slices_of(graph, loop), bill));
  facts.device = backend_.numerics();
  return facts;
}

KernelSet KernelBook::kernels(const Graph& graph, const Slices& slices) {
  KernelSet set;
  for (size_t n = 0; n < graph.nodes.size(); ++n) {
    if (!runs(graph.nodes[n])) {
      set.nodes.push_back(nullptr);
      continue;
    }
    const Asked asked = ask(graph, n, slices);
    const std::string& name = asked.name;
    std::weak_ptr<Kernel>& living = living_[name];
    std::shared_ptr<Kernel> kernel = living.lock();
    if (!kernel) {
      kernel = make(asked);
      living = kernel;
      // The plan was made with what the first one of its kind asked for.
      if (const auto at = ids_.find(name); at != ids_.end()) {
        const Facts& facts = calls_[static_cast<size_t>(at->second)].facts;
        const bool same = kernel->workspace_bytes == facts.workspace && kernel->key == facts.key;
        if (!same && known_.contains(name)) throw StaleCalls();
        check(same, "a kernel is not the one that was planned with");
      }
    }
    set.nodes.push_back(std::move(kernel));
  }
  for (const Loop& loop : graph.loops)
    set.loops.push_back(kernels(loop.body, slices_of(graph, loop)));
  return set;
}

}  // namespace pl
