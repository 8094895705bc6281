#include "cli/run_folder.h"

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "train/checkpoint_store.h"

namespace pl {
namespace {

constexpr const char* kFormat = "plimsoll-run";
constexpr int64_t kVersion = 1;

}  // namespace

std::string checkpoints_in(const std::string& run) { return run + "/checkpoints"; }
std::string weights_in(const std::string& run) { return run + "/weights.safetensors"; }

RunWords saved_words(const std::string& folder) {
  const std::string path = folder + "/run.json";
  const Json json = parse_json(read_text_file(path, kMiB), path);
  if (json.at("format", path).as_string(path) != kFormat ||
      json.at("version", path).as_integer(path) != kVersion)
    throw DataError("[resume] " + path + ": expected the words of a run, received another file");
  RunWords words;
  for (const auto& [name, value] : json.at("words", path).as_object(path))
    words[name] = value.as_string(path);
  return words;
}

bool same_folder(const std::string& a, const std::string& b) {
  std::error_code error;
  return a == b || std::filesystem::equivalent(a, b, error);
}

void refuse_to_overwrite(const std::string& run) {
  if (!latest_checkpoint(checkpoints_in(run))) return;
  throw UserError("[run] " + run + ": expected a folder without checkpoints for a new run, " +
                  "received one of a run that can go on; use --resume " + run +
                  ", or choose another folder");
}

void begin_run_folder(const RunOptions& options, const PlanReport& plan) {
  make_directories(options.run);
  check_writable(weights_in(options.run));
  RunWords saved = options.words;
  // A run goes on with what it began with. Splitting changes the order of sums, and which split a
  // budget picks may change with what was measured; threads may be others on another machine.
  saved["--batch"] = std::to_string(plan.batch);
  saved["--threads"] = std::to_string(plan.threads);
  if (std::string& split = saved["--split"]; split.empty() || split == "auto")
    split = std::to_string(plan.bands > 0 ? plan.bands * plan.batch : plan.split);
  Json words = Json::object();
  for (const auto& [name, value] : saved) words.set(name, value);
  write_file_atomically(options.run + "/run.json", Json::object()
                                                           .set("format", kFormat)
                                                           .set("version", kVersion)
                                                           .set("words", std::move(words))
                                                           .dump(1) +
                                                       "\n");
}

void EventLog::open(const std::string& run, bool keep) {
  path_ = run + "/log.jsonl";
  log_.open(path_, keep ? Bytes{1} << 60 : 0);
}

void EventLog::write(const Json& event) {
  const std::string text = event.dump() + "\n";
  if (to_stdout_ && (std::fputs(text.c_str(), stdout) < 0 || std::fflush(stdout) != 0))
    throw BackendError("[output] stdout: expected it to take a line, received '" +
                       std::string(std::strerror(errno)) + "'");
  if (!log_.is_open()) return;
  log_.write(text);
  if (!training_) head_ += text;
}

void EventLog::cut(Bytes bytes) {
  log_.open(path_, bytes);
  log_.write(head_);
}

void EventLog::sync() {
  if (log_.is_open()) sync_file(path_);
}

class EventLog::Place : public Callback {
 public:
  explicit Place(EventLog& log) : log_(log) {}
  const char* name() const override { return "EventLog"; }
  Json state() const override { return Json::object().set("bytes", log_.log_.size()); }
  std::vector<std::string> files() const override { return {log_.path_}; }
  void restore(const Json& state, const SafetensorsFile&, const std::string& what) override {
    log_.cut(state.at("bytes", what).as_integer(what));
  }

 private:
  EventLog& log_;
};

CallbackRef EventLog::place() { return std::make_shared<Place>(*this); }

void EventLog::on_step(const StepEvent& event) {
  training_ = true;
  if (!to_stdout_ && !log_.is_open()) return;
  write(Json::object()
            .set("event", "step")
            .set("step", event.step)
            .set("loss", event.loss)
            .set("ms", event.ms));
}

void EventLog::on_epoch(const EpochEvent& event) {
  Json json =
      Json::object().set("event", "epoch").set("epoch", event.epoch).set("loss", event.loss);
  if (!event.metrics.empty()) json.set("accuracy", event.metrics[0]);
  if (event.val_loss) json.set("val_loss", *event.val_loss);
  if (!event.val_metrics.empty()) json.set("val_accuracy", event.val_metrics[0]);
  json.set("seconds", event.seconds);
  write(json);
}

}  // namespace pl
