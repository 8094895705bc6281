// Model: fit and plan.
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/stop_signals.h"
#include "data/pipeline/dataset_source.h"
#include "train/model.h"
#include "train/model_call.h"
#include "train/model_data.h"
#include "train/observers.h"
#include "train/progress_bar.h"

namespace pl {
namespace {

// Of one epoch in a History: some numbers in vectors that grow by doubling.
constexpr Bytes kHistoryBytes = 128;

Switches switches_of(const FitOptions& options) {
  if (options.split < 0)
    throw UserError(
        "[fit] split: expected 0 (as needed), 1 (never) or a number of parts, received " +
        std::to_string(options.split));
  Switches switches{.recompute = options.recompute};
  if (options.offload) switches.away = options.host_memory.bytes().value_or(kHalfOfHost);
  if (options.split > 0) switches.split = options.split;
  return switches;
}

ModelCall fit_call(ModelState& state, const FitSources& sources, const FitOptions& options) {
  state.require_compiled("fit");
  auto expect = [](const char* what, int64_t value, int64_t least) {
    if (value < least)
      throw UserError("[fit] " + std::string(what) + ": expected " + std::to_string(least) +
                      " or more, received " + std::to_string(value));
  };
  expect("epochs", options.epochs, 0);
  expect("initial_epoch", options.initial_epoch, 0);
  expect("steps_per_epoch", options.steps_per_epoch, 0);
  expect("validation_batch_size", options.validation_batch_size, 0);
  expect("validation_freq", options.validation_freq, 1);
  expect("validation_steps", options.validation_steps, 0);
  int64_t validation_batch = options.validation_batch_size;
  if (sources.validation && sources.validation->batch() > 0)
    validation_batch = sources.validation->batch();
  return ModelCall(state, {.kind = StepKind::train,
                           .data = sources.train,
                           .validation = sources.validation,
                           .batch = options.batch_size,
                           .validation_batch = validation_batch,
                           .validation_steps = options.validation_steps,
                           .threads = options.threads,
                           .x_scale = options.x_scale,
                           .extra_bytes = sources.extra_bytes + options.epochs * kHistoryBytes,
                           .switches = switches_of(options),
                           .callbacks = options.callbacks});
}

// While it lives, fit() runs.
class Running {
 public:
  explicit Running(ModelState& state) : state_(state) { state_.running = "fit"; }
  ~Running() { state_.running = nullptr; }
  Running(const Running&) = delete;
  Running& operator=(const Running&) = delete;

 private:
  ModelState& state_;
};

// Keeps the model's counters right even when an error ends the loop.
class CounterObserver : public TrainObserver {
 public:
  CounterObserver(ModelState& state, const TrainState& start)
      : state_(state), steps_before_(start.steps_before), epochs_before_(start.epochs_before) {
    state.steps = steps_before_ + start.position.steps;
    state.epochs = epochs_before_ + start.position.epoch - 1;
  }
  void on_step(const StepEvent& event) override { state_.steps = steps_before_ + event.step; }
  void on_epoch(const EpochEvent& event) override { state_.epochs = epochs_before_ + event.epoch; }

 private:
  ModelState& state_;
  int64_t steps_before_, epochs_before_;
};

// Last of the callbacks: the logs of each epoch, with what the others added.
class HistoryRecorder : public Callback {
 public:
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    history.epoch.push_back(epoch);
    for (const auto& [key, value] : logs) history.history[key].push_back(value);
  }
  const char* name() const override { return "History"; }
  Json state() const override {
    Json lists = Json::object(), epochs = Json::array();
    for (int64_t epoch : history.epoch) epochs.push(epoch);
    for (const auto& [key, values] : history.history) {
      Json list = Json::array();
      for (double value : values) list.push(real_json(value));
      lists.set(key, std::move(list));
    }
    return Json::object().set("epoch", std::move(epochs)).set("history", std::move(lists));
  }
  void restore(const Json& state, const SafetensorsFile&, const std::string& what) override {
    for (const Json& epoch : state.at("epoch", what).as_array(what))
      history.epoch.push_back(epoch.as_integer(what));
    for (const auto& [key, values] : state.at("history", what).as_object(what))
      for (const Json& value : values.as_array(what))
        history.history[key].push_back(real_from(value, what));
  }

  History history;
};

RunIdentity identity_of(const ModelState& state, const Source& data, const PlanReport& report,
                        const FitOptions& options) {
  return {.model = state.name,
          .optimizer = report.optimizer,
          .dtype = std::string(name_of(report.dtype)),
          .data = data.name(),
          .batch = report.batch,
          .train_samples = data.size(),
          .threads = report.threads,
          .shuffle = options.shuffle,
          .seed = options.seed,
          .numerics = report.numerics,
          .kernels = report.kernels};
}

void announce(const PlanReport& report) {
  std::printf("Training will use %s", format_bytes(report.process).c_str());
  if (report.budget) std::printf(" of %s", format_bytes(*report.budget).c_str());
  if (report.on_device) std::printf(" on %s, %s", report.device.c_str(), determinism_of(report));
  std::printf(": %s for tensors, %s for runtime, libraries and data\n",
              format_bytes(report.arena).c_str(), format_bytes(report.fixed).c_str());
}

void warn(const std::string& text) {
  if (!text.empty()) std::fprintf(stderr, "plimsoll: warning: %s\n", text.c_str());
}

void require_finite(const LoopResult& result, const Variables& variables) {
  constexpr const char* kRemedy = "; lower the optimizer's learning_rate, and check the data";
  if (!result.finite)
    throw BackendError("[fit] step " + std::to_string(result.steps) + ": the loss is not finite" +
                       (result.cause.empty() ? "" : ": " + result.cause) + kRemedy);
  if (const std::string path = variables.first_non_finite(); !path.empty())
    throw BackendError("[fit] " + path + ": a value is not finite at the end" + kRemedy);
}

}  // namespace

History Model::fit(const Values& x, const Values& y, const FitOptions& options) {
  return fit(*source_of("fit", *state_, x, y, options.sample_weight), options);
}

Data::Data(const Dataset& batches) : dataset(std::make_shared<const Dataset>(batches)) {}

History Model::fit(const Dataset& data, const FitOptions& options) {
  return fit(*dataset_source(data, options.steps_per_epoch), options);
}

History Model::fit(Source& data, const FitOptions& given) {
  state_->require_idle("fit");
  const Running running(*state_);
  const Bytes peak_before = process_peak();
  const FitOptions options = as_batched(data, given);
  const FitSources sources(*state_, data, options);
  ModelCall call = fit_call(*state_, sources, options);
  const PlanReport report = call.plan(options.memory, false);
  const std::unique_ptr<Checkpoint> from = find_resume(options.callbacks, call.layout());
  Session session = call.start(report, options.seed);
  if (options.verbose > 0) announce(report);
  // What else a program holds on the host is no news to it, unless it gave a budget.
  if (report.budget || report.on_device) warn(call.warning());

  const Compiled& compiled = *state_->compiled;
  std::optional<int64_t> steps_per_epoch;
  if (options.steps_per_epoch > 0) steps_per_epoch = options.steps_per_epoch;
  ModelInTraining training{.session = session,
                           .compiled = compiled,
                           .metrics = log_names(session.plan()),
                           .test_metrics = test_log_names(session.plan()),
                           .epochs = options.epochs,
                           .snapshot = report.snapshot,
                           .callbacks = options.callbacks,
                           .carried = carried_weights(state_->network)};
  state_->updates_per_step = session.plan().step.updates_of(compiled.optimizer->name());
  training.state.identity = identity_of(*state_, *sources.train, report, options);
  training.state.steps_before = state_->steps;
  training.state.epochs_before = state_->epochs - options.initial_epoch;
  const auto recorder = std::make_shared<HistoryRecorder>();
  training.callbacks.push_back(recorder);
  std::optional<StopSignals> signals;
  for (const CallbackRef& callback : options.callbacks)
    if (callback->wants_signals() && !signals) signals.emplace();
  CallbackList callbacks(training, from.get());
  warn(callbacks.warning());
  const LoopOptions loop{.batch = call.batch(),
                         .epochs = options.epochs,
                         .initial_epoch = options.initial_epoch,
                         .validation_batch = call.validation_batch(),
                         .validation_freq = options.validation_freq,
                         .validation_steps = options.validation_steps,
                         .steps_per_epoch = steps_per_epoch,
                         .shuffle = options.shuffle,
                         .seed = options.seed,
                         .accumulate = accumulation_of(compiled),
                         .steps_before = training.state.steps_before,
                         .epochs_before = training.state.epochs_before,
                         .start = training.state.position};
  CounterObserver counters(*state_, training.state);
  ProgressBar bar(stdout, training.metrics, training.test_metrics, options.verbose == 1);
  Observers observers{&counters, options.verbose > 0 ? &bar : nullptr, &callbacks};
  const LoopResult result =
      run_training(session, loop, *sources.train, sources.validation, observers);
  if (result.left)
    callbacks.interrupted("fit", "call fit() again with the same arguments to go on");
  if (result.steps > 0 && !result.left) finalize_variable_values(session);

  History history = std::move(recorder->history);
  history.steps = result.steps;
  history.step_ms = result.step_ms_median;
  history.planned_process = report.process;
  history.planned_arena = report.arena;
  history.used_arena = session.used_bytes();
  // The system keeps one peak for the life of the process: it is this call's if it grew in it.
  const Bytes peak = process_peak();
  history.measured_process = peak > peak_before ? peak : process_resident();
  if (state_->device) history.measured_process = measured_peak(&state_->where());
  if (!training.nan_is_handled) require_finite(result, session.variables());
  call.keep(std::move(session));
  optimizer().fitted = iterations();
  return history;
}

PlanReport Model::plan(const Values& x, const Values& y, const FitOptions& options) {
  return plan(*source_of("plan", *state_, x, y, options.sample_weight), options);
}

PlanReport Model::plan(const Dataset& data, const FitOptions& options) {
  return plan(*dataset_source(data, options.steps_per_epoch), options);
}

PlanReport Model::plan(Source& data, const FitOptions& given) {
  const FitOptions options = as_batched(data, given);
  const FitSources sources(*state_, data, options);
  ModelCall call = fit_call(*state_, sources, options);
  PlanReport report = call.plan(options.memory, true);
  call.keep_plan();
  return report;
}

PlanReport Model::plan(const FitOptions& options) {
  state_->require_compiled("plan");
  ModelCall call(*state_, {.kind = StepKind::train,
                           .batch = options.batch_size,
                           .threads = options.threads,
                           .x_scale = options.x_scale,
                           .switches = switches_of(options),
                           .callbacks = options.callbacks});
  PlanReport report = call.plan(options.memory, true);
  call.keep_plan();
  return report;
}

}  // namespace pl
