#include "train/callback_list.h"

#include <cstring>

#include "base/error.h"
#include "base/stop_signals.h"
#include "train/weights.h"

namespace pl {
namespace {

// "callbacks/EarlyStopping/0/": the first of its name.
std::string prefix_of(const std::vector<CallbackRef>& callbacks, size_t i) {
  int before = 0;
  for (size_t k = 0; k < i; ++k)
    if (std::string_view(callbacks[k]->name()) == callbacks[i]->name()) ++before;
  return std::string(kCallbackTensors) + callbacks[i]->name() + "/" + std::to_string(before) + "/";
}

}  // namespace

Optimizer& ModelInTraining::optimizer() const { return compiled.optimizer->inner(); }

double ModelInTraining::learning_rate() const {
  return update_moment(session, steps()).learning_rate;
}

int64_t ModelInTraining::iterations() const { return update_moment(session, steps()).update - 1; }

Variables& ModelInTraining::variables() const { return session.variables(); }

void ModelInTraining::reset_state() const {
  for (size_t i : carried)
    std::memset(variables().at(i), 0,
                static_cast<size_t>(variables().layout().entries[i].meta.bytes()));
  if (!carried.empty()) variables().written();
}

void ModelInTraining::save_weights(const std::string& path) const {
  pl::save_weights(path, session.variables());
}

std::vector<NamedBytes> ModelInTraining::saved_tensors() const {
  std::vector<NamedBytes> list = named_variables(session.variables());
  for (size_t i = 0; i < callbacks.size(); ++i)
    for (NamedBytes tensor : callbacks[i]->tensors()) {
      tensor.name = prefix_of(callbacks, i) + tensor.name;
      list.push_back(std::move(tensor));
    }
  return list;
}

TrainState ModelInTraining::saved_state() const {
  TrainState saved = state;
  saved.learning_rate = optimizer().learning_rate;
  saved.stop_training = stop_training;
  saved.callbacks = Json::array();
  for (size_t i = 0; i < callbacks.size(); ++i) {
    saved.callbacks.push(
        Json::object().set("name", prefix_of(callbacks, i)).set("state", callbacks[i]->state()));
    for (std::string& file : callbacks[i]->files()) saved.files.push_back(std::move(file));
  }
  return saved;
}

void ModelInTraining::save_checkpoint(const std::string& folder) const {
  write_checkpoint(folder, saved_tensors(), saved_state());
}

CallbackBill callback_bill(const std::vector<CallbackRef>& callbacks,
                           const VariableLayout& layout) {
  CallbackBill bill;
  Bytes saved = layout.bytes;
  for (const CallbackRef& callback : callbacks) {
    if (!callback) throw UserError("[fit] callbacks: expected callbacks, received an empty one");
    bill.resident += callback->resident_bytes(layout);
    saved += callback->tensor_bytes(layout);
  }
  for (const CallbackRef& callback : callbacks) bill.wanted += callback->wanted_bytes(saved);
  return bill;
}

std::unique_ptr<Checkpoint> find_resume(const std::vector<CallbackRef>& callbacks,
                                        const VariableLayout& layout) {
  for (const CallbackRef& callback : callbacks)
    if (const auto folder = callback->resume_from()) {
      auto checkpoint = std::make_unique<Checkpoint>(*folder);
      checkpoint->verify(layout);
      return checkpoint;
    }
  return nullptr;
}

CallbackList::CallbackList(ModelInTraining& model, const Checkpoint* from)
    : model_(model),
      executed_(model.compiled.steps_per_execution),
      from_(from),
      batch_logs_(model.metrics),
      test_logs_(model.test_metrics) {
  for (const CallbackRef& callback : model.callbacks) callback->model = &model;
  if (!from) return;
  TrainState state = train_state_from(from->state(), from->folder());
  warning_ = check_identity(state.identity, model.state.identity);
  state.identity = model.state.identity;
  from->load(model.variables());
  model.optimizer().learning_rate = state.learning_rate;
  model.stop_training = state.stop_training;
  model.state = std::move(state);
  model.resumed = true;
}

CallbackList::~CallbackList() {
  for (const CallbackRef& callback : model_.callbacks) callback->model = nullptr;
}

void CallbackList::on_train_begin() {
  for (const CallbackRef& callback : model_.callbacks) callback->on_train_begin(none_);
  if (!from_) return;
  const std::string& what = from_->folder();
  for (size_t i = 0; i < model_.callbacks.size(); ++i) {
    const std::string prefix = prefix_of(model_.callbacks, i);
    for (const Json& saved : model_.state.callbacks.as_array(what))
      if (saved.at("name", what).as_string(what) == prefix)
        model_.callbacks[i]->restore(saved.at("state", what), from_->tensors(), prefix);
  }
}

void CallbackList::on_epoch_begin(int64_t epoch, int64_t, int64_t, int64_t done) {
  if (done > 0) return;  // they have seen it before training was interrupted
  for (const CallbackRef& callback : model_.callbacks) callback->on_epoch_begin(epoch - 1, none_);
}

void CallbackList::on_step_begin(int64_t epoch_step) {
  if (!begins(epoch_step)) return;
  for (const CallbackRef& callback : model_.callbacks)
    callback->on_train_batch_begin(epoch_step, none_);
}

CallbackList::BatchLogs::BatchLogs(const std::vector<std::string>& metrics) {
  logs["loss"] = 0;
  for (const std::string& metric : metrics) logs[metric] = 0;
  values.push_back(&logs["loss"]);
  for (const std::string& metric : metrics) values.push_back(&logs[metric]);
}

Logs& CallbackList::BatchLogs::fill(double loss, const std::vector<double>& metrics) {
  *values[0] = loss;
  for (size_t m = 0; m < metrics.size() && m + 1 < values.size(); ++m) *values[m + 1] = metrics[m];
  return logs;
}

void CallbackList::on_step(const StepEvent& event) {
  if (!ends(event.epoch_step - 1) && event.epoch_step != event.epoch_steps) return;
  Logs& logs = batch_logs_.fill(event.mean_loss, event.mean_metrics);
  for (const CallbackRef& callback : model_.callbacks)
    callback->on_train_batch_end(event.epoch_step - 1, logs);
}

void CallbackList::on_test_begin() {
  for (const CallbackRef& callback : model_.callbacks) callback->on_test_begin(none_);
}

void CallbackList::on_test_step_begin(int64_t step) {
  if (!begins(step)) return;
  for (const CallbackRef& callback : model_.callbacks) callback->on_test_batch_begin(step, none_);
}

void CallbackList::on_test_step(int64_t step, const Evaluated& so_far) {
  Logs& logs = test_logs_.fill(so_far.loss, so_far.metrics);
  open_ = ends(step) ? -1 : step;
  if (open_ >= 0) return;
  for (const CallbackRef& callback : model_.callbacks) callback->on_test_batch_end(step, logs);
}

void CallbackList::on_test_end(const Evaluated& evaluated) {
  Logs& logs = test_logs_.fill(evaluated.loss, evaluated.metrics);
  if (open_ >= 0)
    for (const CallbackRef& callback : model_.callbacks) callback->on_test_batch_end(open_, logs);
  open_ = -1;
  for (const CallbackRef& callback : model_.callbacks) callback->on_test_end(logs);
}

void CallbackList::on_predict_begin() {
  for (const CallbackRef& callback : model_.callbacks) callback->on_predict_begin(none_);
}

void CallbackList::on_predict_step_begin(int64_t step) {
  if (!begins(step)) return;
  for (const CallbackRef& callback : model_.callbacks)
    callback->on_predict_batch_begin(step, none_);
}

void CallbackList::on_predict_step(int64_t step) {
  open_ = ends(step) ? -1 : step;
  if (open_ >= 0) return;
  for (const CallbackRef& callback : model_.callbacks) callback->on_predict_batch_end(step, none_);
}

void CallbackList::on_predict_end() {
  if (open_ >= 0)
    for (const CallbackRef& callback : model_.callbacks)
      callback->on_predict_batch_end(open_, none_);
  open_ = -1;
  for (const CallbackRef& callback : model_.callbacks) callback->on_predict_end(none_);
}

void CallbackList::on_epoch(const EpochEvent& event) {
  epoch_logs_.clear();
  epoch_logs_["loss"] = event.loss;
  if (event.val_loss) epoch_logs_["val_loss"] = *event.val_loss;
  for (size_t m = 0; m < model_.metrics.size() && m < event.metrics.size(); ++m)
    epoch_logs_[model_.metrics[m]] = event.metrics[m];
  for (size_t m = 0; m < model_.test_metrics.size() && m < event.val_metrics.size(); ++m)
    epoch_logs_["val_" + model_.test_metrics[m]] = event.val_metrics[m];
  model_.state.score = event.val_loss.value_or(event.loss);
  for (const CallbackRef& callback : model_.callbacks)
    callback->on_epoch_end(event.epoch - 1, epoch_logs_);
}

void CallbackList::on_boundary(const LoopPosition& position) {
  model_.state.position = position;
  for (const CallbackRef& callback : model_.callbacks) callback->on_boundary();
  model_.state.score.reset();
}

void CallbackList::on_train_end() {
  for (const CallbackRef& callback : model_.callbacks) callback->on_train_end(epoch_logs_);
}

bool CallbackList::leave() const { return StopSignals::received() != 0; }

bool CallbackList::busy() const {
  for (const CallbackRef& callback : model_.callbacks)
    if (callback->busy()) return true;
  return false;
}

void CallbackList::interrupted(const std::string& stage, const std::string& how) {
  const int signal = StopSignals::received();
  std::string saved;
  for (const CallbackRef& callback : model_.callbacks)
    if (const std::string place = callback->on_interrupt(); !place.empty()) saved = place;
  const LoopPosition& at = model_.state.position;
  throw Interrupted("[" + stage + "] stopped by " + StopSignals::name(signal) + " after step " +
                        std::to_string(at.steps) + " (epoch " + std::to_string(at.epoch) + ", " +
                        std::to_string(at.epoch_step) + " steps of it); " +
                        (saved.empty() ? "nothing was saved" : "saved in " + saved + "; " + how),
                    signal);
}

}  // namespace pl
