// CallbackList: brings the loop's events to callbacks in Keras's order, and their state into and
// out of checkpoints.
#pragma once

#include <optional>

#include "train/callback.h"
#include "train/checkpoint.h"

namespace pl {

// What callbacks ask of memory.
struct CallbackBill {
  Bytes resident = 0;  // held in any case
  Bytes wanted = 0;    // for writing beside training, if there is room
};
CallbackBill callback_bill(const std::vector<CallbackRef>& callbacks, const VariableLayout& layout);

// The checkpoint that one of the callbacks wants to go on from, checked against the layout.
std::unique_ptr<Checkpoint> find_resume(const std::vector<CallbackRef>& callbacks,
                                        const VariableLayout& layout);

class CallbackList : public TrainObserver {
 public:
  // `model` has its callbacks in it. `from`: loads variables, position, learning rate and, once
  // training begins, the callbacks' state; throws before anything is changed if it does not suit.
  CallbackList(ModelInTraining& model, const Checkpoint* from);
  ~CallbackList() override;

  std::string warning() const { return warning_; }  // of resuming; or ""
  // Which signal ended training; callbacks save. Throws Interrupted with a word on how to go on.
  [[noreturn]] void interrupted(const std::string& stage, const std::string& how);

  void on_train_begin() override;
  void on_epoch_begin(int64_t epoch, int64_t epochs, int64_t steps, int64_t done) override;
  void on_step_begin(int64_t epoch_step) override;
  void on_step(const StepEvent& event) override;
  void on_test_begin() override;
  void on_test_step_begin(int64_t step) override;
  void on_test_step(int64_t step, const Evaluated& so_far) override;
  void on_test_end(const Evaluated& evaluated) override;
  void on_epoch(const EpochEvent& event) override;
  void on_boundary(const LoopPosition& position) override;
  void on_train_end() override;
  bool stop() const override { return model_.stop_training; }
  bool leave() const override;
  bool busy() const override;

 private:
  // A batch's logs: entries stay, values change, so that nothing is allocated in a step.
  struct BatchLogs {
    explicit BatchLogs(const std::vector<std::string>& metrics);
    Logs& fill(double loss, const std::vector<double>& metrics);
    Logs logs;
    std::vector<double*> values;  // loss, metrics
  };

  ModelInTraining& model_;
  const Checkpoint* from_;
  std::string warning_;
  BatchLogs batch_logs_, test_logs_;
  Logs epoch_logs_, none_;
};

}  // namespace pl
