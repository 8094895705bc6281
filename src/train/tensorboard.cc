// TensorBoard: what Keras writes, and the memory that was planned and used.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "backend/cpu/host_memory.h"
#include "train/callbacks.h"
#include "train/event_file.h"
#include "train/session.h"

namespace pl {
namespace {

constexpr size_t kBuckets = 30;

double now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T>
std::vector<Bucket> buckets_of(const T* values, int64_t count) {
  if (count == 0) return {};
  const auto [low, high] = std::minmax_element(values, values + count);
  const double least = static_cast<double>(*low), most = static_cast<double>(*high);
  // TensorBoard's rule for values that are all equal: one bucket around them.
  if (!(most > least)) return {{least - 0.5, most + 0.5, static_cast<double>(count)}};
  std::vector<Bucket> buckets(kBuckets);
  const double width = (most - least) / static_cast<double>(kBuckets);
  for (size_t b = 0; b < kBuckets; ++b)
    buckets[b] = {least + width * static_cast<double>(b),
                  b + 1 == kBuckets ? most : least + width * static_cast<double>(b + 1), 0};
  for (int64_t i = 0; i < count; ++i) {
    const double value = static_cast<double>(values[i]);
    if (!std::isfinite(value)) continue;
    const auto b = static_cast<size_t>((value - least) / width);
    ++buckets[std::min(b, kBuckets - 1)].count;
  }
  return buckets;
}

class TensorBoardCallback : public Callback {
 public:
  TensorBoardCallback(std::string log_dir, TensorBoardOptions options)
      : log_dir_(std::move(log_dir)), options_(options) {}

  void on_train_begin(const Logs&) override {
    batches_ = 0;
    train_.close();
    validation_.close();
    if (!model->resumed) open(train_, "train");
  }
  void on_epoch_begin(int64_t, const Logs&) override {
    started_ = now();
    steps_at_start_ = model->iterations();
  }
  void on_train_batch_end(int64_t, const Logs& logs) override {
    ++batches_;
    if (options_.update_freq.batches == 0 || batches_ % options_.update_freq.batches != 0) return;
    for (const auto& [name, value] : logs)
      open(train_, "train").scalar("batch_" + name, value, batches_);
  }
  void on_test_end(const Logs& logs) override {
    for (const auto& [name, value] : logs)
      open(validation_, "validation")
          .scalar("evaluation_" + name + "_vs_iterations", value, model->iterations());
  }
  void on_epoch_end(int64_t epoch, Logs& logs) override {
    for (const auto& [name, value] : logs) {
      if (name == "learning_rate") continue;
      if (name.starts_with("val_"))
        open(validation_, "validation").scalar("epoch_" + name.substr(4), value, epoch);
      else
        open(train_, "train").scalar("epoch_" + name, value, epoch);
    }
    EventFile& train = open(train_, "train");
    train.scalar("epoch_learning_rate", model->learning_rate(), epoch);
    if (options_.write_steps_per_second)
      train.scalar("epoch_steps_per_second",
                   static_cast<double>(model->iterations() - steps_at_start_) / (now() - started_),
                   epoch);
    const SessionPlan& plan = model->session.plan();
    train.scalar("memory/process_bytes_planned", static_cast<double>(plan.process()), epoch);
    train.scalar("memory/process_bytes_peak", static_cast<double>(process_peak()), epoch);
    train.scalar("memory/arena_bytes_planned", static_cast<double>(plan.arena), epoch);
    train.scalar("memory/arena_bytes_used", static_cast<double>(model->session.used_bytes()),
                 epoch);
    if (options_.histogram_freq > 0 && epoch % options_.histogram_freq == 0) write_weights(epoch);
  }
  void on_train_end(const Logs&) override {
    train_.close();
    validation_.close();
  }

  const char* name() const override { return "TensorBoard"; }
  Json state() const override {
    return Json::object()
        .set("batches", batches_)
        .set("train", train_.name())
        .set("train_bytes", train_.size())
        .set("validation", validation_.name())
        .set("validation_bytes", validation_.size());
  }
  std::vector<std::string> files() const override {
    std::vector<std::string> files;
    for (const EventFile* file : {&train_, &validation_})
      if (file->is_open()) files.push_back(file->path());
    return files;
  }
  void restore(const Json& state, const SafetensorsFile&, const std::string& what) override {
    batches_ = state.at("batches", what).as_integer(what);
    const auto go_on = [&](EventFile& file, const std::string& part) {
      const std::string& name = state.at(part, what).as_string(what);
      if (!name.empty())
        file.go_on(log_dir_ + "/" + part, name, state.at(part + "_bytes", what).as_integer(what));
    };
    go_on(train_, "train");
    go_on(validation_, "validation");
  }

 private:
  // Made when first written to.
  EventFile& open(EventFile& file, const char* part) {
    if (!file.is_open()) file.create(log_dir_ + "/" + part);
    return file;
  }

  void write_weights(int64_t epoch) {
    const Variables& variables = model->variables();
    const auto& entries = variables.layout().entries;
    for (size_t i = 0; i < entries.size(); ++i) {
      if (entries[i].category != Category::parameters) continue;
      const int64_t count = entries[i].meta.elements();
      const std::vector<Bucket> buckets =
          entries[i].meta.dtype == Dtype::float64
              ? buckets_of(static_cast<const double*>(variables.at(i)), count)
              : buckets_of(static_cast<const float*>(variables.at(i)), count);
      open(train_, "train").histogram(entries[i].path + "/histogram", buckets, epoch);
    }
  }

  std::string log_dir_;
  TensorBoardOptions options_;
  EventFile train_, validation_;
  int64_t batches_ = 0, steps_at_start_ = 0;
  double started_ = 0;
};

}  // namespace

CallbackRef TensorBoard(const std::string& log_dir, TensorBoardOptions options) {
  return std::make_shared<TensorBoardCallback>(log_dir, options);
}

}  // namespace pl
