#include "cli/finished_run.h"

#include <cstdio>

#include "base/error.h"
#include "base/hash.h"
#include "base/terminal.h"
#include "cli/run_folder.h"
#include "train/weights.h"

namespace pl {
namespace {

bool epochs_done(const RunOptions& options, const LoopPosition& at) {
  return at.epoch > options.epochs;
}
bool steps_done(const RunOptions& options, const LoopPosition& at) {
  return options.steps && at.steps >= *options.steps;
}

// Saving the weights is the last thing that a run does.
bool weights_saved(const std::string& run, const VariableLayout& layout, const Checkpoint& from) {
  try {
    const SafetensorsFile weights(weights_in(run));
    check_weights(weights, layout);
    return hash_of(weights, layout, true) == hash_of(from.tensors(), layout, true);
  } catch (const DataError&) {
    return false;
  }
}

}  // namespace

std::optional<TrainState> finished_state(const RunOptions& options, const RunSetup& setup,
                                         const RunIdentity& now, const Checkpoint& from) {
  TrainState state = train_state_from(from.state(), from.folder());
  const LoopPosition& at = state.position;
  if (!epochs_done(options, at) && !steps_done(options, at)) return std::nullopt;
  check_identity(state.identity, now);
  if (!weights_saved(options.run, setup.plan.layout, from)) return std::nullopt;
  return state;
}

void tell_finished(const RunOptions& options, const RunSetup& setup, const TrainState& state,
                   const Checkpoint& from, const Json& plan) {
  const LoopPosition& at = state.position;
  const char* more = !steps_done(options, at)   ? "more --epochs go on"
                     : epochs_done(options, at) ? "more --epochs and --steps go on"
                                                : "more --steps go on";
  std::fprintf(human_stream(), "%s: finished after %lld steps; %s\n", options.run.c_str(),
               static_cast<long long>(at.steps), more);
  if (!options.json) return;
  const VariableLayout& layout = setup.plan.layout;
  EventLog log(true);
  log.write(plan);
  log.write(Json::object()
                .set("event", "end")
                .set("steps", at.steps)
                .set("loss_first", at.loss_first)
                .set("loss_last", at.loss_last)
                .set("step_ms_median", Json())
                .set("step_ms_min", Json())
                .set("samples_per_s", Json())
                .set("deterministic", options.deterministic)
                .set("weights_xxh3", hex16(hash_of(from.tensors(), layout, true)))
                .set("state_xxh3", hex16(hash_of(from.tensors(), layout, false))));
}

}  // namespace pl
