// Model: fit, evaluate, predict, plan, summary.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>

#include "base/error.h"
#include "base/stop_signals.h"
#include "data/pipeline/dataset_source.h"
#include "data/tensor_source.h"
#include "train/model.h"
#include "train/model_state.h"
#include "train/observers.h"
#include "train/progress_bar.h"

namespace pl {
namespace {

// Of one epoch in a History: some numbers in vectors that grow by doubling.
constexpr Bytes kHistoryBytes = 128;

// Tensors in the order of `names`, by which they are given or not. `outputs` without a target are
// not among the names.
std::vector<NamedTensor> in_order(const char* call, const Values& values,
                                  const std::vector<std::string>& names, const char* what) {
  std::vector<NamedTensor> list = values.list;
  bool named = !list.empty();
  for (const NamedTensor& entry : list) named = named && !entry.name.empty();
  if (named) {
    list.clear();
    for (const std::string& name : names)
      for (const NamedTensor& entry : values.list)
        if (entry.name == name) list.push_back(entry);
    if (list.size() != values.list.size() || list.size() != names.size()) {
      std::string known, given;
      for (const std::string& name : names) known += (known.empty() ? "" : ", ") + name;
      for (const NamedTensor& entry : values.list)
        given += (given.empty() ? "" : ", ") + entry.name;
      throw UserError("[" + std::string(call) + "] " + what + ": expected values for " + known +
                      ", received " + given);
    }
  }
  for (size_t i = 0; i < list.size(); ++i)
    if (list[i].name.empty())
      list[i].name = list.size() == 1 ? what : what + std::string("[") + std::to_string(i) + "]";
  return list;
}

// Names of the outputs that have targets.
std::vector<std::string> target_names(const ModelState& state) {
  std::vector<std::string> names;
  if (!state.network.built() || !state.compiled) return names;
  const std::vector<Head> heads = heads_of(*state.compiled, state.network);
  for (size_t o = 0; o < heads.size(); ++o)
    if (heads[o].has_target()) names.push_back(state.network.output_names()[o]);
  return names;
}

std::unique_ptr<Source> source_of(const char* call, const ModelState& state, const Values& x,
                                  const Values& y, const Values& weights) {
  if (x.empty()) throw DataError("[data] tensor x: expected values, received none");
  const std::vector<std::string> targets = target_names(state);
  return tensor_source(in_order(call, x, state.network.input_names(), "x"),
                       in_order(call, y, targets, "y"),
                       in_order(call, weights, targets, "sample_weight"));
}

bool weighted(const Source& source) {
  return std::any_of(source.fields().begin(), source.fields().end(),
                     [](const Field& field) { return field.role == Role::weight; });
}

// The sources of a fit: training and validation samples, from tensors, a Source or a split; with
// weights where one of them has some.
class FitSources {
 public:
  FitSources(const ModelState& state, Source& data, const FitOptions& options) : train(&data) {
    const double split = options.validation_split;
    if (!(split >= 0 && split < 1))
      throw UserError("[fit] validation_split: expected a share from 0 to below 1, received " +
                      std::to_string(split));
    if (!options.validation_data.empty()) {
      // Keras: validation_data wins over validation_split.
      const Data& given = options.validation_data;
      if (given.dataset)
        validation = own(dataset_source(*given.dataset, options.validation_steps));
      else
        validation = given.source
                         ? given.source
                         : own(source_of("fit", state, given.x, given.y, given.sample_weight));
    } else if (split > 0) {
      const auto at =
          static_cast<int64_t>(std::floor(static_cast<double>(data.size()) * (1 - split)));
      if (at < 1 || at >= data.size())
        throw UserError("[fit] validation_split: expected samples on both sides, received " +
                        std::to_string(split) + " of " + std::to_string(data.size()));
      validation = own(range_source(data, at, data.size() - at));
      train = own(range_source(data, 0, at));
      extra_bytes = data.resident_bytes();  // the parts do not count it
    }
    if (!options.class_weight.empty()) train = own(class_weights(*train, options.class_weight));
    if (!validation) return;
    if (weighted(*train) && !weighted(*validation)) validation = own(unit_weights(*validation));
    if (weighted(*validation) && !weighted(*train)) train = own(unit_weights(*train));
  }

  Source* train;
  Source* validation = nullptr;
  Bytes extra_bytes = 0;

 private:
  Source* own(std::unique_ptr<Source> source) {
    own_.push_back(std::move(source));
    return own_.back().get();
  }
  std::vector<std::unique_ptr<Source>> own_;
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

// What a source that is read batch by batch wants of the options: its own batches, in its order.
FitOptions as_batched(const Source& data, FitOptions options) {
  if (data.batch() == 0) return options;
  if (options.validation_split > 0)
    throw UserError(
        "[fit] validation_split: expected tensors, received a data set; take() and skip() split "
        "it");
  if (!options.sample_weight.empty())
    throw UserError(
        "[fit] sample_weight: expected weights as the third part of the data set's elements, "
        "received a tensor");
  options.batch_size = data.batch();
  options.shuffle = false;
  return options;
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

int64_t checked_steps(const char* call, int64_t steps) {
  if (steps < 0)
    throw UserError("[" + std::string(call) + "] steps: expected 0 or more, received " +
                    std::to_string(steps));
  return steps;
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

// Weights that stateful layers carry from batch to batch.
std::vector<size_t> carried_weights(const Network& network) {
  std::vector<size_t> list;
  for (size_t i = 0; i < network.weights().size(); ++i)
    if (network.weights()[i].carried) list.push_back(i);
  return list;
}

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
          .numerics = report.numerics};
}

void announce(const PlanReport& report) {
  std::printf("Training will use %s", format_bytes(report.process).c_str());
  if (report.budget) std::printf(" of %s", format_bytes(*report.budget).c_str());
  if (report.device != "cpu") std::printf(" on %s", report.device.c_str());
  std::printf(": %s for tensors, %s for runtime, libraries and data\n",
              format_bytes(report.arena).c_str(), format_bytes(report.fixed).c_str());
}

void require_finite(const LoopResult& result, const Variables& variables) {
  constexpr const char* kRemedy = "; lower the optimizer's learning_rate, and check the data";
  if (!result.finite)
    throw BackendError("[fit] step " + std::to_string(result.steps) + ": the loss is not finite" +
                       (result.cause.empty() ? "" : ": " + result.cause) + kRemedy);
  if (const std::string path = variables.first_non_finite(); !path.empty())
    throw BackendError("[fit] " + path + ": a value is not finite at the end" + kRemedy);
}

// Of evaluate() and predict(), which come to their end whatever signal was sent.
class TestCallbacks : public CallbackList {
 public:
  explicit TestCallbacks(ModelInTraining& model) : CallbackList(model, nullptr) {}
  bool leave() const override { return false; }
};

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
  training.state.identity = identity_of(*state_, *sources.train, report, options);
  training.state.steps_before = state_->steps;
  training.state.epochs_before = state_->epochs - options.initial_epoch;
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

Results Model::evaluate(const Values& x, const Values& y, const EvaluateOptions& options) {
  return evaluate(*source_of("evaluate", *state_, x, y, options.sample_weight), options);
}

Results Model::evaluate(const Dataset& data, const EvaluateOptions& options) {
  return evaluate(*dataset_source(data, options.steps), options);
}

Results Model::evaluate(Source& data, const EvaluateOptions& options) {
  state_->require_compiled("evaluate");
  ModelCall call(*state_, {.kind = StepKind::evaluate,
                           .data = &data,
                           .batch = data.batch() > 0 ? data.batch() : options.batch_size,
                           .steps = checked_steps("evaluate", options.steps),
                           .threads = options.threads,
                           .x_scale = options.x_scale,
                           .callbacks = options.callbacks});
  Session session = call.start(call.plan(options.memory, false), 0);
  ModelInTraining model{.session = session,
                        .compiled = *state_->compiled,
                        .metrics = log_names(session.plan()),
                        .test_metrics = test_log_names(session.plan()),
                        .callbacks = options.callbacks,
                        .carried = carried_weights(state_->network)};
  TestCallbacks callbacks(model);
  const Evaluated evaluation = pl::evaluate(session, data, call.batch(), &callbacks, options.steps);
  Results results{{"loss", evaluation.loss}};
  const std::vector<std::string> names = log_names(session.plan());
  for (size_t m = 0; m < names.size(); ++m) results[names[m]] = evaluation.metrics[m];
  call.keep(std::move(session));
  return results;
}

Tensor Model::predict(const Values& x, const PredictOptions& options) {
  return predict(*source_of("predict", *state_, x, {}, {}), options);
}

Tensor Model::predict(const Dataset& data, const PredictOptions& options) {
  return predict(*dataset_source(data, options.steps), options);
}

Tensor Model::predict(Source& data, const PredictOptions& options) {
  state_->build_for(data);
  if (const size_t outputs = state_->network.output_shapes().size(); outputs != 1)
    throw UserError("[predict] expected a model with one output, received " +
                    std::to_string(outputs) + "; call predict_all");
  return predict_all(data, options)[0];
}

Tensors Model::predict_all(const Values& x, const PredictOptions& options) {
  return predict_all(*source_of("predict", *state_, x, {}, {}), options);
}

Tensors Model::predict_all(const Dataset& data, const PredictOptions& options) {
  return predict_all(*dataset_source(data, options.steps), options);
}

Tensors Model::predict_all(Source& data, const PredictOptions& options) {
  state_->build_for(data);
  Metas metas;
  Bytes bytes = 0;
  const int64_t batch = data.batch() > 0 ? data.batch() : options.batch_size;
  const int64_t samples =
      batch > 0 ? samples_in(data.size(), batch, checked_steps("predict", options.steps)) : 0;
  for (const Shape& shape : state_->network.output_shapes()) {
    metas.push_back({state_->settings().dtype.variable, shape.with_front(samples)});
    bytes += metas.back().bytes();
  }
  ModelCall call(*state_, {.kind = StepKind::predict,
                           .data = &data,
                           .batch = batch,
                           .steps = options.steps,
                           .threads = options.threads,
                           .x_scale = options.x_scale,
                           .extra_bytes = bytes,
                           .callbacks = options.callbacks});
  const PlanReport report = call.plan(options.memory, false);
  require_room(report, 0, &state_->where());
  Tensors results;
  std::vector<void*> places;
  for (const Meta& meta : metas) places.push_back(results.emplace_back(meta).data());
  Session session = call.start(report, 0);
  const Compiled compiled = state_->settings();
  ModelInTraining model{.session = session,
                        .compiled = compiled,
                        .callbacks = options.callbacks,
                        .carried = carried_weights(state_->network)};
  TestCallbacks callbacks(model);
  pl::predict(session, data, call.batch(), places, &callbacks, options.steps);
  call.keep(std::move(session));
  return results;
}

namespace {

int64_t rows_of(const Values& x) {
  const bool known =
      !x.empty() && x.list[0].values.defined() && x.list[0].values.shape().rank() > 0;
  return known ? std::max<int64_t>(1, x.list[0].values.shape()[0]) : 1;
}

// While a call for one batch is under way.
class OneBatch {
 public:
  explicit OneBatch(ModelState& state) : state_(state) { state_.one_batch = true; }
  ~OneBatch() { state_.one_batch = false; }
  OneBatch(const OneBatch&) = delete;
  OneBatch& operator=(const OneBatch&) = delete;

 private:
  ModelState& state_;
};

}  // namespace

Results Model::train_on_batch(const Values& x, const Values& y, const BatchOptions& options) {
  const OneBatch scope(*state_);
  const History history = fit(x, y,
                              {.batch_size = rows_of(x),
                               .verbose = 0,
                               .shuffle = false,
                               .class_weight = options.class_weight,
                               .sample_weight = options.sample_weight,
                               .memory = options.memory,
                               .seed = options.seed,
                               .threads = options.threads,
                               .x_scale = options.x_scale});
  Results results;
  for (const auto& [name, values] : history.history) results[name] = values.back();
  return results;
}

Results Model::test_on_batch(const Values& x, const Values& y, const BatchOptions& options) {
  const OneBatch scope(*state_);
  return evaluate(x, y,
                  {.batch_size = rows_of(x),
                   .sample_weight = options.sample_weight,
                   .memory = options.memory,
                   .threads = options.threads,
                   .x_scale = options.x_scale});
}

Tensor Model::predict_on_batch(const Values& x, const BatchOptions& options) {
  const OneBatch scope(*state_);
  return predict(x, {.batch_size = rows_of(x),
                     .memory = options.memory,
                     .threads = options.threads,
                     .x_scale = options.x_scale});
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
