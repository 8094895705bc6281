// What a disk may hold after a loss of power at any call of a run: going on from it loses nothing
// that was durable, and ends as a calm run does, to the bit.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstring>
#include <filesystem>
#include <set>

#include "base/file.h"
#include "base/hash.h"
#include "cli/run_folder.h"
#include "model/layers.h"
#include "tests/data_files.h"
#include "tests/disk_record.h"
#include "train/callbacks.h"
#include "train/checkpoint_store.h"
#include "train/model.h"

namespace pl::crash_images_test {
namespace {

using test::DiskImage;
using test::DiskRecord;
using test::DiskStep;
using test::read_bytes;
using test::TempFolder;

constexpr int64_t kSamples = 24, kBatch = 8;  // 3 steps an epoch

struct Small {
  Small() : x({Dtype::float32, {kSamples, 6}}), y({Dtype::int32, {kSamples}}) {
    for (int64_t i = 0; i < kSamples * 6; ++i)
      x.data_as<float>()[i] = std::sin(static_cast<float>(i * i % 97));
    for (int64_t i = 0; i < kSamples; ++i) y.data_as<int32_t>()[i] = static_cast<int32_t>(i % 3);
  }
  Tensor x, y;
};

// A checkpoint that was durable when its writer returned: how many calls had been made by then.
struct Durable {
  int64_t steps = 0;
  size_t calls = 0;
};

// Behind the callback that saves: when its turn comes, that one has returned.
struct Witness : Callback {
  Witness(DiskRecord* of, std::vector<Durable>& list) : record(of), durable(list) {}
  void on_epoch_end(int64_t, Logs&) override { due = true; }
  void on_boundary() override {
    if (due && record) durable.push_back({model->state.position.steps, record->size()});
    due = false;
  }
  DiskRecord* record;
  std::vector<Durable>& durable;
  bool due = false;
};

struct Run {
  int64_t began = -1;  // steps that were done before
  Tensors weights = {};
  std::string log = {}, csv = {};
  std::vector<Durable> durable = {};
};

// `plimsoll train --run FOLDER`, or with --resume, of a model of 643 weights.
Run train(const std::string& folder, int64_t epochs, DiskRecord* record = nullptr) {
  static const Small data;
  const std::string checkpoints = checkpoints_in(folder);
  Run run;
  make_directories(folder);
  write_file_atomically(folder + "/run.json", "{}\n");
  EventLog log(false);
  log.open(folder, latest_checkpoint(checkpoints).has_value());
  Sequential model(Shape{6},
                   {Dense(64, {.activation = "relu"}), Dense(3, {.activation = "softmax"})});
  model.compile(
      {.optimizer = Adam({.learning_rate = 0.02}), .loss = "sparse_categorical_crossentropy"});
  Callback* any = nullptr;
  const auto write_step = [&](int64_t, const Logs& logs) {
    log.write(
        Json::object().set("step", any->model->state.position.steps).set("loss", logs.at("loss")));
  };
  const auto begin = [&](int64_t, const Logs&) {
    if (run.began < 0) run.began = any->model->state.position.steps;
  };
  const CallbackRef hooks =
      LambdaCallback({.on_train_batch_begin = begin, .on_train_batch_end = write_step});
  any = hooks.get();
  model.fit(data.x, data.y,
            {.batch_size = kBatch,
             .epochs = epochs,
             .verbose = 0,
             .callbacks = {log.place(), hooks, CSVLogger(folder + "/log.csv"),
                           RunCheckpoints(checkpoints, 0, 1, checkpoints),
                           std::make_shared<Witness>(record, run.durable)},
             .seed = 3,
             .threads = 1});
  log.write(Json::object().set("event", "end"));
  log.sync();
  model.save_weights(folder + "/weights.safetensors");
  run.weights = model.get_weights();
  run.log = read_bytes(folder + "/log.jsonl");
  run.csv = read_bytes(folder + "/log.csv");
  return run;
}

// Goes on from images; says what is lost.
class Judge {
 public:
  Judge() : calm_(train(calm_folder_ / "run", kEpochs)) {}

  static constexpr int64_t kEpochs = 3;

  // What is wrong with going on from the image, or "".
  std::string judge(const DiskImage& image, int64_t newest) const {
    const TempFolder folder;
    image.write_to(folder / "disk");
    try {
      const Run run = train(folder / "disk/runs/one", kEpochs);
      if (run.began < newest)
        return "goes on after step " + std::to_string(run.began) + ", where " +
               std::to_string(newest) + " was durable";
      if (run.log != calm_.log) return "another log.jsonl:\n" + run.log;
      if (run.csv != calm_.csv) return "another log.csv:\n" + run.csv;
      for (size_t i = 0; i < run.weights.size(); ++i)
        if (std::memcmp(run.weights[i].data(), calm_.weights[i].data(),
                        static_cast<size_t>(run.weights[i].meta().bytes())) != 0)
          return "other bits in weight " + std::to_string(i);
    } catch (const std::exception& error) {
      return error.what();
    }
    return "";
  }

 private:
  TempFolder calm_folder_;
  Run calm_;
};

struct Recorded {
  std::vector<DiskStep> steps;
  std::vector<Durable> durable;
};

// Two checkpoints, of which the second takes the first's place, and the run's end.
Recorded record_run() {
  const TempFolder folder;
  DiskRecord record(folder.path());
  const Run run = train(folder / "runs/one", 2, &record);
  return {record.steps(), run.durable};
}

struct Found {
  size_t images = 0;
  std::vector<std::string> faults;
};

// `most`: as soon as there are so many faults it ends. `certain`: only with what is surely there.
Found judge_all(const Recorded& recorded, size_t most, bool certain = false) {
  const Judge judge;
  Found found;
  std::set<std::pair<uint64_t, int64_t>> seen;
  for (size_t end = 0; end <= recorded.steps.size(); ++end) {
    int64_t newest = 0;
    for (const Durable& durable : recorded.durable)
      if (durable.calls <= end) newest = durable.steps;
    const auto visit = [&](const DiskImage& image) {
      if (found.faults.size() >= most || !seen.emplace(xxh3(image.text()), newest).second) return;
      ++found.images;
      if (std::string fault = judge.judge(image, newest); !fault.empty())
        found.faults.push_back("after call " + std::to_string(end) + ": " + fault);
    };
    if (certain)
      visit(test::durable_image(recorded.steps, end));
    else
      test::for_each_image(recorded.steps, end, 31, visit);
  }
  return found;
}

TEST(CrashImages, GoingOnLosesNothingThatWasDurable) {
  const auto start = std::chrono::steady_clock::now();
  const Recorded recorded = record_run();
  ASSERT_EQ(recorded.durable.size(), 2u);
  ASSERT_EQ(recorded.durable.back().steps, 6);
  const Found found = judge_all(recorded, 5);
  for (const std::string& fault : found.faults) ADD_FAILURE() << fault;
  EXPECT_GE(found.images, 500u);
  std::printf("%zu images of a disk after %zu calls, %.1f s\n", found.images, recorded.steps.size(),
              std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
}

// The name that the file or folder was made with; "" for the folder that was there.
std::string name_of(const std::vector<DiskStep>& steps, int node) {
  for (const DiskStep& step : steps)
    if (step.node == node && step.is_of_name()) return step.name;
  return "";
}

// The same run by a program that leaves out some calls.
template <class Leave>
Recorded without(Recorded recorded, const Leave& leave) {
  std::vector<DiskStep> kept;
  std::vector<Durable> durable = recorded.durable;
  for (size_t i = 0; i < recorded.steps.size(); ++i)
    if (!leave(recorded.steps[i]))
      kept.push_back(recorded.steps[i]);
    else
      for (size_t d = 0; d < durable.size(); ++d) durable[d].calls -= recorded.durable[d].calls > i;
  return {kept, durable};
}

TEST(CrashImages, AMissingSyncIsFound) {
  using Kind = DiskCall::Kind;
  const Recorded recorded = record_run();
  const struct {
    Kind kind;
    const char* name;  // begins so
  } cases[] = {
      {Kind::sync, "variables-"}, {Kind::sync, "manifest.json"}, {Kind::sync, "log.jsonl"},
      {Kind::sync, "log.csv"},    {Kind::sync_folder, "step-"},  {Kind::sync_folder, "checkpoints"},
      {Kind::sync_folder, "one"}, {Kind::sync_folder, "runs"},   {Kind::sync_folder, ""}};
  for (const auto& left_out : cases) {
    size_t count = 0;
    const std::string wanted = left_out.name;
    const Recorded fewer = without(recorded, [&](const DiskStep& step) {
      if (step.kind != left_out.kind) return false;
      const std::string name = name_of(recorded.steps, step.node);
      const bool leave = wanted.empty() ? name.empty() : name.starts_with(wanted);
      count += leave;
      return leave;
    });
    EXPECT_GT(count, 0u) << wanted;
    EXPECT_EQ(judge_all(fewer, 1, true).faults.size(), 1u) << "without a sync of " << wanted;
  }
}

TEST(CrashImages, AManifestBeforeItsTensorsIsFound) {
  Recorded recorded = record_run();
  auto& steps = recorded.steps;
  // Each file: from its making to the sync of its folder.
  const auto file = [&](const std::string& name) {
    const auto begin = std::find_if(steps.begin(), steps.end(), [&](const DiskStep& step) {
      return step.kind == DiskCall::Kind::create && step.name.starts_with(name) &&
             name_of(steps, step.folder).starts_with("step-");
    });
    const auto end = std::find_if(begin, steps.end(), [](const DiskStep& step) {
      return step.kind == DiskCall::Kind::sync_folder;
    });
    return std::pair(begin, end + 1);
  };
  const auto tensors = file("variables-"), manifest = file("manifest.json");
  ASSERT_LE(tensors.second - steps.begin(), manifest.first - steps.begin());
  std::rotate(tensors.first, manifest.first, manifest.second);
  EXPECT_EQ(judge_all(recorded, 1, true).faults.size(), 1u);
}

}  // namespace
}  // namespace pl::crash_images_test
