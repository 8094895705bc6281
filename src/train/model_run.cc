// Model: evaluate, predict, and calls for one batch.
#include <algorithm>

#include "base/error.h"
#include "data/pipeline/dataset_source.h"
#include "train/model.h"
#include "train/model_call.h"
#include "train/model_data.h"

namespace pl {
namespace {

// Of evaluate() and predict(), which come to their end whatever signal was sent.
class TestCallbacks : public CallbackList {
 public:
  explicit TestCallbacks(ModelInTraining& model) : CallbackList(model, nullptr) {}
  bool leave() const override { return false; }
};

}  // namespace

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

}  // namespace pl
