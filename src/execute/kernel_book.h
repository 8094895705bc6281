// KernelBook: what each distinct call of a graph needs, asked of its prepared kernel once. Planning
// looks at many graphs and runs at most one of them, so a kernel is dropped as soon as it has
// answered; `kernels` prepares those of the chosen graph, one for all equal calls.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <vector>

#include "backend/backend.h"
#include "base/error.h"
#include "execute/call_timer.h"
#include "execute/cost_table.h"
#include "execute/preparing.h"
#include "execute/tracks.h"
#include "plan/plan.h"

namespace pl {

// Kernels of a graph and of its loops' bodies; null for aliases and loops.
struct KernelSet {
  std::vector<std::shared_ptr<Kernel>> nodes;
  std::vector<KernelSet> loops;
};

// What the kernels of some graphs hold, each distinct call counted once.
struct KernelBill {
  std::set<int> calls;  // ids in the book
  size_t nodes = 0;
  void add(const KernelBill& other) {
    calls.insert(other.calls.begin(), other.calls.end());
    nodes += other.nodes;
  }
};

// A library answers otherwise than when calls were noted (KernelBook::know): it was replaced.
class StaleCalls : public BackendError {
 public:
  StaleCalls()
      : BackendError(
            "[prepare] expected the kernels that were planned with, received others: a "
            "library was replaced; run again") {}
};

class KernelBook {
 public:
  struct Call {
    Facts facts;
    std::string op;       // its name
    std::string library;  // as Kernel::library
    Bytes footprint = 0, transient = 0;
    CallKey key;
    Cost cost;
  };
  // The costs are a copy, frozen but for what time_calls learns.
  explicit KernelBook(Backend& backend) : KernelBook(backend, CostTable(backend)) {}
  KernelBook(Backend& backend, CostTable costs) : backend_(backend), costs_(std::move(costs)) {}

  Backend& backend() const { return backend_; }
  GraphFacts facts(const Graph& graph, KernelBill* bill = nullptr) {
    return facts(graph, {}, bill);
  }
  KernelSet kernels(const Graph& graph) { return kernels(graph, Slices{}); }
  // On a device: begins to prepare what these graphs call, as far as it is not known, on several
  // threads and in this order; facts() and kernels() wait for what they need of it.
  // `known_too`: also calls whose facts an earlier run found out.
  void prepare_ahead(std::span<const Graph* const> graphs, bool known_too = false);
  void finish_preparing();  // waits for the rest of it

  const Call& call(int id) const { return calls_[static_cast<size_t>(id)]; }

  // On a device, as long as a Timing lives: calls that the costs do not know are timed when facts
  // are asked for. Does nothing where costs are nominal and not kept.
  class Timing {
   public:
    Timing(KernelBook& book, Bytes room);
    ~Timing();
    Timing(const Timing&) = delete;
    Timing& operator=(const Timing&) = delete;

   private:
    KernelBook& book_;
  };
  // Of a Timing, which facts() would see to too: times the calls of the graph that are prepared by
  // now. `sharing`: those that no other can be prepared beside, or all others.
  void time_ready(const Graph& graph, bool sharing) { time_ready(graph, {}, sharing); }
  // Every call of the graph was timed: no later one changes what its facts say.
  bool timed(const Graph& graph) const { return timed(graph, Slices{}); }
  bool times_calls() const { return costs_.kept() && device_work(backend_); }
  const CostTable& costs() const { return costs_; }

  // What planning asks of calls, to plan for a device where it is not (call_file.h).
  struct Known {
    Bytes workspace = 0;
    std::string key;
    double ms = 0;
  };
  std::map<std::string, Known> known_calls() const;  // by name: what know() was told, and more
  // Preparing kernels of many splits takes seconds; what an earlier run found out need not be asked
  // again. `only`: there are no kernels to ask.
  void know(std::map<std::string, Known> calls, bool only) {
    known_ = std::move(calls);
    only_known_ = only;
    asked_ = false;
  }
  bool asked() const { return asked_; }  // about a call that was not known

 private:
  // Per node of a loop's body: what is known of addresses, as alignments_of. Empty: nothing
  // special.
  using Slices = std::vector<Alignments>;
  // A node that runs a kernel. Its name is call_text, and how slices lie where it matters.
  struct Asked {
    const Graph& graph;
    const Node& node;
    const Alignments* slices;
    std::string name;
  };
  Asked ask(const Graph& graph, size_t n, const Slices& slices) const;
  Slices slices_of(const Graph& graph, const Loop& loop) const;
  GraphFacts facts(const Graph& graph, const Slices& slices, KernelBill* bill);
  KernelSet kernels(const Graph& graph, const Slices& slices);
  void time_ready(const Graph& graph, const Slices& slices, bool sharing);
  bool timed(const Graph& graph, const Slices& slices) const;
  void list_ahead(const Graph& graph, const Slices& slices, bool known_too,
                  std::set<std::string>& names, std::vector<Preparing::Call>& list) const;
  int find(const Asked& asked);
  void look_up(const Asked& asked, Call& call);
  std::shared_ptr<Kernel> make(const Asked& asked);

  Backend& backend_;
  CostTable costs_;
  std::map<std::string, int> ids_;  // by name
  std::vector<Call> calls_;
  std::map<std::string, std::weak_ptr<Kernel>> living_;
  std::map<std::string, std::shared_ptr<Kernel>> kept_;  // of devices alone
  std::unique_ptr<Preparing> preparing_;                 // of what will be kept
  std::map<std::string, Known> known_;
  bool only_known_ = false, asked_ = false;
  std::unique_ptr<CallTimer> timer_;
  bool learned_ = false;
};

}  // namespace pl
