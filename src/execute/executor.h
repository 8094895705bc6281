// Executor: runs a Plan in its arena. Pointers are worked out once; a step is a plain loop over
// prepared kernels that allocates nothing.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "backend/backend.h"
#include "plan/plan.h"

namespace pl {

// Two pieces of memory that together are the arena: variables (which outlive a run) and the rest.
struct ArenaView {
  char* persistent = nullptr;
  char* transient = nullptr;
};

using StepTimes = std::vector<int64_t>;  // nanoseconds, as Executor::steps()

class Executor {
 public:
  // One step of the plan, ready to run. Exposed so that tests can watch it from outside.
  struct Bound {
    Kernel* kernel;
    NodeId node;
    std::vector<void*> in, out;
    void* workspace;
  };

  // `kernels` has one entry per node of the graph (null for aliases). All arguments must outlive
  // it.
  Executor(const Graph& graph, const Plan& plan, std::span<const std::unique_ptr<Kernel>> kernels,
           ArenaView arena);

  // Runs all steps. A kernel's failure becomes a BackendError that names layer path and op.
  // `times`, one entry per step, receives the nanoseconds of each; null: no clock is read.
  void step(StepTimes* times = nullptr);

  void* input(size_t i) const { return inputs_[i]; }     // as graph.inputs
  const void* kept(size_t i) const { return kept_[i]; }  // as graph.keep
  std::span<const Bound> steps() const { return steps_; }

  // The largest end of any grant handed to a kernel, counted from the arena's start. Worked out
  // from the grants themselves; the plan's total is not read.
  Bytes used_bytes() const { return used_; }

 private:
  void* grant(ByteOffset at, Bytes bytes);

  const Graph& graph_;
  ArenaView arena_;
  Bytes persistent_, alignment_;
  Bytes used_ = 0;
  std::vector<Bound> steps_;
  std::vector<void*> inputs_, kept_;
};

}  // namespace pl
