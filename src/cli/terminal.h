// What a person sees: colours where they are welcome, and Keras's progress bar.
#pragma once

#include <cstdio>
#include <string>

#include "train/loop.h"

namespace pl {

// Text for people goes to stdout on a terminal, else to stderr, so that stdout stays free for JSON.
std::FILE* human_stream();
bool wants_color(std::FILE* stream);  // a terminal, and NO_COLOR is not set

// Keras's bar: "12/938 ━━━━━━━━━━━━━━━━━━━━ 4s 5ms/step - accuracy: 0.7312 - loss: 0.7534". Redrawn
// in place on a terminal; elsewhere one line per epoch.
class ProgressBar : public TrainObserver {
 public:
  ProgressBar(std::FILE* stream, std::vector<std::string> metrics);
  void on_epoch_begin(int64_t epoch, int64_t epochs, int64_t steps) override;
  void on_step(const StepEvent& event) override;
  void on_epoch(const EpochEvent& event) override;

 private:
  std::string figures(double loss, const std::vector<double>& metrics, const char* prefix) const;
  std::FILE* stream_;
  std::vector<std::string> metrics_;
  bool live_, color_;
  int64_t steps_ = 0;
  double started_ = 0, drawn_ = 0;  // seconds
};

}  // namespace pl
