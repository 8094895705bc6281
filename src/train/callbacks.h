// The ready-made callbacks, with Keras's names, defaults and decisions.
#pragma once

#include <concepts>
#include <functional>
#include <optional>
#include <string>

#include "train/callback.h"

namespace pl {

// "epoch", or a number of batches.
struct SaveFreq {
  SaveFreq() = default;
  SaveFreq(const char* text);  // throws UserError unless "epoch"
  SaveFreq(std::integral auto every) : batches(checked(static_cast<int64_t>(every))) {}
  int64_t batches = 0;  // 0: epochs

 private:
  static int64_t checked(int64_t every);  // throws UserError unless positive
};

struct EarlyStoppingOptions {
  std::string monitor = "val_loss";
  double min_delta = 0;
  int64_t patience = 0;
  int verbose = 0;
  std::string mode = "auto";  // "min", "max"
  std::optional<double> baseline = {};
  bool restore_best_weights = false;  // a copy of the weights, which is on the bill
  int64_t start_from_epoch = 0;
};
CallbackRef EarlyStopping(EarlyStoppingOptions options = {});

struct ReduceLROnPlateauOptions {
  std::string monitor = "val_loss";
  double factor = 0.1;
  int64_t patience = 10;
  int verbose = 0;
  std::string mode = "auto";
  double min_delta = 1e-4;
  int64_t cooldown = 0;
  double min_lr = 0;
};
CallbackRef ReduceLROnPlateau(ReduceLROnPlateauOptions options = {});

// From the epoch and the learning rate so far to that of the epoch.
CallbackRef LearningRateScheduler(std::function<double(int64_t epoch, double rate)> schedule,
                                  int verbose = 0);

// Without it a non-finite loss ends fit() with an error; with it fit() returns.
CallbackRef TerminateOnNaN(bool raise_error = false);

struct LambdaHooks {
  std::function<void(int64_t epoch, const Logs&)> on_epoch_begin = {};
  std::function<void(int64_t epoch, Logs&)> on_epoch_end = {};
  std::function<void(const Logs&)> on_train_begin = {}, on_train_end = {};
  std::function<void(int64_t batch, const Logs&)> on_train_batch_begin = {},
                                                  on_train_batch_end = {};
  std::function<void(const Logs&)> on_test_begin = {}, on_test_end = {}, on_predict_begin = {},
                                   on_predict_end = {};
  std::function<void(int64_t batch, const Logs&)> on_test_batch_begin = {}, on_test_batch_end = {},
                                                  on_predict_batch_begin = {},
                                                  on_predict_batch_end = {};
};
CallbackRef LambdaCallback(LambdaHooks hooks);

struct CSVLoggerOptions {
  std::string separator = ",";
  bool append = false;
};
CallbackRef CSVLogger(const std::string& filename, CSVLoggerOptions options = {});

struct ModelCheckpointOptions {
  std::string monitor = "val_loss";
  int verbose = 0;
  bool save_best_only = false;
  bool save_weights_only = false;
  std::string mode = "auto";
  SaveFreq save_freq = {};
  std::optional<double> initial_value_threshold = {};
};
// `filepath` as in Keras: "{epoch:02d}-{val_loss:.2f}". A checkpoint is a folder, which
// Model::load_checkpoint takes; weights alone are a .safetensors file.
CallbackRef ModelCheckpoint(const std::string& filepath, ModelCheckpointOptions options = {});

struct BackupOptions {
  SaveFreq save_freq = {};
  bool delete_checkpoint = true;  // when training has come to its end
  int64_t keep = 2;               // the last so many; none is lost before the next is durable
  bool asynchronous = true;       // written beside training when the budget has room for a copy
};
// Saves while training, and when a signal ends it; a fit() that finds a checkpoint in `backup_dir`
// goes on from it, in the middle of an epoch if need be, with the same numbers as if it had never
// stopped.
CallbackRef BackupAndRestore(const std::string& backup_dir, BackupOptions options = {});

// The same for runs of the command line: after every `every` batches (0: none), after each epoch,
// the one with the lowest validation loss kept besides the last, never deleted. `from`: the folder
// of checkpoints to go on from; empty: none.
CallbackRef RunCheckpoints(const std::string& folder, int64_t every, int64_t keep,
                           const std::string& from);

// With an optimiser that has use_ema: the averages stand in for the weights while the model is
// evaluated, and from the end of an epoch to the next one's begin with `swap_on_epoch`.
CallbackRef SwapEMAWeights(bool swap_on_epoch = false);

struct TensorBoardOptions {
  int64_t histogram_freq = 0;  // epochs; weights as histograms
  bool write_steps_per_second = false;
  SaveFreq update_freq = {};  // batches: also "batch_loss" and so on
};
// Event files in log_dir/train and log_dir/validation.
CallbackRef TensorBoard(const std::string& log_dir = "logs", TensorBoardOptions options = {});

}  // namespace pl
