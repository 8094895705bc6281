#include <cerrno>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/file.h"
#include "base/hash.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/costs.h"
#include "cli/run_setup.h"
#include "train/progress_bar.h"
#include "train/weights.h"

namespace pl {
namespace {

// One JSON object per line, on stdout with --json and into the run folder's log.
class EventLog : public TrainObserver {
 public:
  EventLog(bool to_stdout, const std::string& run) : to_stdout_(to_stdout) {
    if (run.empty()) return;
    check_writable(run + "/log.jsonl");
    log_.reset(std::fopen((run + "/log.jsonl").c_str(), "w"));
    if (!log_) throw DataError("[run] " + run + "/log.jsonl: cannot be written");
  }
  void write(const Json& event) {
    const std::string text = event.dump() + "\n";
    if (to_stdout_) put(stdout, text, "stdout");
    if (log_) put(log_.get(), text, "log.jsonl");
  }
  void on_step(const StepEvent& event) override {
    if (!to_stdout_ && !log_) return;
    write(Json::object()
              .set("event", "step")
              .set("step", event.step)
              .set("loss", event.loss)
              .set("ms", event.ms));
  }
  void on_epoch(const EpochEvent& event) override {
    Json json =
        Json::object().set("event", "epoch").set("epoch", event.epoch).set("loss", event.loss);
    if (!event.metrics.empty()) json.set("accuracy", event.metrics[0]);
    if (event.val_loss) json.set("val_loss", *event.val_loss);
    if (!event.val_metrics.empty()) json.set("val_accuracy", event.val_metrics[0]);
    json.set("seconds", event.seconds);
    write(json);
  }

 private:
  static void put(std::FILE* file, const std::string& text, const char* name) {
    if (std::fputs(text.c_str(), file) < 0 || std::fflush(file) != 0)
      throw BackendError("[output] " + std::string(name) +
                         ": expected it to take a line, received '" + std::strerror(errno) + "'");
  }
  struct Close {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  bool to_stdout_;
  std::unique_ptr<std::FILE, Close> log_;
};

class Both : public TrainObserver {
 public:
  Both(TrainObserver& first, TrainObserver& second) : first_(first), second_(second) {}
  void on_epoch_begin(int64_t epoch, int64_t epochs, int64_t steps) override {
    first_.on_epoch_begin(epoch, epochs, steps);
    second_.on_epoch_begin(epoch, epochs, steps);
  }
  void on_step(const StepEvent& event) override {
    first_.on_step(event);
    second_.on_step(event);
  }
  void on_epoch(const EpochEvent& event) override {
    first_.on_epoch(event);
    second_.on_epoch(event);
  }

 private:
  TrainObserver &first_, &second_;
};

Json end_event(const LoopResult& result, const Session& session) {
  return Json::object()
      .set("event", "end")
      .set("steps", result.steps)
      .set("loss_first", result.loss_first)
      .set("loss_last", result.loss_last)
      .set("step_ms_median", result.step_ms_median)
      .set("step_ms_min", result.step_ms_min)
      .set("samples_per_s", result.samples_per_s)
      .set("arena_bytes_planned", session.plan().arena)
      .set("arena_bytes_used", session.used_bytes())
      .set("process_bytes_planned", session.plan().process())
      .set("process_bytes_peak", process_peak())
      .set("heap_allocations_per_step", result.heap_allocations_per_step)
      .set("library_allocations_per_step", result.library_allocations_per_step)
      .set("weights_xxh3", hex16(session.variables().hash(true)))
      .set("state_xxh3", hex16(session.variables().hash(false)));
}

void print_summary(std::FILE* out, const LoopResult& result, const Session& session,
                   const std::string& run) {
  const Bytes planned = session.plan().process(), peak = process_peak();
  std::fprintf(out, "\n%lld steps, median %.2f ms, %.0f samples/s\n",
               static_cast<long long>(result.steps), result.step_ms_median, result.samples_per_s);
  if (result.last_epoch && !result.last_epoch->val_metrics.empty())
    std::fprintf(out, "test accuracy   %.4f\n", result.last_epoch->val_metrics[0]);
  std::fprintf(out, "memory planned  %s (%lld bytes)\n", format_bytes(planned).c_str(),
               static_cast<long long>(planned));
  const double share = 100.0 * static_cast<double>(planned - peak) / static_cast<double>(planned);
  std::fprintf(out, "memory measured %s (%lld bytes, the system's figure), %.2f %% %s the plan\n",
               format_bytes(peak).c_str(), static_cast<long long>(peak), std::fabs(share),
               share >= 0 ? "below" : "above");
  std::fprintf(out, "arena           %lld bytes planned, %lld used\n",
               static_cast<long long>(session.plan().arena),
               static_cast<long long>(session.used_bytes()));
  if (!run.empty()) std::fprintf(out, "run folder      %s\n", run.c_str());
}

}  // namespace

int run_train(const RunOptions& options) {
  RunSetup setup = set_up_run(options, Purpose::train);
  // Whatever can be wrong with files is found before anything is trained.
  std::unique_ptr<SafetensorsFile> weights;
  if (!options.weights.empty()) weights = std::make_unique<SafetensorsFile>(options.weights);
  if (weights) check_weights(*weights, setup.plan.layout);
  if (!options.run.empty()) {
    make_directories(options.run);
    check_writable(options.run + "/weights.safetensors");
  }
  if (!options.save_weights.empty()) check_writable(options.save_weights);
  const Json report = to_json(setup.report);
  if (!options.run.empty())
    write_file_atomically(options.run + "/plan.json", report.dump(2) + "\n");
  EventLog log(options.json, options.run);
  Json plan_event = Json::object().set("event", "plan");
  for (const auto& [key, value] : report.as_object("plan")) plan_event.set(key, value);
  log.write(plan_event);
  std::FILE* out = human_stream();
  if (!options.json) std::fputs((to_text(setup.report, wants_color(out)) + "\n").c_str(), out);
  require_room(setup.report);
  Session session(std::move(setup.plan), setup.network, options.seed);
  if (weights) load_weights(*weights, session.variables());
  if (const std::string warning = check_resident(setup.report); !warning.empty())
    std::fprintf(stderr, "plimsoll: warning: %s\n", warning.c_str());
  setup.loop.time_kernels = true;
  ProgressBar bar(out, log_names(session.plan()));
  Both both(bar, log);
  TrainObserver& observer = options.json ? static_cast<TrainObserver&>(log) : both;
  const LoopResult result =
      run_training(session, setup.loop, *setup.sources.train, setup.sources.test.get(), observer);
  log.write(end_event(result, session));
  learn_costs(*setup.backend, session, result);
  if (!options.save_weights.empty()) save_weights(options.save_weights, session.variables());
  if (!options.run.empty()) save_weights(options.run + "/weights.safetensors", session.variables());
  if (!options.json) print_summary(out, result, session, options.run);
  if (const Bytes peak = process_peak(); peak > setup.report.process)
    std::fprintf(stderr,
                 "plimsoll: warning: [memory] the process held %s, more than the planned %s, on "
                 "this system\n",
                 format_bytes(peak).c_str(), format_bytes(setup.report.process).c_str());
  if (!result.finite)
    throw BackendError("[train] step " + std::to_string(result.steps) + ": the loss is not finite" +
                       (result.cause.empty() ? "" : ": " + result.cause) +
                       "; lower --learning-rate");
  if (const std::string path = session.variables().first_non_finite(); !path.empty())
    throw BackendError("[train] " + path +
                       ": a value is not finite at the end; lower --learning-rate");
  return 0;
}

}  // namespace pl
