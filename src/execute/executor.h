// Executor: runs a Plan in its arena. Pointers are worked out once; a step is a plain loop over
// prepared kernels that allocates nothing. On a device that records work the loop runs once more,
// to be recorded, and a step is a launch or two.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "backend/device_work.h"
#include "backend/several_kernel.h"
#include "execute/kernel_book.h"
#include "plan/plan.h"

namespace pl {

// Two pieces of memory that together are the arena: variables (which outlive a run) and the rest.
struct ArenaView {
  char* persistent = nullptr;
  char* transient = nullptr;
  // As the graph's variables: where each lies, instead of at its offset from `persistent`.
  std::vector<void*> variables = {};
  // Variables from this offset on lie apart: in host memory that a device's kernels reach.
  char* host = nullptr;
  ByteOffset host_at = 0;
  char* away = nullptr;  // pinned host memory for values that leave between two steps
};

// Nanoseconds, as Executor::steps(); then those of the loops' bodies, each the mean over its trips.
using StepTimes = std::vector<int64_t>;

// Ranges of bytes, of which those that lie side by side are one.
std::vector<std::pair<void*, Bytes>> joined_ranges(std::vector<std::pair<void*, Bytes>> ranges,
                                                   Bytes alignment);

class Executor {
 public:
  // One step of the plan, ready to run. Exposed so that tests can watch it from outside.
  struct Bound {
    Kernel* kernel;
    NodeId node;
    std::vector<void*> in, out;
    void* workspace;
    int loop = -1;  // index into loops() instead of a kernel
    // Steps that a device runs as one launch, with the last of them: this one and those before it
    // that wait for it. Empty: it runs alone, or waits.
    std::vector<size_t> together = {};
    bool waits = false;  // it runs with one behind it
    // Copies of values that leave and come back, around the step: what it waits for or begins.
    struct Copy {
      enum class What : uint8_t { sends, waits_away, brings, waits_back } what;
      size_t stay;
      void* arena;
      void* host;
      Bytes bytes;
    };
    std::vector<Copy> before, behind;
  };
  // The body of a loop, bound for its first trip.
  struct BoundLoop {
    // An operand that lies elsewhere in every trip.
    struct Moving {
      size_t step;
      bool out;
      size_t operand;
      char* first;
      size_t track;
    };
    const Graph* body;
    int64_t trips, samples, bands;
    std::vector<Bound> steps;
    std::vector<Moving> moving;
    std::vector<bool> moves;                    // per step: one of its operands does
    std::vector<std::vector<Bytes>> tracks;     // per trip: bytes from where the first one has it
    std::vector<std::pair<void*, Bytes>> sums;  // zero before the first trip
    std::vector<std::pair<const void*, void*>> params;  // the step's parameters, and the trip's
    Backend* device = nullptr;                          // whose memory it is; null: the host's
    // Writes the trip's parameters, and its pointers into `bound`, a copy of the steps.
    void prepare(int64_t trip, std::vector<Bound>& bound) const;
    void write_params(int64_t trip) const;
    void move(int64_t trip, std::vector<Bound>& bound) const;
  };

  // All arguments must outlive it. `device`: whose memory the arena is; null: the host's.
  Executor(const Graph& graph, const Plan& plan, const KernelSet& kernels, ArenaView arena,
           Backend* device = nullptr);

  // Runs all steps once and waits for each, so that whatever a device loads on first use is loaded,
  // and what fails is named. What the arena holds then is of no use.
  void warm_up();
  // From now on steps are launched as they were recorded here, unless they are timed or watched.
  bool record();  // false: it does not

  // Runs all steps. A kernel's failure becomes a BackendError that names layer path and op; one
  // that a device tells of later, those between which it happened. `times`, timed_steps() entries,
  // receives the nanoseconds of each; null: no clock is read.
  void step(StepTimes* times = nullptr);
  // The same, but ends behind the step that writes the first kept value, a scalar (the loss), when
  // that is not finite. False: it ended there, and no weight was written.
  bool step_if_finite(StepTimes* times = nullptr);
  // Runs the steps up to that one, and shows each to `watch` when it has run (with the graph that
  // it is of: a loop's body, or the whole), until that answers false.
  using Watch = std::function<bool(const Graph& graph, const Bound& step)>;
  void watch_forward(const Watch& watch);

  // Of a device's fault that its user hears of when he waits for a step: the same with the ops that
  // were under way. `exact`: there is one alone.
  BackendError located(const DeviceFault& fault, bool exact = false) const;
  void waited() { begun_ = {}; }    // all that was begun is done
  void share() { shares_ = true; }  // the device with others, whose work may be under way too

  void* input(size_t i) const { return inputs_[i]; }     // as graph.inputs
  const void* kept(size_t i) const { return kept_[i]; }  // as graph.keep
  std::span<const Bound> steps() const { return steps_; }
  size_t timed_steps() const;
  std::span<const BoundLoop> loops() const { return loops_; }

  // The largest end of any grant handed to a kernel, counted from the arena's start. Worked out
  // from the grants themselves; the plan's total is not read.
  Bytes used_bytes() const { return used_; }
  Bytes used_away_bytes() const { return used_away_; }  // the same of host memory for values

 private:
  void* grant(ByteOffset at, Bytes bytes);
  void bind_stays(const Graph& graph, const Plan& plan, std::vector<Bound>& steps);
  void run_copies(const std::vector<Bound::Copy>& copies);
  void* variable_place(ByteOffset at) const;
  Bound bind(const Graph& graph, const Step& step, const KernelSet& kernels);
  BoundLoop bind_loop(const Loop& loop, const Plan& plan, const KernelSet& kernels);
  void run(const Graph& graph, std::span<const Bound> steps, int64_t* times, size_t first = 0);
  // `apart`: steps whose operands move from trip to trip; empty: none. Those before step `cut` do
  // not wait for those from it on.
  void join_steps(const Graph& graph, std::vector<Bound>& steps, const std::vector<bool>& apart,
                  size_t cut);
  void run_together(std::span<const Bound> steps, const std::vector<size_t>& together);
  size_t find_forward() const;
  void begin_times(StepTimes* times) const;
  void end_times(StepTimes* times) const;
  void run_loop(BoundLoop& loop, int64_t* times);
  void zero_sums(const BoundLoop& loop);
  void run_forward(int64_t* times);
  void run_rest(int64_t* times);
  bool finite_loss();

  const Graph& graph_;
  ArenaView arena_;
  std::vector<std::pair<ByteOffset, char*>> places_;  // of variables that lie apart, by offset
  Bytes persistent_, alignment_;
  Bytes used_ = 0, used_away_ = 0;
  std::vector<Bound> steps_;
  std::vector<BoundLoop> loops_;  // as in the graph
  std::vector<void*> inputs_, kept_;
  std::vector<KernelCall> calls_;  // room for those that run together
  size_t forward_ = 0;          // steps up to the loss; 0: a weight is written before it is known
  Backend* device_ = nullptr;   // null: the host's memory
  DeviceWork* work_ = nullptr;  // of the device, where values leave
  size_t stays_ = 0;            // of all graphs
  std::unique_ptr<DeviceMemory> staging_;  // of the loss, where the memory is not the host's
  // What a step launches, where it is recorded: up to the loss, and the rest. `first` and `last`:
  // the nodes of it; null where these say what they run themselves, or nothing.
  struct Launched {
    std::function<void()> run;
    const Node* first = nullptr;
    const Node* last = nullptr;
  };
  using Launches = std::vector<Launched>;
  Launches forward_launches_, rest_launches_;
  Launches record_steps(size_t first, size_t last);
  void record_loop(BoundLoop& loop, Launches& launches);
  void launch(const Launches& launches);
  void wait();
  // On a device: what was asked of it since somebody waited.
  struct Begun {
    const Node* first = nullptr;
    const Node* last = nullptr;
  } begun_;
  bool shares_ = false;
  void begin(const Node& first, const Node& last) {
    if (!begun_.first) begun_.first = &first;
    begun_.last = &last;
  }
  bool one_by_one_ = false;  // PLIMSOLL_SYNC: it waits behind each step
  bool waits_ = false;       // the same, to warm up
  const Watch* watch_ = nullptr;
};

}  // namespace pl
