// Callbacks that write: CSVLogger, ModelCheckpoint, BackupAndRestore.
#include <cstdio>
#include <filesystem>

#include "base/append_file.h"
#include "base/error.h"
#include "base/file.h"
#include "train/callbacks.h"
#include "train/callbacks_monitor.h"
#include "train/checkpoint_store.h"
#include "train/python_format.h"

namespace pl {

SaveFreq::SaveFreq(const char* text) {
  if (std::string_view(text ? text : "") != "epoch")
    throw UserError("[callbacks] save_freq: expected \"epoch\" or a number of batches, received '" +
                    std::string(text ? text : "") + "'");
}

int64_t SaveFreq::checked(int64_t every) {
  if (every < 1)
    throw UserError("[callbacks] save_freq: expected \"epoch\" or a positive number of batches, " +
                    std::string("received ") + std::to_string(every));
  return every;
}

namespace {

// Every so many batches, over the ends of epochs.
class BatchCounter {
 public:
  bool due(const SaveFreq& freq) {
    if (freq.batches == 0 || ++seen_ < freq.batches) return false;
    seen_ = 0;
    return true;
  }
  int64_t seen() const { return seen_; }
  void set(int64_t seen) { seen_ = seen; }

 private:
  int64_t seen_ = 0;
};

class CSVLoggerCallback : public Callback {
 public:
  CSVLoggerCallback(std::string filename, CSVLoggerOptions options)
      : filename_(std::move(filename)), options_(std::move(options)) {}

  void on_train_begin(const Logs&) override {
    // What a resumed run keeps of it is known in restore().
    file_.open(filename_, options_.append || model->resumed ? kAll : 0);
    with_header_ = file_.size() == 0;
    keys_.clear();
  }

  void on_epoch_end(int64_t epoch, Logs& logs) override {
    if (keys_.empty()) choose_keys(logs);
    std::string row = std::to_string(epoch);
    for (const std::string& key : keys_) {
      const auto at = logs.find(key);
      row += options_.separator + (at == logs.end() ? "NA" : python_repr(at->second));
    }
    if (with_header_) {
      std::string header = "epoch";
      for (const std::string& key : keys_) header += options_.separator + key;
      file_.write(header + "\r\n");
    }
    with_header_ = false;
    file_.write(row + "\r\n");
  }

  void on_train_end(const Logs&) override { file_.close(); }

  const char* name() const override { return "CSVLogger"; }
  Json state() const override {
    Json keys = Json::array();
    for (const std::string& key : keys_) keys.push(key);
    return Json::object().set("bytes", file_.size()).set("keys", std::move(keys));
  }
  std::vector<std::string> files() const override { return {filename_}; }
  void restore(const Json& state, const SafetensorsFile&, const std::string& what) override {
    file_.open(filename_, state.at("bytes", what).as_integer(what));
    with_header_ = file_.size() == 0;
    for (const Json& key : state.at("keys", what).as_array(what))
      keys_.push_back(key.as_string(what));
  }

 private:
  static constexpr Bytes kAll = Bytes{1} << 60;

  // Sorted; without validation in the first epoch there is room for it all the same.
  void choose_keys(const Logs& logs) {
    bool validated = false;
    for (const auto& [key, value] : logs) {
      keys_.push_back(key);
      if (key.starts_with("val_")) validated = true;
    }
    if (validated) return;
    for (size_t i = 0, n = keys_.size(); i < n; ++i) keys_.push_back("val_" + keys_[i]);
  }

  std::string filename_;
  CSVLoggerOptions options_;
  AppendFile file_;
  std::vector<std::string> keys_;
  bool with_header_ = true;
};

class ModelCheckpointCallback : public Callback {
 public:
  ModelCheckpointCallback(std::string filepath, ModelCheckpointOptions options)
      : filepath_(std::move(filepath)),
        options_(std::move(options)),
        monitor_("ModelCheckpoint", options_.monitor,
                 options_.save_best_only || options_.mode != "auto" ? options_.mode : "min", 0),
        best_(options_.initial_value_threshold) {
    if (options_.save_weights_only && !filepath_.ends_with(".safetensors"))
      throw UserError("[callbacks] ModelCheckpoint: filepath: expected a name that ends in " +
                      std::string(".safetensors for weights alone, received '") + filepath_ + "'");
  }

  void on_epoch_begin(int64_t epoch, const Logs&) override { epoch_ = epoch; }
  void on_train_batch_end(int64_t batch, const Logs& logs) override {
    if (counter_.due(options_.save_freq))
      decide({{"epoch", epoch_ + 1}, {"batch", batch + 1}}, logs);
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    if (options_.save_freq.batches == 0) decide({{"epoch", epoch + 1}}, logs);
  }
  void on_boundary() override {
    if (due_.empty()) return;
    const std::string folder = due_;
    due_.clear();
    model->save_checkpoint(folder);
  }

  Bytes resident_bytes(const VariableLayout& layout) const override {
    return checkpoint_bytes(layout.entries.size());
  }
  const char* name() const override { return "ModelCheckpoint"; }
  Json state() const override {
    return Json::object()
        .set("best", optional_json(best_))
        .set("seen", counter_.seen())
        .set("epoch", epoch_);
  }
  void restore(const Json& state, const SafetensorsFile&, const std::string& what) override {
    best_ = optional_from(state.at("best", what), what);
    counter_.set(state.at("seen", what).as_integer(what));
    epoch_ = state.at("epoch", what).as_integer(what);
  }

 private:
  void decide(const std::map<std::string, int64_t>& where, const Logs& logs) {
    const std::string path = python_format(filepath_, where, logs);
    const auto epoch = static_cast<long long>(where.at("epoch"));
    if (!improved(epoch, path, logs)) return;
    if (options_.save_weights_only) {
      const std::string folder = std::filesystem::path(path).parent_path().string();
      if (!folder.empty()) make_directories(folder);
      model->save_weights(path);
    } else {
      due_ = path;
    }
    if (options_.verbose > 0)
      std::printf("\nEpoch %lld: finished saving model to %s\n", epoch, path.c_str());
  }

  bool improved(long long epoch, const std::string& path, const Logs& logs) {
    const auto current = options_.save_best_only ? monitor_.value(logs) : std::nullopt;
    const std::string was = best_ ? python_format("{best:.5f}", {}, {{"best", *best_}}) : "None";
    if (!current) {
      if (options_.verbose > 0 && !options_.save_best_only)
        std::printf("\nEpoch %lld: saving model to %s\n", epoch, path.c_str());
      return true;
    }
    const bool better = monitor_.better(*current, best_);
    if (options_.verbose > 0 && better)
      std::printf("\nEpoch %lld: %s improved from %s to %.5f, saving model to %s\n", epoch,
                  monitor_.name().c_str(), was.c_str(), *current, path.c_str());
    else if (options_.verbose > 0)
      std::printf("\nEpoch %lld: %s did not improve from %s\n", epoch, monitor_.name().c_str(),
                  was.c_str());
    if (better) best_ = current;
    return better;
  }

  std::string filepath_;
  ModelCheckpointOptions options_;
  Monitor monitor_;
  BatchCounter counter_;
  std::optional<double> best_;
  int64_t epoch_ = 0;
  std::string due_;  // where the next boundary saves
};

// What BackupAndRestore and the command line's runs have in common.
struct BackupPlan {
  std::string folder;
  std::string from;       // where to look for a checkpoint to go on from; empty: nowhere
  SaveFreq batches = {};  // 0: none
  bool epochs = true, asynchronous = true, delete_at_end = false;
  int64_t keep = 2;
  bool keep_best = false;
};

class BackupCallback : public Callback {
 public:
  explicit BackupCallback(BackupPlan plan) : plan_(std::move(plan)) {
    if (plan_.folder.empty())
      throw UserError("[callbacks] BackupAndRestore: backup_dir: expected a folder, received none");
    if (plan_.keep < 1)
      throw UserError("[callbacks] BackupAndRestore: keep: expected 1 or more, received " +
                      std::to_string(plan_.keep));
  }

  std::optional<std::string> resume_from() override {
    return plan_.from.empty() ? std::nullopt : latest_checkpoint(plan_.from);
  }
  bool wants_signals() const override { return true; }
  bool busy() const override { return writer_ && writer_->busy(); }

  void on_train_begin(const Logs&) override {
    writer_.reset();
    store_ = std::make_unique<CheckpointStore>(StoreOptions{plan_.folder, plan_.keep});
    if (!model->resumed) store_->remove_all();
    make_directories(plan_.folder);
    check_writable((std::filesystem::path(plan_.folder) / kManifest).string());
    writer_ = std::make_unique<CheckpointWriter>(*store_, model->snapshot);
    due_ = false;
  }
  void on_train_batch_end(int64_t, const Logs&) override {
    if (counter_.due(plan_.batches)) due_ = true;
  }
  void on_epoch_end(int64_t, Logs&) override {
    if (plan_.epochs) due_ = true;
  }
  void on_boundary() override {
    if (!due_) return;
    due_ = false;
    // Whatever fails, the last good one is still there, and training is worth more than this one.
    finish_last();
    try {
      save();
    } catch (const Error& error) {
      warn(error);
    }
  }
  std::string on_interrupt() override {
    finish_last();
    save();
    writer_->wait();
    return plan_.folder;
  }
  void on_train_end(const Logs&) override {
    finish_last();
    if (plan_.delete_at_end) store_->remove_all();
    writer_.reset();
  }

  Bytes resident_bytes(const VariableLayout& layout) const override {
    return checkpoint_bytes(layout.entries.size());
  }
  Bytes wanted_bytes(Bytes saved) const override {
    return plan_.asynchronous ? snapshot_bytes(saved) : 0;
  }
  const char* name() const override { return "BackupAndRestore"; }
  Json state() const override { return Json::object().set("seen", counter_.seen()); }
  void restore(const Json& state, const SafetensorsFile&, const std::string& what) override {
    counter_.set(state.at("seen", what).as_integer(what));
  }

 private:
  void save() {
    TrainState state = model->saved_state();
    if (!plan_.keep_best) state.score.reset();
    writer_->save(model->saved_tensors(), std::move(state));
  }
  void finish_last() {
    try {
      writer_->wait();
    } catch (const Error& error) {
      warn(error);
    }
  }
  void warn(const Error& error) const {
    std::fprintf(stderr, "plimsoll: warning: [checkpoint] not saved, training goes on: %s\n",
                 error.what());
  }

  BackupPlan plan_;
  BatchCounter counter_;
  bool due_ = false;
  std::unique_ptr<CheckpointStore> store_;
  std::unique_ptr<CheckpointWriter> writer_;
};

}  // namespace

CallbackRef CSVLogger(const std::string& filename, CSVLoggerOptions options) {
  return std::make_shared<CSVLoggerCallback>(filename, std::move(options));
}

CallbackRef ModelCheckpoint(const std::string& filepath, ModelCheckpointOptions options) {
  return std::make_shared<ModelCheckpointCallback>(filepath, std::move(options));
}

CallbackRef BackupAndRestore(const std::string& backup_dir, BackupOptions options) {
  return std::make_shared<BackupCallback>(BackupPlan{.folder = backup_dir,
                                                     .from = backup_dir,
                                                     .batches = options.save_freq,
                                                     .epochs = options.save_freq.batches == 0,
                                                     .asynchronous = options.asynchronous,
                                                     .delete_at_end = options.delete_checkpoint,
                                                     .keep = options.keep});
}

CallbackRef RunCheckpoints(const std::string& folder, int64_t every, int64_t keep,
                           const std::string& from) {
  BackupPlan plan{.folder = folder, .from = from, .asynchronous = every > 0, .keep = keep};
  plan.batches.batches = every;
  plan.keep_best = true;
  return std::make_shared<BackupCallback>(std::move(plan));
}

}  // namespace pl
