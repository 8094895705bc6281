// What reports tell of a plan: figures alone, so that a program that reads them need not know
// sessions and executors.
#pragma once

#include <cstdint>
#include <functional>
#include <vector>

#include "base/bytes.h"
#include "plan/plan.h"
#include "train/device_footprint.h"

namespace pl {

struct PlanOptions;
struct SessionPlan;

// One way to run all signatures in one arena.
struct SessionPoint {
  std::vector<size_t> entries;  // per signature, of its pool
  Bytes arena = 0, fixed = 0, idle = 0;
  Bytes host_bytes = 0;  // of the arena: in host memory that a device's kernels reach
  Bytes away = 0;        // of host memory, for values that leave between two uses
  DeviceBill device;     // what `fixed` is the sum of, on one
  double ms = 0;         // of the first signature
  int64_t split = 1, bands = 0;
  Recomputed recomputed;
  Bytes process() const { return arena + fixed - host_bytes; }
};

// What a plan for a device takes of the host's memory.
struct HostBill {
  Bytes state = 0, activations = 0, staging = 0;  // pinned; staging: for inputs and results
  Bytes copy = 0;      // of the variables: while they are made, while steps run once before the
                       // first, and when somebody reads them
  Bytes snapshot = 0;  // that checkpoints are written from
  Bytes pipeline = 0;  // what the data hold beyond the batch that a step reads
  Bytes callbacks = 0;
  Bytes pinned() const { return state + activations + staging; }
  Bytes sum() const { return pinned() + copy + snapshot + pipeline + callbacks; }
};
// Plans the run at another batch size, or under other options.
using PlanFor = std::function<SessionPlan(int64_t batch, const PlanOptions& options)>;

}  // namespace pl
