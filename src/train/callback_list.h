// CallbackList: brings the loop's events to callbacks in Keras's order, and their state into and
// out of checkpoints.
#pragma once

#include <optional>

#include "train/callback.h"
#include "train/checkpoint.h"
#include "train/loop.h"

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
  void on_predict_begin() override;
  void on_predict_step_begin(int64_t step) override;
  void on_predict_step(int64_t step) override;
  void on_predict_end() override;
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

  // Keras's steps_per_execution: batches [i * n, (i + 1) * n) are one to callbacks, known by the
  // number of the first when they begin and of the last when they end.
  bool begins(int64_t batch) const { return batch % executed_ == 0; }
  bool ends(int64_t batch) const { return (batch + 1) % executed_ == 0; }

  ModelInTraining& model_;
  const int64_t executed_;
  int64_t open_ = -1;  // a batch of evaluation or prediction whose end nobody has seen yet
  const Checkpoint* from_;
  std::string warning_;
  BatchLogs batch_logs_, test_logs_;
  Logs epoch_logs_, none_;
};

}  // namespace pl
