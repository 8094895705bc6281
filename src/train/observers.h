// Several observers of one run, told in order.
#pragma once

#include <initializer_list>
#include <vector>

#include "train/loop.h"

namespace pl {

class Observers : public TrainObserver {
 public:
  // Null pointers are left out.
  Observers(std::initializer_list<TrainObserver*> list) {
    for (TrainObserver* one : list)
      if (one) list_.push_back(one);
  }
  void on_train_begin() override {
    for (TrainObserver* one : list_) one->on_train_begin();
  }
  void on_epoch_begin(int64_t epoch, int64_t epochs, int64_t steps, int64_t done) override {
    for (TrainObserver* one : list_) one->on_epoch_begin(epoch, epochs, steps, done);
  }
  void on_step_begin(int64_t epoch_step) override {
    for (TrainObserver* one : list_) one->on_step_begin(epoch_step);
  }
  void on_step(const StepEvent& event) override {
    for (TrainObserver* one : list_) one->on_step(event);
  }
  void on_test_begin() override {
    for (TrainObserver* one : list_) one->on_test_begin();
  }
  void on_test_step_begin(int64_t step) override {
    for (TrainObserver* one : list_) one->on_test_step_begin(step);
  }
  void on_test_step(int64_t step, const Evaluated& so_far) override {
    for (TrainObserver* one : list_) one->on_test_step(step, so_far);
  }
  void on_test_end(const Evaluated& evaluated) override {
    for (TrainObserver* one : list_) one->on_test_end(evaluated);
  }
  void on_epoch(const EpochEvent& event) override {
    for (TrainObserver* one : list_) one->on_epoch(event);
  }
  void on_boundary(const LoopPosition& position) override {
    for (TrainObserver* one : list_) one->on_boundary(position);
  }
  void on_train_end() override {
    for (TrainObserver* one : list_) one->on_train_end();
  }
  bool stop() const override {
    return any([](const TrainObserver& one) { return one.stop(); });
  }
  bool leave() const override {
    return any([](const TrainObserver& one) { return one.leave(); });
  }
  bool busy() const override {
    return any([](const TrainObserver& one) { return one.busy(); });
  }

 private:
  template <class Question>
  bool any(const Question& question) const {
    for (const TrainObserver* one : list_)
      if (question(*one)) return true;
    return false;
  }
  std::vector<TrainObserver*> list_;
};

}  // namespace pl
