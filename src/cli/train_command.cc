#include <cmath>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/stop_signals.h"
#include "base/terminal.h"
#include "cli/answer.h"
#include "cli/commands.h"
#include "cli/costs.h"
#include "cli/finished_run.h"
#include "cli/run_folder.h"
#include "cli/run_setup.h"
#include "train/callback_list.h"
#include "train/callbacks.h"
#include "train/observers.h"
#include "train/progress_bar.h"
#include "train/weights.h"

namespace pl {
namespace {

Json end_event(const LoopResult& result, const Session& session, bool deterministic) {
  const Backend& backend = session.plan().memory->book.backend();
  return Json::object()
      .set("event", "end")
      .set("steps", result.steps)
      .set("loss_first", result.loss_first)
      .set("loss_last", result.loss_last)
      .set("step_ms_median", result.step_ms_median)
      .set("step_ms_min", result.step_ms_min)
      .set("samples_per_s", result.samples_per_s)
      .set("arena_bytes_planned", session.plan().arena)
      .set("arena_bytes_used", session.used_bytes())
      .set("process_bytes_planned", session.plan().process())
      .set("process_bytes_peak", measured_peak(&backend))
      .set("deterministic", deterministic)
      .set("heap_allocations_per_step", result.heap_allocations_per_step)
      .set("library_allocations_per_step", result.library_allocations_per_step)
      .set("weights_xxh3", hex16(session.variables().hash(true)))
      .set("state_xxh3", hex16(session.variables().hash(false)));
}

void print_summary(std::FILE* out, const LoopResult& result, const Session& session,
                   const PlanReport& report, const std::string& run) {
  const Bytes planned = session.plan().process();
  const Bytes peak = measured_peak(&session.plan().memory->book.backend());
  std::fprintf(out, "\n%lld steps, median %.2f ms, %.0f samples/s%s%s\n",
               static_cast<long long>(result.steps), result.step_ms_median, result.samples_per_s,
               report.on_device ? ", " : "", report.on_device ? determinism_of(report) : "");
  if (result.last_epoch && !result.last_epoch->val_metrics.empty())
    std::fprintf(out, "test accuracy   %.4f\n", result.last_epoch->val_metrics[0]);
  std::fprintf(out, "memory planned  %s (%lld bytes)\n", format_bytes(planned).c_str(),
               static_cast<long long>(planned));
  const double share = 100.0 * static_cast<double>(planned - peak) / static_cast<double>(planned);
  std::fprintf(out, "memory measured %s (%lld bytes, the system's figure), %.2f %% %s the plan\n",
               format_bytes(peak).c_str(), static_cast<long long>(peak), std::fabs(share),
               share >= 0 ? "below" : "above");
  std::fprintf(out, "arena           %lld bytes planned, %lld used\n",
               static_cast<long long>(session.plan().arena),
               static_cast<long long>(session.used_bytes()));
  if (!run.empty()) std::fprintf(out, "run folder      %s\n", run.c_str());
}

void warn(const std::string& text) {
  std::fprintf(stderr, "plimsoll: warning: %s\n", text.c_str());
}

// What a run folder gets besides plan and weights. Without one, signals still end a run in good
// order.
std::vector<CallbackRef> run_callbacks(const RunOptions& options, EventLog& log) {
  if (options.run.empty()) return {};
  const std::string from = options.resume.empty() ? "" : checkpoints_in(options.resume);
  return {log.place(), CSVLogger(options.run + "/log.csv"), TensorBoard(options.run),
          RunCheckpoints(checkpoints_in(options.run), options.checkpoint_every,
                         options.keep_checkpoints, from)};
}

RunIdentity identity_of(const RunOptions& options, const RunSetup& setup) {
  return {.model = options.model,
          .optimizer = setup.report.optimizer,
          .dtype = std::string(name_of(setup.report.dtype)),
          .data = options.data,
          .batch = setup.report.batch,
          .train_samples = setup.sources.train->size(),
          .threads = setup.report.threads,
          .shuffle = options.shuffle,
          .seed = options.seed,
          .numerics = setup.report.numerics,
          .kernels = setup.report.kernels};
}

Session reserve(RunSetup& setup, uint64_t seed) {
  require_room(setup.report, 0, setup.backend.get());
  try {
    return Session(std::move(setup.plan), setup.network, seed, std::move(setup.weights));
  } catch (const DoesNotFit& error) {  // somebody was quicker
    throw refused(error, setup.report, setup.backend.get());
  }
}

void tell_resumed(EventLog& log, const LoopPosition& position, std::FILE* out) {
  log.write(Json::object()
                .set("event", "resume")
                .set("step", position.steps)
                .set("epoch", position.epoch)
                .set("epoch_step", position.epoch_step));
  if (out)
    std::fprintf(out, "Going on after step %lld (epoch %lld)\n",
                 static_cast<long long>(position.steps), static_cast<long long>(position.epoch));
}

}  // namespace

int run_train(const RunOptions& options) {
  if (!options.run.empty() && !same_folder(options.run, options.resume))
    refuse_to_overwrite(options.run);
  if (options.checkpoint_every > 0 && options.run.empty())
    throw UserError("[options] --checkpoint-every: expected --run FOLDER to keep checkpoints in");
  RunSetup setup = set_up_run(options, Purpose::train);
  EventLog log(options.json);
  const std::vector<CallbackRef> callbacks = run_callbacks(options, log);
  const std::unique_ptr<Checkpoint> from = find_resume(callbacks, setup.plan.layout);
  const RunIdentity identity = identity_of(options, setup);
  const PlanAnswer answer(options, setup);
  const Json report = answer.json();
  Json plan_event = Json::object().set("event", "plan");
  for (const auto& [key, value] : report.as_object("plan")) plan_event.set(key, value);
  if (from)
    if (const auto state = finished_state(options, setup, identity, *from)) {
      tell_finished(options, setup, *state, *from, plan_event);
      return 0;
    }
  // Whatever can be wrong with files is found before anything is trained.
  std::unique_ptr<SafetensorsFile> weights;
  if (!options.weights.empty()) weights = std::make_unique<SafetensorsFile>(options.weights);
  if (weights) check_weights(*weights, setup.plan.layout);
  if (!options.save_weights.empty()) check_writable(options.save_weights);
  if (!options.run.empty()) begin_run_folder(options, setup.report);
  if (!options.run.empty()) log.open(options.run, from != nullptr);
  if (!options.run.empty())
    write_file_atomically(options.run + "/plan.json", report.dump(2) + "\n");
  log.write(plan_event);
  std::FILE* out = human_stream();
  if (!options.json) std::fputs((answer.text(wants_color(out)) + "\n").c_str(), out);
  Session session = reserve(setup, options.seed);
  if (weights) load_weights(*weights, session.variables());
  if (const std::string text = check_resident(setup.report, setup.backend.get()); !text.empty())
    warn(text);

  const StopSignals signals;
  ModelInTraining training{.session = session,
                           .compiled = setup.compiled,
                           .metrics = log_names(session.plan()),
                           .test_metrics = test_log_names(session.plan()),
                           .epochs = options.epochs,
                           .snapshot = setup.report.snapshot,
                           .callbacks = callbacks};
  training.state.identity = identity;
  CallbackList list(training, from.get());
  if (const std::string text = list.warning(); !text.empty()) warn(text);
  setup.loop.start = training.state.position;
  setup.loop.time_kernels = true;
  ProgressBar bar(out, training.metrics, training.test_metrics);
  Observers observers{options.json ? nullptr : &bar, &log, &list};
  if (from) tell_resumed(log, training.state.position, options.json ? nullptr : out);
  const LoopResult result =
      run_training(session, setup.loop, *setup.sources.train, setup.sources.test.get(), observers);
  if (result.left) {
    try {
      list.interrupted("train", "go on with: plimsoll train --resume " + options.run);
    } catch (const Interrupted&) {  // behind what was saved, so that going on cuts it off the log
      const char* signal = StopSignals::name(StopSignals::received());
      log.write(end_event(result, session, options.deterministic).set("interrupted", signal));
      throw;
    }
  }
  log.write(end_event(result, session, options.deterministic));
  log.sync();
  learn_costs(*setup.backend, session, result);
  if (!options.save_weights.empty()) save_weights(options.save_weights, session.variables());
  if (!options.run.empty()) save_weights(weights_in(options.run), session.variables());
  if (!options.json) print_summary(out, result, session, setup.report, options.run);
  if (const Bytes peak = measured_peak(setup.backend.get()); peak > setup.report.process)
    warn("[memory] the process held " + format_bytes(peak) + ", more than the planned " +
         format_bytes(setup.report.process) + ", on this system");
  if (!result.finite)
    throw BackendError("[train] step " + std::to_string(result.steps) + ": the loss is not finite" +
                       (result.cause.empty() ? "" : ": " + result.cause) +
                       "; lower --learning-rate");
  if (const std::string path = session.variables().first_non_finite(); !path.empty())
    throw BackendError("[train] " + path +
                       ": a value is not finite at the end; lower --learning-rate");
  return 0;
}

}  // namespace pl
