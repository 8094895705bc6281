#include "train/progress_bar.h"

#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/terminal.h"

namespace pl {
namespace {

constexpr int kBarWidth = 20;
constexpr double kRedrawSeconds = 0.05;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

std::string bar(double fraction, bool color) {
  const int done = static_cast<int>(fraction * kBarWidth);
  std::string out = color ? "\033[32m" : "";
  for (int i = 0; i < kBarWidth; ++i) {
    if (i == done) out += color ? "\033[0m\033[37m" : "";
    out += i < done || color ? "━" : "─";
  }
  return out + (color ? "\033[0m" : "");
}

std::string duration(double seconds) {
  char text[32];
  if (seconds >= 3600) {
    std::snprintf(text, sizeof text, "%.0f:%02d:%02d", std::floor(seconds / 3600),
                  static_cast<int>(seconds / 60) % 60, static_cast<int>(seconds) % 60);
  } else if (seconds >= 60) {
    std::snprintf(text, sizeof text, "%d:%02d", static_cast<int>(seconds / 60),
                  static_cast<int>(seconds) % 60);
  } else {
    std::snprintf(text, sizeof text, "%.0fs", seconds);
  }
  return text;
}

std::string per_step(double seconds) {
  char text[32];
  if (seconds >= 1) {
    std::snprintf(text, sizeof text, "%.0fs/step", seconds);
  } else if (seconds >= 1e-3) {
    std::snprintf(text, sizeof text, "%.0fms/step", seconds * 1e3);
  } else {
    std::snprintf(text, sizeof text, "%.0fus/step", seconds * 1e6);
  }
  return text;
}

}  // namespace

ProgressBar::ProgressBar(std::FILE* stream, std::vector<std::string> metrics,
                         std::vector<std::string> test_metrics, bool live)
    : stream_(stream),
      metrics_(std::move(metrics)),
      test_metrics_(std::move(test_metrics)),
      bar_(live),
      live_(live && is_terminal(stream)),
      color_(wants_color(stream)) {}

std::string ProgressBar::figures(double loss, const std::vector<std::string>& names,
                                 const std::vector<double>& metrics, const char* prefix) {
  auto figure = [&](const std::string& name, double value) {
    char text[96];
    std::snprintf(text, sizeof text, std::fabs(value) > 1e-3 ? " - %s%s: %.4f" : " - %s%s: %.4e",
                  prefix, name.c_str(), value);
    return std::string(text);
  };
  std::string out;
  for (size_t m = 0; m < metrics.size(); ++m) out += figure(names[m], metrics[m]);
  return out + figure("loss", loss);
}

void ProgressBar::on_epoch_begin(int64_t epoch, int64_t epochs, int64_t steps, int64_t done) {
  steps_ = steps;
  before_ = done;
  started_ = drawn_ = now();
  if (epochs > 1)
    std::fprintf(stream_, "Epoch %lld/%lld\n", static_cast<long long>(epoch),
                 static_cast<long long>(epochs));
}

void ProgressBar::on_step(const StepEvent& event) {
  if (!live_ || now() - drawn_ < kRedrawSeconds || event.epoch_step == steps_) return;
  drawn_ = now();
  const double spent = drawn_ - started_,
               each = spent / static_cast<double>(event.epoch_step - before_);
  const double left = each * static_cast<double>(steps_ - event.epoch_step);
  std::fprintf(
      stream_, "\r\033[K%lld/%lld %s %s %s%s", static_cast<long long>(event.epoch_step),
      static_cast<long long>(steps_),
      bar(static_cast<double>(event.epoch_step) / static_cast<double>(steps_), color_).c_str(),
      duration(left).c_str(), per_step(each).c_str(),
      figures(event.mean_loss, metrics_, event.mean_metrics, "").c_str());
  std::fflush(stream_);
}

void ProgressBar::on_epoch(const EpochEvent& event) {
  const double spent = now() - started_;
  std::fprintf(
      stream_, "%s%lld/%lld %s %s %s%s%s%s\n", live_ ? "\r\033[K" : "",
      static_cast<long long>(steps_), static_cast<long long>(steps_),
      bar_ ? bar(1, color_).c_str() : "-", duration(spent).c_str(), bar_ ? "" : "- ",
      per_step(spent / static_cast<double>(std::max<int64_t>(1, steps_ - before_))).c_str(),
      figures(event.loss, metrics_, event.metrics, "").c_str(),
      event.val_loss ? figures(*event.val_loss, test_metrics_, event.val_metrics, "val_").c_str()
                     : "");
  std::fflush(stream_);
}

}  // namespace pl
