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

// Preparing for a device may take a library's search: there a kernel stays for the run.
std::shared_ptr<Kernel> KernelBook::make(const Op& op, const Metas& in, const Metas& out,
                                         const Attrs& attrs, const std::string& name) {
  if (backend_.on_host()) {
    trim_code_pages(kCodePagesKept);
    return prepare(op, {backend_, in, out, attrs});
  }
  std::shared_ptr<Kernel>& kept = kept_[name];
  if (!kept && preparing_) kept = preparing_->take(name);
  if (!kept) kept = prepare(op, {backend_, in, out, attrs});
  return kept;
}

void KernelBook::list_ahead(const Graph& graph, bool known_too, std::set<std::string>& names,
                            std::vector<Preparing::Call>& list) const {
  for (const Node& node : graph.nodes) {
    if (!runs(node)) continue;
    std::string name = call_text(graph, node);
    if (kept_.contains(name) || (!known_too && known_.contains(name))) continue;
    if (!names.insert(name).second) continue;
    CallMetas metas = metas_of(graph, node);
    list.push_back(
        {std::move(name), &get_op(node.op), std::move(metas.in), std::move(metas.out), node.attrs});
  }
  for (const Loop& loop : graph.loops) list_ahead(loop.body, known_too, names, list);
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
  for (const Graph* graph : graphs) list_ahead(*graph, known_too, names, list);
  const size_t threads = std::min<size_t>(
      {device->preparing_threads(), std::thread::hardware_concurrency(), list.size()});
  finish_preparing();
  if (threads > 1) preparing_ = std::make_unique<Preparing>(backend_, std::move(list), threads);
}

// What a device was measured at is what the search looks at too: rates of a typical GPU would have
// it compute again what is dear there.
void KernelBook::look_up(const Graph& graph, const Node& node, const std::string& name,
                         Call& call) {
  const Op& op = get_op(node.op);
  if (timer_ && !costs_.knows(call.key)) {
    const CallMetas metas = metas_of(graph, node);
    const std::shared_ptr<Kernel> kernel = make(op, metas.in, metas.out, node.attrs, name);
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

void KernelBook::time_ready(const Graph& graph, bool sharing) {
  if (!timer_) return;
  const DeviceWork& device = *device_work(backend_);
  for (const Node& node : graph.nodes) {
    if (!runs(node)) continue;
    const std::string name = call_text(graph, node);
    if (preparing_)
      if (std::shared_ptr<Kernel> made = preparing_->take_ready(name)) kept_[name] = made;
    const auto kernel = kept_.find(name);
    if (kernel == kept_.end() || !kernel->second || device.shares(*kernel->second) != sharing)
      continue;
    const int id = find(graph, node, name);
    look_up(graph, node, name, calls_[static_cast<size_t>(id)]);
  }
  for (const Loop& loop : graph.loops) time_ready(loop.body, sharing);
}

bool KernelBook::timed(const Graph& graph) const {
  auto known = [&](const Node& node) {
    if (!runs(node)) return true;
    const std::string name = call_text(graph, node);
    if (const auto at = ids_.find(name); at != ids_.end())
      return costs_.knows(call(at->second).key);
    const auto at = known_.find(name);
    return at != known_.end() &&
           costs_.knows(call_key(graph, node, at->second.key, backend_.threads()));
  };
  return std::all_of(graph.nodes.begin(), graph.nodes.end(), known) &&
         std::all_of(graph.loops.begin(), graph.loops.end(),
                     [&](const Loop& loop) { return timed(loop.body); });
}

int KernelBook::find(const Graph& graph, const Node& node, const std::string& name) {
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
    const std::shared_ptr<Kernel> kernel = make(op, metas.in, metas.out, node.attrs, name);
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
  look_up(graph, node, name, call);
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

GraphFacts KernelBook::facts(const Graph& graph, KernelBill* bill) {
  GraphFacts facts;
  for (const Node& node : graph.nodes) {
    if (bill) ++bill->nodes;
    if (!runs(node)) {
      facts.nodes.emplace_back();
      continue;
    }
    const std::string name = call_text(graph, node);
    const int id = find(graph, node, name);
    if (timer_) look_up(graph, node, name, calls_[static_cast<size_t>(id)]);
    if (bill) bill->calls.insert(id);
    facts.nodes.push_back(calls_[static_cast<size_t>(id)].facts);
  }
  for (const Loop& loop : graph.loops) facts.loops.push_back(this->facts(loop.body, bill));
  facts.device = backend_.numerics();
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
        const bool same = kernel->workspace_bytes == facts.workspace && kernel->key == facts.key;
        if (!same && known_.contains(name)) throw StaleCalls();
        check(same, "a kernel is not the one that was planned with");
      }
    }
    set.nodes.push_back(std::move(kernel));
  }
  for (const Loop& loop : graph.loops) set.loops.push_back(kernels(loop.body));
  return set;
}

}  // namespace pl
