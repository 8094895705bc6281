// Keras's progress bar, for the command line and for fit().
#pragma once

#include <cstdio>
#include <string>
#include <vector>

#include "train/loop.h"

namespace pl {

// "12/938 ━━━━━━━━━━━━━━━━━━━━ 4s 5ms/step - accuracy: 0.7312 - loss: 0.7534". Redrawn in place on
// a terminal, elsewhere one line per epoch. When `live` is false (Keras's verbose=2) that line has
// no bar: "938/938 - 4s - 5ms/step - accuracy: 0.7312 - loss: 0.7534".
class ProgressBar : public TrainObserver {
 public:
  ProgressBar(std::FILE* stream, std::vector<std::string> metrics,
              std::vector<std::string> test_metrics, bool live = true);
  void on_epoch_begin(int64_t epoch, int64_t epochs, int64_t steps, int64_t done) override;
  void on_step(const StepEvent& event) override;
  void on_epoch(const EpochEvent& event) override;

 private:
  static std::string figures(double loss, const std::vector<std::string>& names,
                             const std::vector<double>& metrics, const char* prefix);
  std::FILE* stream_;
  std::vector<std::string> metrics_, test_metrics_;
  bool bar_, live_, color_;
  int64_t steps_ = 0, before_ = 0;  // of the epoch; made before this process
  double started_ = 0, drawn_ = 0;  // seconds
};

}  // namespace pl
