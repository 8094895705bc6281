// The training loop: batches from a Source into the arena, one step after another, with what people
// want to know about it. Nothing is allocated while it runs.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "data/source.h"
#include "train/session.h"
#include "train/train_state.h"

namespace pl {

struct LoopOptions {
  int64_t batch = 32;
  int64_t epochs = 1;
  int64_t initial_epoch = 0;          // so many of them are done already
  int64_t validation_batch = 0;       // 0: as batch
  int64_t validation_freq = 1;        // every so many epochs
  int64_t validation_steps = 0;       // at most so many batches; 0: all
  std::optional<int64_t> steps = {};  // stop after so many, whatever the epoch
  // Default: one pass over the data. With fewer or more the next epoch goes on where the last one
  // stopped, and a new pass, shuffled anew, begins where the data end.
  std::optional<int64_t> steps_per_epoch = {};
  bool resident_batch = false;  // the data are one batch that stays in the arena (synthetic)
  bool shuffle = true;
  bool time_kernels = false;  // some early steps are timed kernel by kernel
  uint64_t seed = 0;
  int64_t accumulate = 0;  // the optimiser's gradient_accumulation_steps; 0: none
  // What was trained before, so that going on gives the same shuffles, masks and updates as if it
  // had been one run.
  int64_t steps_before = 0, epochs_before = 0;
  LoopPosition start = {};  // of this run
};

// Which signatures a run needs: whole batches, the last smaller one, both again for steps that only
// add up gradients, and the same for evaluation.
std::vector<Signature> signatures_for(const LoopOptions& options, int64_t train_samples,
                                      int64_t test_samples);
// The signatures of one pass over so many samples: whole batches first, then the smaller one.
std::vector<Signature> signatures_for(StepKind kind, int64_t batch, int64_t samples);

struct Evaluated {
  double loss = 0;
  std::vector<double> metrics = {};
};

struct StepEvent {
  int64_t step = 0;  // from 1
  double loss = 0;
  double ms = 0;
  int64_t epoch = 0, epoch_step = 0, epoch_steps = 0;  // from 1
  double mean_loss = 0;                                // over the epoch so far, weighted by samples
  std::vector<double> mean_metrics;                    // the log's other terms, likewise
};

struct EpochEvent {
  int64_t epoch = 0;  // from 1
  double loss = 0;
  std::vector<double> metrics = {};
  std::optional<double> val_loss = {};
  std::vector<double> val_metrics = {};
  double seconds = 0;
};

class TrainObserver {
 public:
  virtual ~TrainObserver() = default;
  virtual void on_train_begin() {}
  // `steps`: of the whole epoch, `done` of which were made before (0 unless it goes on in one).
  virtual void on_epoch_begin(int64_t /*epoch*/, int64_t /*epochs*/, int64_t /*steps*/,
                              int64_t /*done*/) {}
  virtual void on_step_begin(int64_t /*epoch_step*/) {}
  virtual void on_step(const StepEvent&) {}
  virtual void on_test_begin() {}
  virtual void on_test_step_begin(int64_t /*step*/) {}
  virtual void on_test_step(int64_t /*step*/, const Evaluated& /*so_far*/) {}
  virtual void on_test_end(const Evaluated&) {}
  virtual void on_predict_begin() {}
  virtual void on_predict_step_begin(int64_t /*step*/) {}
  virtual void on_predict_step(int64_t /*step*/) {}
  virtual void on_predict_end() {}
  virtual void on_epoch(const EpochEvent&) {}
  // After every step and after every epoch, when all have seen it: the place to save.
  virtual void on_boundary(const LoopPosition&) {}
  virtual void on_train_end() {}

  // Asked after each step and each epoch. stop: the epoch ends here, and the run with it.
  virtual bool stop() const { return false; }
  // Also asked while it evaluates: leaves at once, without on_epoch and on_train_end.
  virtual bool leave() const { return false; }
  // Something of its runs beside the next step, which is then not counted as a steady one.
  virtual bool busy() const { return false; }
};

struct LoopResult {
  int64_t steps = 0;  // those before the start included
  double loss_first = 0, loss_last = 0;
  double step_ms_median = 0, step_ms_min = 0;  // over the last 4096 steps at most
  double samples_per_s = 0;
  // Of the first signature's plan, one time per step; empty without LoopOptions::time_kernels or
  // when there were too few steps.
  std::vector<double> kernel_ms;
  double heap_allocations_per_step = 0, library_allocations_per_step = 0;  // steady steps
  std::optional<EpochEvent> last_epoch;  // an observer sees them all
  bool finite = true;                    // false: it ended at a non-finite loss
  std::string cause;                     // of that, if found: which layer first
  bool left = false;                     // an observer wanted to leave
};

// Trains, then evaluates on `test` (may be null) after each epoch. Stops early at a non-finite
// loss; with loss scaling at the tenth in a row, and at the end where the last one is.
LoopResult run_training(Session& session, const LoopOptions& options, Source& train, Source* test,
                        TrainObserver& observer);

// Of the first `steps` batches; 0: of all.
Evaluated evaluate(Session& session, Source& source, int64_t batch,
                   TrainObserver* observer = nullptr, int64_t steps = 0);

// Writes the predictions for all samples one after another to `out`, one for each output. Only x is
// read.
void predict(Session& session, Source& source, int64_t batch, const std::vector<void*>& out,
             TrainObserver* observer = nullptr, int64_t steps = 0);

// Samples of the first `steps` batches; 0: all.
int64_t samples_in(int64_t samples, int64_t batch, int64_t steps);

// What the loop itself keeps on the heap, but for kernel times: 48 bytes a step of the plan, within
// what footprint.h counts for a node.
Bytes loop_bytes(const LoopOptions& options);

}  // namespace pl
