// Model: fit, evaluate, predict, plan, summary.
#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/error.h"
#include "base/stop_signals.h"
#include "data/tensor_source.h"
#include "train/model.h"
#include "train/model_state.h"
#include "train/observers.h"
#include "train/progress_bar.h"
#include "train/summary.h"

namespace pl {
namespace {

// Of one epoch in a History: some numbers in vectors that grow by doubling.
constexpr Bytes kHistoryBytes = 128;

// The sources of a fit: training and validation samples, from tensors, a Source or a split.
class FitSources {
 public:
  FitSources(Source& data, const FitOptions& options) : train(&data) {
    const double split = options.validation_split;
    if (!(split >= 0 && split < 1))
      throw UserError("[fit] validation_split: expected a share from 0 to below 1, received " +
                      std::to_string(split));
    if (!options.validation_data.empty()) {
      // Keras: validation_data wins over validation_split.
      validation = options.validation_data.source;
      if (!validation)
        validation = own(tensor_source(options.validation_data.x, options.validation_data.y));
    } else if (split > 0) {
      const auto at =
          static_cast<int64_t>(std::floor(static_cast<double>(data.size()) * (1 - split)));
      if (at < 1 || at >= data.size())
        throw UserError("[fit] validation_split: expected samples on both sides, received " +
                        std::to_string(split) + " of " + std::to_string(data.size()));
      validation = own(range_source(data, at, data.size() - at));
      split_train_ = range_source(data, 0, at);
      train = split_train_.get();
      extra_bytes = data.resident_bytes();  // the parts do not count it
    }
  }

  Source* train;
  Source* validation = nullptr;
  Bytes extra_bytes = 0;

 private:
  Source* own(std::unique_ptr<Source> source) {
    own_ = std::move(source);
    return own_.get();
  }
  std::unique_ptr<Source> own_, split_train_;
};

Switches switches_of(const FitOptions& options) {
  if (options.split < 0)
    throw UserError(
        "[fit] split: expected 0 (as needed), 1 (never) or a number of parts, received " +
        std::to_string(options.split));
  Switches switches{.recompute = options.recompute};
  if (options.split > 0) switches.split = options.split;
  return switches;
}

ModelCall fit_call(ModelState& state, const FitSources& sources, const FitOptions& options) {
  state.require_compiled("fit");
  if (options.epochs < 0)
    throw UserError("[fit] epochs: expected 0 or more, received " + std::to_string(options.epochs));
  return ModelCall(state, {.kind = StepKind::train,
                           .data = sources.train,
                           .validation = sources.validation,
                           .batch = options.batch_size,
                           .threads = options.threads,
                           .x_scale = options.x_scale,
                           .extra_bytes = sources.extra_bytes + options.epochs * kHistoryBytes,
                           .switches = switches_of(options),
                           .callbacks = options.callbacks});
}

// Keeps the model's counters right even when an error ends the loop.
class CounterObserver : public TrainObserver {
 public:
  CounterObserver(ModelState& state, const TrainState& start)
      : state_(state), steps_before_(start.steps_before), epochs_before_(start.epochs_before) {
    state.iterations = steps_before_ + start.position.steps;
    state.epochs = epochs_before_ + start.position.epoch - 1;
  }
  void on_step(const StepEvent& event) override { state_.iterations = steps_before_ + event.step; }
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
          .numerics = report.numerics};
}

void announce(const PlanReport& report) {
  std::printf("Training will use %s", format_bytes(report.process).c_str());
  if (report.budget) std::printf(" of %s", format_bytes(*report.budget).c_str());
  std::printf(": %s for tensors, %s for runtime, libraries and data\n",
              format_bytes(report.arena).c_str(), format_bytes(report.fixed).c_str());
}

void require_finite(const LoopResult& result, const Variables& variables) {
  constexpr const char* kRemedy = "; lower the optimizer's learning_rate, and check the data";
  if (!result.finite)
    throw BackendError("[fit] step " + std::to_string(result.steps) + ": the loss is not finite" +
                       kRemedy);
  if (const std::string path = variables.first_non_finite(); !path.empty())
    throw BackendError("[fit] " + path + ": a value is not finite at the end" + kRemedy);
}

}  // namespace

History Model::fit(const Tensor& x, const Tensor& y, const FitOptions& options) {
  return fit(*tensor_source(x, y), options);
}

History Model::fit(Source& data, const FitOptions& options) {
  const Bytes peak_before = process_peak();
  const FitSources sources(data, options);
  ModelCall call = fit_call(*state_, sources, options);
  const PlanReport report = call.plan(options.memory, false);
  const std::unique_ptr<Checkpoint> from = find_resume(options.callbacks, call.layout());
  Session session = call.start(report, options.seed);
  if (options.verbose > 0) announce(report);

  const Compiled& compiled = *state_->compiled;
  ModelInTraining training{.session = session,
                           .compiled = compiled,
                           .metrics = compiled.metrics,
                           .epochs = options.epochs,
                           .snapshot = report.snapshot,
                           .callbacks = options.callbacks};
  training.state.identity = identity_of(*state_, *sources.train, report, options);
  training.state.steps_before = state_->iterations;
  training.state.epochs_before = state_->epochs;
  const auto recorder = std::make_shared<HistoryRecorder>();
  training.callbacks.push_back(recorder);
  std::optional<StopSignals> signals;
  for (const CallbackRef& callback : options.callbacks)
    if (callback->wants_signals() && !signals) signals.emplace();
  CallbackList callbacks(training, from.get());
  if (const std::string warning = callbacks.warning(); !warning.empty())
    std::fprintf(stderr, "plimsoll: warning: %s\n", warning.c_str());
  const LoopOptions loop{.batch = call.batch(),
                         .epochs = options.epochs,
                         .shuffle = options.shuffle,
                         .seed = options.seed,
                         .optimizer = compiled.optimizer.get(),
                         .steps_before = training.state.steps_before,
                         .epochs_before = training.state.epochs_before,
                         .start = training.state.position};
  CounterObserver counters(*state_, training.state);
  ProgressBar bar(stdout, compiled.metrics, options.verbose == 1);
  Observers observers{&counters, options.verbose > 0 ? &bar : nullptr, &callbacks};
  const LoopResult result =
      run_training(session, loop, *sources.train, sources.validation, observers);
  if (result.left)
    callbacks.interrupted("fit", "call fit() again with the same arguments to go on");

  History history = std::move(recorder->history);
  history.steps = result.steps;
  history.step_ms = result.step_ms_median;
  history.planned_process = report.process;
  history.planned_arena = report.arena;
  history.used_arena = session.used_bytes();
  // The system keeps one peak for the life of the process: it is this call's if it grew in it.
  const Bytes peak = process_peak();
  history.measured_process = peak > peak_before ? peak : process_resident();
  if (!training.nan_is_handled) require_finite(result, session.variables());
  call.keep_plan(session.take_plan());
  return history;
}

Results Model::evaluate(const Tensor& x, const Tensor& y, const EvaluateOptions& options) {
  return evaluate(*tensor_source(x, y), options);
}

Results Model::evaluate(Source& data, const EvaluateOptions& options) {
  const Compiled compiled = state_->require_compiled("evaluate");
  ModelCall call(*state_, {.kind = StepKind::evaluate,
                           .data = &data,
                           .batch = options.batch_size,
                           .threads = options.threads,
                           .x_scale = options.x_scale});
  Session session = call.start(call.plan(options.memory, false), 0);
  const Evaluated evaluation = pl::evaluate(session, data, call.batch());
  Results results{{"loss", evaluation.loss}};
  for (size_t m = 0; m < compiled.metrics.size(); ++m)
    results[compiled.metrics[m]] = evaluation.metrics[m];
  call.keep_plan(session.take_plan());
  return results;
}

Tensor Model::predict(const Tensor& x, const PredictOptions& options) {
  return predict(*tensor_source(x), options);
}

Tensor Model::predict(Source& data, const PredictOptions& options) {
  if (!state_->network.built()) state_->build(data.fields()[0].sample.shape);
  const std::vector<Shape> outputs = state_->network.output_shapes();
  const Meta meta{state_->settings().dtype.variable, outputs.at(0).with_front(data.size())};
  ModelCall call(*state_, {.kind = StepKind::predict,
                           .data = &data,
                           .batch = options.batch_size,
                           .threads = options.threads,
                           .x_scale = options.x_scale,
                           .extra_bytes = meta.bytes()});
  const PlanReport report = call.plan(options.memory, false);
  require_room(report);
  Tensor result(meta);
  Session session = call.start(report, 0);
  pl::predict(session, data, call.batch(), result.data());
  call.keep_plan(session.take_plan());
  return result;
}

PlanReport Model::plan(const Tensor& x, const Tensor& y, const FitOptions& options) {
  return plan(*tensor_source(x, y), options);
}

PlanReport Model::plan(Source& data, const FitOptions& options) {
  const FitSources sources(data, options);
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

std::string Model::summary(const SummaryOptions& options) {
  state_->require_built("summary");
  if (!state_->compiled) return summarize(state_->name, state_->network, nullptr, nullptr, {});
  ModelCall call(
      *state_, {.kind = StepKind::train, .batch = options.batch_size, .threads = options.threads});
  const PlanReport report = call.plan({}, false);
  std::string text =
      summarize(state_->name, state_->network, &*state_->compiled, &call.session_plan(), report);
  call.keep_plan();
  return text;
}

}  // namespace pl
