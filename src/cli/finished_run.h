// A run that --resume finds with nothing left to do.
#pragma once

#include "base/json.h"
#include "cli/run_setup.h"
#include "train/checkpoint.h"
#include "train/train_state.h"

namespace pl {

// Its last checkpoint, if all that it was asked for was done and its weights were saved. Throws
// DataError where going on would be another run.
std::optional<TrainState> finished_state(const RunOptions& options, const RunSetup& setup,
                                         const RunIdentity& now, const Checkpoint& from);

// Prints that it is finished; with --json, `plan` and the run's end.
void tell_finished(const RunOptions& options, const RunSetup& setup, const TrainState& state,
                   const Checkpoint& from, const Json& plan);

}  // namespace pl
