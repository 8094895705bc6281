// What a plan asks of memory, whether a budget allows it, and what would make it fit. Text and JSON
// for people and programs are report/'s business; the error before step 1 is made here.
#pragma once

#include <concepts>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "tensor/dtype.h"
#include "train/plan_figures.h"

namespace pl {

// The `memory` of fit(): "4GiB", "500MiB", "2GB", "max" (what the system can give), or a number of
// bytes; by default no limit but the system's own.
class Budget {
 public:
  Budget() = default;
  Budget(const char* text) : Budget(std::string(text ? text : "")) {}
  Budget(const std::string& text);  // throws UserError
  Budget(std::integral auto bytes) : Budget(std::to_string(bytes)) {}
  const std::optional<Bytes>& bytes() const { return bytes_; }
  std::optional<Bytes> bytes(const Backend* backend) const;  // "max" is what that one can give

 private:
  std::optional<Bytes> bytes_;
  bool max_ = false;
};

struct Remedy {
  std::string change;  // "--batch 16"
  Bytes process_bytes = 0;
  double step_ms = 0;
};

// How messages name the options: the command line's way, or the C++ face's.
struct OptionWords {
  const char* batch = "--batch ";
  const char* memory = "--memory ";
  const char* split = "--split auto";
  const char* recompute = "--recompute auto";
};

struct CurvePoint {
  int64_t batch = 0;
  Bytes process_bytes = 0;
  double step_ms = 0;
};

struct PlanReport {
  std::string model, optimizer, device = "cpu";
  bool deterministic = true;
  Policy dtype;
  int64_t batch = 0;
  int threads = 1;
  std::optional<Bytes> budget;
  bool fits = true;
  Bytes process = 0, fixed = 0, arena = 0, bound = 0, persistent = 0, floor = 0;
  bool on_device = false;  // whose memory `process` is then
  DeviceBill bill;         // what `fixed` is the sum of, there, with `ahead`
  HostBill host_bill;      // of the host's memory, there; not of `process`
  Bytes host = 0;          // of the arena, not of `process`: optimiser state in pinned host memory
  Bytes away = 0;          // on a device: pinned host memory for values between two uses
  int64_t stays = 0;       // of such values, in one step
  Bytes sent = 0;          // copied out, and back, in one step
  Bytes ahead = 0;         // of `fixed`, on a device: inputs of the next step
  int64_t checkpoint_every = 0;  // steps; 0: not asked for
  Bytes snapshot = 0;            // a copy that checkpoints are written from; 0: none
  Bytes pipeline = 0;            // what the data hold beyond the batch that a step reads
  Bytes callbacks = 0;           // what callbacks hold, such as those that write checkpoints
                                 // All of `fixed`; for a device, of the host.
  Categories categories{};
  double step_ms = 0;
  SessionPoint unlimited;
  int64_t split = 1, bands = 0;
  Recomputed recomputed;
  std::vector<std::string> remat;  // what was checkpointed by hand, as it was asked for
  Bytes minimum = 0;               // least process bytes found
  bool complete = false;           // every plan worth having was looked for
  std::vector<SessionPoint> frontier;
  std::optional<int64_t> max_batch;
  size_t graph_nodes = 0, plan_steps = 0;
  double plan_ms = 0;
  std::string numerics, kernels;  // as Plan has them
  std::string costs;              // hash of the cost table that predicted times
  std::string split_refusal;      // why the batch cannot be split, or empty
  std::string band_refusal;       // why its images cannot be worked off in bands, or empty
  std::vector<Remedy> remedies;
  std::vector<CurvePoint> curve;
  bool with_frontier = false;       // shown in full
  std::vector<LiveValue> culprits;  // the largest values at the fullest step
  OptionWords words;
};

// "deterministic" or "not deterministic": what all figures of a device's step are to be read with.
const char* determinism_of(const PlanReport& report);

PlanReport describe(const SessionPlan& plan);  // the figures of the plan itself

// Fills in whether `report.process` is within `report.budget` and within `system` (what this
// machine can give; absent where nothing will be reserved); when it is not, the remedies, the
// largest batch first. `want_max_batch`: searches it also when the plan fits the budget.
void judge(PlanReport& report, const PlanFor& plan, const PlanOptions& options, int64_t most_batch,
           bool want_max_batch, std::optional<Bytes> system = std::nullopt);

// Batch sizes against bytes and time, doubling up to four times the report's batch; within the
// budget where there is one.
std::vector<CurvePoint> batch_curve(const PlanReport& report, const PlanFor& plan,
                                    const PlanOptions& options, int64_t most_batch);

// What this process may hold in all: what it holds now and what the system can still give; of the
// backend's memory, where there is one.
Bytes system_limit(const Backend* backend = nullptr);
// The most that the process held of the backend's memory so far.
Bytes measured_peak(const Backend* backend = nullptr);

// The part of a "does not fit" message behind its first line: minimum, bound, culprits, remedies.
std::string explain(const PlanReport& report);

// Throws DoesNotFit when the budget, or the system, cannot give what the plan needs. Called before
// reserving. `held`: bytes of the arena that exist already.
void require_room(const PlanReport& report, Bytes held = 0, const Backend* backend = nullptr);

// What a reservation says that failed all the same, with what the plan knows.
DoesNotFit refused(const DoesNotFit& error, const PlanReport& report, const Backend* backend);

// The bound on what is not in the arena was computed; here the system's own figure is held against
// it, with all memory reserved and no step run. Throws DoesNotFit when the process is above the
// budget; answers a warning, or "", when it is only above the plan.
std::string check_resident(const PlanReport& report, const Backend* backend = nullptr);

}  // namespace pl
