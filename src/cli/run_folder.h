// The folder of a run: run.json (how it was started), plan.json, log.jsonl, log.csv, TensorBoard's
// event files, checkpoints/ and, at its end, weights.safetensors.
#pragma once

#include <string>
#include <vector>

#include "base/append_file.h"
#include "base/json.h"
#include "cli/options.h"
#include "train/budget.h"
#include "train/callback.h"
#include "train/loop.h"

namespace pl {

// For --resume: the words that the run in `folder` was started with, for those not given now.
// Throws DataError when it is no run's folder.
RunWords saved_words(const std::string& folder);

std::string checkpoints_in(const std::string& run);
std::string weights_in(const std::string& run);

bool same_folder(const std::string& a, const std::string& b);
// Throws UserError when a new run would take the place of one that can go on.
void refuse_to_overwrite(const std::string& run);

// Makes the folder and writes run.json; checks that files can be written there.
void begin_run_folder(const RunOptions& options, const PlanReport& plan);

// One JSON object per line, on stdout with --json and into the run folder's log.
class EventLog : public TrainObserver {
 public:
  explicit EventLog(bool to_stdout) : to_stdout_(to_stdout) {}
  // `keep`: the log there is goes on; what it keeps of it is known when the run does.
  void open(const std::string& run, bool keep);
  void write(const Json& event);
  void sync();  // what was written lasts through a loss of power

  void on_step(const StepEvent& event) override;
  void on_epoch(const EpochEvent& event) override;

  // Remembers in checkpoints how long the log was, so that a run that goes on writes no step twice.
  CallbackRef place();

 private:
  class Place;
  void cut(Bytes bytes);

  bool to_stdout_;
  std::string path_;
  AppendFile log_;
  std::string head_;  // written before training began
  bool training_ = false;
};

}  // namespace pl
