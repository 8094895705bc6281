// Callback: what a user hangs into training, with Keras's hooks. Ready-made ones are in
// callbacks.h.
//
//   struct Stop : Callback {
//     void on_epoch_end(int64_t epoch, Logs& logs) override {
//       if (logs["loss"] < 0.1) model->stop_training = true;
//     }
//   };
//   model.fit(x, y, {.epochs = 9, .callbacks = {std::make_shared<Stop>()}});
#pragma once

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/json.h"
#include "data/safetensors.h"
#include "train/train_state.h"

namespace pl {

struct Compiled;
class Optimizer;
class Session;
class Variables;
struct VariableLayout;

using Logs = std::map<std::string, double>;  // "loss", "accuracy", "val_loss", ...

class Callback;
using CallbackRef = std::shared_ptr<Callback>;

// A model while it trains, as callbacks see it.
struct ModelInTraining {
  bool stop_training = false;  // the epoch ends after this step, and training with it

  Optimizer& optimizer() const;
  // Of the next step, as Keras's optimizer has it: schedules count steps, whatever is accumulated.
  double learning_rate() const;
  // Keras's optimizer.iterations: updates, of which gradient_accumulation_steps steps are one and a
  // step that loss scaling left out is none.
  int64_t iterations() const;
  int64_t steps() const { return state.steps_before + state.position.steps; }  // since compile()
  Variables& variables() const;
  void reset_state() const;  // of stateful layers, as Model::reset_state()
  void save_weights(const std::string& path) const;
  // Everything that going on needs: see checkpoint.h.
  void save_checkpoint(const std::string& folder) const;

  Session& session;
  const Compiled& compiled;
  std::vector<std::string> metrics;       // names in logs, without "loss"
  std::vector<std::string> test_metrics;  // and in those of evaluation
  int64_t epochs = 0;                     // of this run
  TrainState state = {};        // as of the last step; callbacks' part is filled in on saving
  Bytes snapshot = 0;           // granted for writing checkpoints beside training
  bool resumed = false;         // goes on from a checkpoint
  bool nan_is_handled = false;  // a callback ends training on a non-finite loss
  std::vector<CallbackRef> callbacks = {};
  std::vector<size_t> carried = {};  // variables of stateful layers

  // What is saved: tensors of variables and callbacks, and the state.
  std::vector<NamedBytes> saved_tensors() const;
  TrainState saved_state() const;
};

// All hooks do nothing by default. Epochs and batches count from 0. `logs` of batches are means
// over the epoch so far; of epochs, a callback may add entries, which later ones and History see.
class Callback {
 public:
  virtual ~Callback() = default;
  virtual void on_train_begin(const Logs& /*logs*/) {}
  virtual void on_train_end(const Logs& /*logs*/) {}
  virtual void on_epoch_begin(int64_t /*epoch*/, const Logs& /*logs*/) {}
  virtual void on_epoch_end(int64_t /*epoch*/, Logs& /*logs*/) {}
  virtual void on_train_batch_begin(int64_t /*batch*/, const Logs& /*logs*/) {}
  virtual void on_train_batch_end(int64_t /*batch*/, const Logs& /*logs*/) {}
  virtual void on_test_begin(const Logs& /*logs*/) {}
  virtual void on_test_end(const Logs& /*logs*/) {}
  virtual void on_test_batch_begin(int64_t /*batch*/, const Logs& /*logs*/) {}
  virtual void on_test_batch_end(int64_t /*batch*/, const Logs& /*logs*/) {}
  virtual void on_predict_begin(const Logs& /*logs*/) {}
  virtual void on_predict_end(const Logs& /*logs*/) {}
  virtual void on_predict_batch_begin(int64_t /*batch*/, const Logs& /*logs*/) {}
  virtual void on_predict_batch_end(int64_t /*batch*/, const Logs& /*logs*/) {}

  // Ours, with defaults that suit most callbacks.

  // After every batch and every epoch, when all callbacks have seen it: the place to save.
  virtual void on_boundary() {}
  // A signal ends training here; on_train_end is not called. Answers where it was saved, or "".
  virtual std::string on_interrupt() { return ""; }
  // Whether signals should end training between steps, so that on_interrupt is called.
  virtual bool wants_signals() const { return false; }
  // Something of its runs beside the next step.
  virtual bool busy() const { return false; }
  // The checkpoint that training should go on from, or none.
  virtual std::optional<std::string> resume_from() { return std::nullopt; }

  // Memory, known before step 1: what it holds, and what it would like besides to write beside
  // training, `saved` bytes being all that a checkpoint has.
  virtual Bytes resident_bytes(const VariableLayout& /*layout*/) const { return 0; }
  virtual Bytes wanted_bytes(Bytes /*saved*/) const { return 0; }

  // What it remembers, for checkpoints. Its tensors are saved too, under names of their own.
  virtual const char* name() const { return "Callback"; }
  virtual Json state() const { return {}; }
  virtual std::vector<NamedBytes> tensors() const { return {}; }
  // Those whose lengths state() tells: they are durable before the checkpoint is.
  virtual std::vector<std::string> files() const { return {}; }
  virtual Bytes tensor_bytes(const VariableLayout& /*layout*/) const { return 0; }
  // After on_train_begin, when the run goes on from a checkpoint. `prefix`: of its tensors' names.
  virtual void restore(const Json& /*state*/, const SafetensorsFile& /*tensors*/,
                       const std::string& /*prefix*/) {}

  ModelInTraining* model = nullptr;  // set while training
};

}  // namespace pl
