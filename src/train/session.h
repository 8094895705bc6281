// Session: a network with its optimiser, planned for every signature that a run will need, then run
// in one arena. plan_session is all that `plimsoll plan` does; Session adds memory and motion.
#pragma once

#include <algorithm>
#include <future>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "execute/executor.h"
#include "execute/pool.h"
#include "op/step_params.h"
#include "train/plan_figures.h"
#include "train/step_trace.h"
#include "train/variables.h"

namespace pl {

// What planning remembers from one question to the next: facts of kernels, results of searches.
struct PlanMemory {
  // Without costs: nominal ones.
  explicit PlanMemory(Backend& backend) : PlanMemory(backend, CostTable(backend)) {}
  PlanMemory(Backend& backend, const CostTable& costs);
  KernelBook book;
  SearchMemo memo;
  std::optional<Bytes> device_held;  // before anything was reserved there
  Bytes device_loaded = 0;           // since then, by calls that were timed
  Bytes device_variables = 0;        // but for these, which the plan has
};

struct EagerSetup;
class DeviceLink;
class EagerSteps;

struct PlanOptions {
  std::optional<Bytes> budget;  // of the process
  Bytes host = 0;               // on a device: bytes of state and of values that the host may hold
  // Variables that exist and are not trained have so many of their bytes there, and stay so.
  std::optional<Bytes> pinned;
  Switches switches;
  bool all = false;  // look for every plan worth having even if the unlimited one fits
  bool finest =
      false;  // of the splits only a few fine ones: quick, for questions about many batches
  std::shared_ptr<PlanMemory> memory;  // made when there is none
};

struct SessionPlan {
  std::vector<Signature> signatures;
  std::vector<Prepared> prepared;  // as signatures; the first is the one that reports describe
  VariableLayout layout;
  Bytes arena = 0;    // the largest of the plans
  Bytes fixed = 0;    // bound of everything else the process holds
  Bytes idle = 0;     // of it: held by nothing while it trains, so that a snapshot may lie there
  DeviceBill device;  // what `fixed` is the sum of, on one
  // For writing checkpoints beside training; granted where the chosen plan leaves room for it, so
  // that it never makes a step slower. Not in `frontier`, whose plans can do without.
  Bytes snapshot = 0;
  bool on_device = false;  // where this is not the memory that `process` is about: the host has it
  // On a device, of the arena: the last variables, in pinned memory of the host.
  Bytes host_bytes = 0;
  Bytes away = 0;  // and pinned memory for values that leave between two uses
  // On a device: for inputs of the next step, which are read and copied while one runs; granted as
  // the snapshot is.
  Bytes ahead = 0;
  Bytes outside() const {
    return fixed + ahead + (on_device ? 0 : snapshot - std::min(idle, snapshot));
  }
  Bytes process() const { return arena + outside() - host_bytes; }
  Bytes floor = 0;        // certificate: no plan under these switches needs less (process bytes)
  size_t fullest = 0;     // the plan that sets the arena
  StepLayout step, test;  // of the steps that train, if any, and of those that evaluate
  std::vector<decltype(StepLayout::host)> host;  // of each signature
  OptimizerRef optimizer;                        // null when nothing is trained
  std::vector<SlotStart> slot_starts;            // of its slots
  SessionPoint unlimited;
  double ms = 0;                       // predicted, of the first signature; the chosen point's
  std::vector<SessionPoint> frontier;  // process descending, time ascending; may be one point alone
  bool complete = false;               // the frontier was looked for
  std::string split_refusal;           // why the batch cannot be split, or empty
  std::string band_refusal;            // why its images cannot be worked off in bands, or empty
  double plan_ms = 0;
  std::shared_ptr<PlanMemory> memory;
  std::shared_ptr<EagerSetup> eager;  // steps run op by op (eager_steps.h); or null
};

HostBill host_bill(const SessionPlan& plan);  // but for data and callbacks; on the host: nothing

// Traces and plans every signature: the fastest plan within the budget, or the smallest when none
// is. `source_bytes` is what the input pipeline holds. `layout`: that of variables which exist
// already; by default the widest signature's.
SessionPlan plan_session(const Network& network, const Compiled& compiled, Backend& backend,
                         const std::vector<Signature>& signatures, const SampleSpec& sample,
                         Bytes source_bytes, const VariableLayout* layout = nullptr,
                         const PlanOptions& options = {});

// Names of the log's terms beside the loss.
std::vector<std::string> log_names(const SessionPlan& plan);
std::vector<std::string> test_log_names(const SessionPlan& plan);  // in evaluation

// Grants the snapshot if the plan with it is within the budget and the system's limit; on a device,
// if it and all that the plan keeps on the host are within `system`, the host's then: what is free
// and what it holds of these already.
void grant_snapshot(SessionPlan& plan, Bytes wanted, std::optional<Bytes> budget,
                    std::optional<Bytes> system);

// Grants room for the next step's inputs likewise, on a device that copies beside kernels.
void grant_ahead(SessionPlan& plan, std::optional<Bytes> budget, std::optional<Bytes> system);

class Session {
 public:
  // Makes the variables, initialised from the seed, and the transient part of the arena.
  // On a device: one reservation of its memory for both; every step has run once, and is recorded,
  // before weights are there. `weights`: that were begun before, for a device.
  Session(SessionPlan plan, const Network& network, uint64_t seed,
          std::future<MadeWeights> weights = {});
  // Works on variables that exist: reserves and prefaults the transient part alone, which is given
  // back to the system with the session. The variables have the plan's layout.
  Session(SessionPlan plan, std::shared_ptr<Variables> variables);
  Session(Session&&) noexcept;
  ~Session();

  const SessionPlan& plan() const { return plan_; }
  void* input(size_t signature, size_t i);
  const void* kept(size_t signature, size_t i) const;
  bool eager() const { return eager_ != nullptr; }  // without executors
  Executor& executor(size_t signature) { return *executors_[signature]; }
  // `beside` runs on the host while a device works; not where the loss is not finite.
  using Beside = std::function<void()>;
  void run(size_t signature, const StepParams& params, StepTimes* times = nullptr,
           const Beside& beside = nullptr);
  // The same, but leaves the weights as they are where the loss is not finite; false then.
  bool run_if_finite(size_t signature, const StepParams& params, StepTimes* times = nullptr,
                     const Beside& beside = nullptr);

  // Inputs of the next step, while one runs: as DeviceLink has it.
  bool reads_ahead() const;
  void begin_ahead();
  void send_ahead(size_t signature);
  void drop_ahead();

  void write_params(size_t signature, const StepParams& params);
  void send_inputs(size_t signature);  // to the device; run() does it

  Bytes used_bytes() const;  // over all signatures, as the executors recorded it
  Bytes used_away_bytes() const;

  Variables& variables() { return *variables_; }
  const Variables& variables() const { return *variables_; }

  // Steps whose gradients were used, where the optimiser counts them; else null.
  const double* counted_iterations() const { return iterations_; }
  void count_iterations();  // after variables were written from outside

  // Ends the session but for its plan with the prepared kernels, for another one.
  SessionPlan take_plan();

 private:
  void start();
  void find_iterations();
  void start_device();
  void warm_up_device();
  void receive(size_t signature);
  template <class Body>
  void named_step(size_t signature, const StepParams& params, const Body& body);
  void warm_up();

  SessionPlan plan_;
  std::shared_ptr<Variables> variables_;
  Reservation transient_;
  std::vector<std::unique_ptr<Executor>> executors_;
  std::unique_ptr<EagerSteps> eager_;
  std::unique_ptr<DeviceLink> link_;  // where the arena is a device's
  std::unique_ptr<DeviceMemory> device_transient_, away_;
  std::unique_ptr<double> counted_;  // the device's count of iterations
  const double* iterations_ = nullptr;
  const void* device_iterations_ = nullptr;
};

// What the next training step is to the optimiser, after so many steps.
struct UpdateMoment {
  bool accumulate = false;  // it adds up gradients
  int64_t update = 0;       // counted from 1
  double learning_rate = 0;
};
UpdateMoment update_moment(const Session& session, int64_t steps_before);

// Puts the averages that the optimiser keeps (use_ema) in the place of the weights.
void finalize_variable_values(Session& session);

// Value of a kept scalar, float32 or float64.
double kept_scalar(const Session& session, size_t signature, size_t i);

}  // namespace pl
