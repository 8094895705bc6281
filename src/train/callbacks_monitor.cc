// Callbacks that watch the logs: EarlyStopping, ReduceLROnPlateau, LearningRateScheduler,
// TerminateOnNaN, LambdaCallback.
#include "train/callbacks_monitor.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstring>

#include "backend/cpu/host_memory.h"
#include "base/error.h"
#include "base/number_text.h"
#include "train/callbacks.h"
#include "train/optimizer.h"
#include "train/variables.h"

namespace pl {
namespace {

// Metrics that should grow, by Keras's _direction; what has another name is not guessed.
bool grows(const std::string& metric) {
  for (const char* part : {"accuracy", "auc", "precision", "recall", "f1_score", "fbeta_score",
                           "r2_score", "cosine_similarity", "iou", "mean_io_u", "true_positives",
                           "true_negatives", "sensitivity", "specificity", "correlation"})
    if (metric.find(part) != std::string::npos) return true;
  return metric == "acc";
}

bool shrinks(const std::string& metric) {
  for (const char* part : {"loss", "error", "crossentropy", "divergence", "hinge", "log_cosh",
                           "logcosh", "poisson", "false_positives", "false_negatives"})
    if (metric.find(part) != std::string::npos) return true;
  return metric == "mse" || metric == "mae" || metric == "mape" || metric == "msle";
}

}  // namespace

Monitor::Monitor(const char* callback, std::string monitor, const std::string& mode,
                 double min_delta)
    : callback_(callback), monitor_(std::move(monitor)), min_delta_(std::fabs(min_delta)) {
  if (mode != "auto" && mode != "min" && mode != "max")
    throw UserError("[callbacks] " + std::string(callback) +
                    ": mode: expected auto, min or max, received '" + mode + "'");
  const std::string metric = monitor_.starts_with("val_") ? monitor_.substr(4) : monitor_;
  greater_ = mode == "max" || (mode == "auto" && grows(metric));
  if (mode == "auto" && !grows(metric) && !shrinks(metric))
    throw UserError("[callbacks] " + std::string(callback) + ": monitor '" + monitor_ +
                    "': expected a metric known to grow or to shrink; say mode = \"max\" or " +
                    "mode = \"min\"");
  if (!greater_) min_delta_ = -min_delta_;
}

std::optional<double> Monitor::value(const Logs& logs) {
  const auto at = logs.find(monitor_);
  if (at != logs.end()) return at->second;
  if (!warned_) {
    std::string known;
    for (const auto& [name, value] : logs) known += (known.empty() ? "" : ", ") + name;
    std::fprintf(stderr, "plimsoll: warning: [callbacks] %s: '%s' is not among the logs: %s\n",
                 callback_, monitor_.c_str(), known.c_str());
  }
  warned_ = true;
  return std::nullopt;
}

bool Monitor::better(double value, const std::optional<double>& than) const {
  if (!than) return true;
  return greater_ ? value - min_delta_ > *than : value - min_delta_ < *than;
}

Json optional_json(const std::optional<double>& value) {
  return value ? real_json(*value) : Json();
}

std::optional<double> optional_from(const Json& json, const std::string& what) {
  if (json.is_null()) return std::nullopt;
  return real_from(json, what);
}

namespace {

class EarlyStoppingCallback : public Callback {
 public:
  explicit EarlyStoppingCallback(EarlyStoppingOptions options)
      : options_(std::move(options)),
        monitor_("EarlyStopping", options_.monitor, options_.mode, options_.min_delta) {}

  void on_train_begin(const Logs&) override {
    wait_ = stopped_epoch_ = best_epoch_ = 0;
    best_.reset();
    has_best_weights_ = false;
    if (!options_.restore_best_weights) return;
    best_weights_ = Reservation(weight_bytes(model->variables().layout()));
    best_weights_.prefault();
  }

  void on_epoch_end(int64_t epoch, Logs& logs) override {
    const auto current = monitor_.value(logs);
    if (!current || epoch < options_.start_from_epoch) return;
    if (options_.restore_best_weights && !has_best_weights_) keep_weights(epoch);
    ++wait_;
    if (monitor_.better(*current, best_)) {
      best_ = *current;
      best_epoch_ = epoch;
      if (options_.restore_best_weights) keep_weights(epoch);
      if (!options_.baseline || monitor_.better(*current, options_.baseline)) wait_ = 0;
      return;
    }
    if (wait_ >= options_.patience && epoch > 0) {
      stopped_epoch_ = epoch;
      model->stop_training = true;
    }
  }

  void on_train_end(const Logs&) override {
    if (stopped_epoch_ > 0 && options_.verbose > 0)
      std::printf("Epoch %lld: early stopping\n", static_cast<long long>(stopped_epoch_ + 1));
    if (!has_best_weights_) return;
    if (options_.verbose > 0)
      std::printf("Restoring model weights from the end of the best epoch: %lld.\n",
                  static_cast<long long>(best_epoch_ + 1));
    each_weight([this](void* weight, Bytes at, Bytes bytes) {
      std::memcpy(weight, best_weights_.data() + at, static_cast<size_t>(bytes));
    });
    model->variables().written();
    best_weights_ = Reservation();
    has_best_weights_ = false;
  }

  Bytes resident_bytes(const VariableLayout& layout) const override {
    return options_.restore_best_weights ? weight_bytes(layout) : 0;
  }
  const char* name() const override { return "EarlyStopping"; }
  Json state() const override {
    return Json::object()
        .set("wait", wait_)
        .set("stopped_epoch", stopped_epoch_)
        .set("best_epoch", best_epoch_)
        .set("best", optional_json(best_))
        .set("has_weights", has_best_weights_);
  }
  std::vector<NamedBytes> tensors() const override {
    std::vector<NamedBytes> list;
    if (!has_best_weights_) return list;
    for (const auto& entry : model->variables().layout().entries)
      if (entry.category == Category::parameters)
        list.push_back({entry.path, entry.meta, best_weights_.data() + entry.at});
    return list;
  }
  Bytes tensor_bytes(const VariableLayout& layout) const override { return resident_bytes(layout); }
  void restore(const Json& state, const SafetensorsFile& tensors,
               const std::string& prefix) override {
    wait_ = state.at("wait", prefix).as_integer(prefix);
    stopped_epoch_ = state.at("stopped_epoch", prefix).as_integer(prefix);
    best_epoch_ = state.at("best_epoch", prefix).as_integer(prefix);
    best_ = optional_from(state.at("best", prefix), prefix);
    if (!options_.restore_best_weights || !state.at("has_weights", prefix).as_bool(prefix)) return;
    for (const auto& entry : model->variables().layout().entries)
      if (entry.category == Category::parameters)
        tensors.read(prefix + entry.path, best_weights_.data() + entry.at, entry.meta.bytes());
    has_best_weights_ = true;
  }

 private:
  void keep_weights(int64_t epoch) {
    each_weight([this](const void* weight, Bytes at, Bytes bytes) {
      std::memcpy(best_weights_.data() + at, weight, static_cast<size_t>(bytes));
    });
    has_best_weights_ = true;
    best_epoch_ = epoch;
  }

  // body(where the host finds it, where it lies among the weights, bytes)
  template <class Body>
  void each_weight(const Body& body) const {
    const Variables& variables = model->variables();
    for (size_t i = 0; i < variables.layout().entries.size(); ++i) {
      const auto& entry = variables.layout().entries[i];
      if (entry.category == Category::parameters)
        body(variables.at(i), entry.at, entry.meta.bytes());
    }
  }

  EarlyStoppingOptions options_;
  Monitor monitor_;
  int64_t wait_ = 0, stopped_epoch_ = 0, best_epoch_ = 0;
  std::optional<double> best_;
  Reservation best_weights_;
  bool has_best_weights_ = false;
};

// Two cannot set the learning rate.
void refuse_schedule(const ModelInTraining& model, const char* callback) {
  if (model.optimizer().schedule)
    throw UserError("[callbacks] " + std::string(callback) +
                    ": expected an optimizer whose learning_rate is a number, received one with a "
                    "schedule; use one of them");
}

class ReduceLROnPlateauCallback : public Callback {
 public:
  explicit ReduceLROnPlateauCallback(ReduceLROnPlateauOptions options)
      : options_(std::move(options)),
        monitor_("ReduceLROnPlateau", options_.monitor, options_.mode, options_.min_delta) {
    if (!(options_.factor < 1))
      throw UserError("[callbacks] ReduceLROnPlateau: factor: expected less than 1, received " +
                      number_text(options_.factor));
  }

  void on_train_begin(const Logs&) override {
    refuse_schedule(*model, "ReduceLROnPlateau");
    best_.reset();
    cooldown_ = wait_ = 0;
  }

  void on_epoch_end(int64_t epoch, Logs& logs) override {
    double& rate = model->optimizer().learning_rate;
    logs["learning_rate"] = rate;
    const auto current = monitor_.value(logs);
    if (!current) return;
    if (cooldown_ > 0) {
      --cooldown_;
      wait_ = 0;
    }
    if (monitor_.better(*current, best_)) {
      best_ = *current;
      wait_ = 0;
    } else if (cooldown_ == 0 && ++wait_ >= options_.patience && rate > options_.min_lr) {
      rate = std::max(rate * options_.factor, options_.min_lr);
      if (options_.verbose > 0)
        std::printf("\nEpoch %lld: ReduceLROnPlateau reducing learning rate to %g.\n",
                    static_cast<long long>(epoch + 1), rate);
      cooldown_ = options_.cooldown;
      wait_ = 0;
    }
  }

  const char* name() const override { return "ReduceLROnPlateau"; }
  Json state() const override {
    return Json::object()
        .set("best", optional_json(best_))
        .set("wait", wait_)
        .set("cooldown", cooldown_);
  }
  void restore(const Json& state, const SafetensorsFile&, const std::string& what) override {
    best_ = optional_from(state.at("best", what), what);
    wait_ = state.at("wait", what).as_integer(what);
    cooldown_ = state.at("cooldown", what).as_integer(what);
  }

 private:
  ReduceLROnPlateauOptions options_;
  Monitor monitor_;
  std::optional<double> best_;
  int64_t wait_ = 0, cooldown_ = 0;
};

class LearningRateSchedulerCallback : public Callback {
 public:
  LearningRateSchedulerCallback(std::function<double(int64_t, double)> schedule, int verbose)
      : schedule_(std::move(schedule)), verbose_(verbose) {
    if (!schedule_)
      throw UserError("[callbacks] LearningRateScheduler: expected a function, received none");
  }
  void on_train_begin(const Logs&) override { refuse_schedule(*model, "LearningRateScheduler"); }
  void on_epoch_begin(int64_t epoch, const Logs&) override {
    double& rate = model->optimizer().learning_rate;
    rate = schedule_(epoch, rate);
    if (verbose_ > 0)
      std::printf("\nEpoch %lld: LearningRateScheduler setting learning rate to %g.\n",
                  static_cast<long long>(epoch + 1), rate);
  }
  void on_epoch_end(int64_t, Logs& logs) override {
    logs["learning_rate"] = model->optimizer().learning_rate;
  }
  const char* name() const override { return "LearningRateScheduler"; }

 private:
  std::function<double(int64_t, double)> schedule_;
  int verbose_;
};

class TerminateOnNaNCallback : public Callback {
 public:
  explicit TerminateOnNaNCallback(bool raise_error) : raise_error_(raise_error) {}
  void on_train_begin(const Logs&) override { model->nan_is_handled = !raise_error_; }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    const auto loss = logs.find("loss");
    if (loss == logs.end() || std::isfinite(loss->second)) return;
    if (raise_error_)
      throw BackendError("[fit] NaN or Inf loss encountered at batch " + std::to_string(batch) +
                         ". Loss value: " + number_text(loss->second) +
                         ". Terminating training immediately.");
    std::printf("Batch %lld: Invalid loss, terminating training\n", static_cast<long long>(batch));
    model->stop_training = true;
  }
  const char* name() const override { return "TerminateOnNaN"; }

 private:
  bool raise_error_;
};

class LambdaCallbackObject : public Callback {
 public:
  explicit LambdaCallbackObject(LambdaHooks hooks) : hooks_(std::move(hooks)) {}
  void on_epoch_begin(int64_t epoch, const Logs& logs) override {
    if (hooks_.on_epoch_begin) hooks_.on_epoch_begin(epoch, logs);
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    if (hooks_.on_epoch_end) hooks_.on_epoch_end(epoch, logs);
  }
  void on_train_begin(const Logs& logs) override {
    if (hooks_.on_train_begin) hooks_.on_train_begin(logs);
  }
  void on_train_end(const Logs& logs) override {
    if (hooks_.on_train_end) hooks_.on_train_end(logs);
  }
  void on_train_batch_begin(int64_t batch, const Logs& logs) override {
    if (hooks_.on_train_batch_begin) hooks_.on_train_batch_begin(batch, logs);
  }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    if (hooks_.on_train_batch_end) hooks_.on_train_batch_end(batch, logs);
  }
  void on_test_begin(const Logs& logs) override {
    if (hooks_.on_test_begin) hooks_.on_test_begin(logs);
  }
  void on_test_end(const Logs& logs) override {
    if (hooks_.on_test_end) hooks_.on_test_end(logs);
  }
  void on_predict_begin(const Logs& logs) override {
    if (hooks_.on_predict_begin) hooks_.on_predict_begin(logs);
  }
  void on_predict_end(const Logs& logs) override {
    if (hooks_.on_predict_end) hooks_.on_predict_end(logs);
  }
  void on_test_batch_begin(int64_t batch, const Logs& logs) override {
    if (hooks_.on_test_batch_begin) hooks_.on_test_batch_begin(batch, logs);
  }
  void on_test_batch_end(int64_t batch, const Logs& logs) override {
    if (hooks_.on_test_batch_end) hooks_.on_test_batch_end(batch, logs);
  }
  void on_predict_batch_begin(int64_t batch, const Logs& logs) override {
    if (hooks_.on_predict_batch_begin) hooks_.on_predict_batch_begin(batch, logs);
  }
  void on_predict_batch_end(int64_t batch, const Logs& logs) override {
    if (hooks_.on_predict_batch_end) hooks_.on_predict_batch_end(batch, logs);
  }
  const char* name() const override { return "LambdaCallback"; }

 private:
  LambdaHooks hooks_;
};

}  // namespace

CallbackRef EarlyStopping(EarlyStoppingOptions options) {
  return std::make_shared<EarlyStoppingCallback>(std::move(options));
}

CallbackRef ReduceLROnPlateau(ReduceLROnPlateauOptions options) {
  return std::make_shared<ReduceLROnPlateauCallback>(std::move(options));
}

CallbackRef LearningRateScheduler(std::function<double(int64_t, double)> schedule, int verbose) {
  return std::make_shared<LearningRateSchedulerCallback>(std::move(schedule), verbose);
}

CallbackRef TerminateOnNaN(bool raise_error) {
  return std::make_shared<TerminateOnNaNCallback>(raise_error);
}

CallbackRef LambdaCallback(LambdaHooks hooks) {
  return std::make_shared<LambdaCallbackObject>(std::move(hooks));
}

}  // namespace pl
