// A fit() that was cut off anywhere and called again ends as if nothing had happened, to the bit.
#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cmath>
#include <csignal>
#include <cstring>
#include <filesystem>
#include <stdexcept>

#include "base/error.h"
#include "base/file.h"
#include "base/stop_signals.h"
#include "model/layers.h"
#include "tests/data_files.h"
#include "tests/disk_faults.h"
#include "train/model.h"

namespace pl::resume_test {
namespace {

using test::read_bytes;
using test::TempFolder;

constexpr int64_t kSamples = 50, kEpochs = 4;  // 3 steps an epoch beside validation

struct Data50 {
  Data50() : x({Dtype::float32, {kSamples, 6}}), y({Dtype::int32, {kSamples}}) {
    for (int64_t i = 0; i < kSamples * 6; ++i)
      x.data_as<float>()[i] = std::sin(static_cast<float>(i * i % 97));
    for (int64_t i = 0; i < kSamples; ++i) y.data_as<int32_t>()[i] = static_cast<int32_t>(i % 3);
  }
  Tensor x, y;
};

Sequential make_model(int64_t width = 8) {
  Sequential model(Shape{6}, {Dense(width, {.activation = "relu"}), Dropout(0.3),
                              BatchNormalization(), Dense(3, {.activation = "softmax"})});
  model.compile({.optimizer = Adam({.learning_rate = 0.02}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"}});
  return model;
}

// Leaves as a crash would, after so many batches.
struct Crash : Callback {
  explicit Crash(int64_t batches) : left(batches) {}
  void on_train_batch_end(int64_t, const Logs&) override {
    if (left-- == 0) throw std::runtime_error("crash");
  }
  int64_t left;
};

struct Outcome {
  Tensors weights;
  std::map<std::string, std::vector<double>> history;
  std::string csv;
  int64_t iterations = 0;
};

// One process's attempt; throws when it crashes.
Outcome attempt(const TempFolder& folder, int64_t crash_after, BackupOptions backup,
                Budget memory = {}) {
  const Data50 data;
  Sequential model = make_model();
  FitOptions options{.batch_size = 15,
                     .epochs = kEpochs,
                     .verbose = 0,
                     .validation_split = 0.1,
                     .memory = memory,
                     .seed = 3,
                     .threads = 1};
  options.callbacks = {
      LearningRateScheduler([](int64_t, double rate) { return rate * 0.7; }),
      ReduceLROnPlateau({.monitor = "loss", .factor = 0.5, .patience = 1, .min_delta = 0.5}),
      EarlyStopping({.monitor = "val_loss", .patience = 3, .restore_best_weights = true}),
      CSVLogger(folder / "log.csv"), BackupAndRestore(folder / "backup", backup)};
  if (crash_after >= 0) options.callbacks.push_back(std::make_shared<Crash>(crash_after));
  const History history = model.fit(data.x, data.y, options);
  return {model.get_weights(), history.history, read_bytes(folder / "log.csv"), model.iterations()};
}

void expect_same(const Outcome& a, const Outcome& b) {
  ASSERT_EQ(a.weights.size(), b.weights.size());
  for (size_t i = 0; i < a.weights.size(); ++i)
    EXPECT_EQ(std::memcmp(a.weights[i].data(), b.weights[i].data(),
                          static_cast<size_t>(a.weights[i].meta().bytes())),
              0)
        << "weight " << i;
  EXPECT_EQ(a.history, b.history);
  EXPECT_EQ(a.csv, b.csv);
  EXPECT_EQ(a.iterations, b.iterations);
}

TEST(Resume, AfterACrashAtAnyBatch) {
  const TempFolder calm;
  const Outcome whole = attempt(calm, -1, {});
  EXPECT_FALSE(std::filesystem::exists(calm / "backup"));  // deleted at the end, as in Keras
  for (const bool asynchronous : {false, true})
    for (int64_t first = 0; first < 12; first += asynchronous ? 4 : 1) {
      SCOPED_TRACE(first);
      const TempFolder folder;
      const BackupOptions backup{.save_freq = first % 3 + 1, .asynchronous = asynchronous};
      EXPECT_THROW(attempt(folder, first, backup), std::runtime_error);
      try {
        attempt(folder, 5, backup);  // and once more on the way
      } catch (const std::runtime_error&) {
      }
      expect_same(attempt(folder, -1, backup), whole);
    }
}

TEST(Resume, EpochByEpoch) {
  const TempFolder calm, folder;
  EXPECT_THROW(attempt(folder, 9, {}), std::runtime_error);
  expect_same(attempt(folder, -1, {}), attempt(calm, -1, {}));
}

TEST(Resume, ABudgetWithoutRoomForACopyWritesBetweenSteps) {
  const TempFolder folder;
  const Data50 data;
  Sequential model = make_model(200000);  // a small one's copy lies where the program started
  FitOptions options{.batch_size = 15, .verbose = 0, .threads = 1};
  options.callbacks = {BackupAndRestore(folder / "b")};
  const PlanReport roomy = model.plan(data.x, data.y, options);
  EXPECT_GE(roomy.snapshot, roomy.persistent);
  options.memory = roomy.process - 1;
  const PlanReport tight = model.plan(data.x, data.y, options);
  EXPECT_EQ(tight.snapshot, 0);
  EXPECT_TRUE(tight.fits);
  EXPECT_EQ(tight.process + roomy.snapshot, roomy.process);
  options.memory = roomy.process;
  EXPECT_EQ(model.plan(data.x, data.y, options).snapshot, roomy.snapshot);
}

TEST(Resume, ADamagedBackupIsRefusedAndTheModelUntouched) {
  const TempFolder folder;
  EXPECT_THROW(attempt(folder, 9, {.save_freq = 2}), std::runtime_error);
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder / "backup"))
    if (entry.path().extension() == ".safetensors") {
      std::string bytes = read_bytes(entry.path().string());
      bytes.back() = static_cast<char>(bytes.back() ^ 1);
      test::write_bytes(entry.path().string(), bytes);
    }
  const Data50 data;
  Sequential model = make_model();
  const Tensors before = model.get_weights();
  test::expect_data_error(
      [&] {
        model.fit(
            data.x, data.y,
            {.batch_size = 15, .verbose = 0, .callbacks = {BackupAndRestore(folder / "backup")}});
      },
      "damaged");
  EXPECT_EQ(std::memcmp(before[0].data(), model.get_weights()[0].data(), 8 * 6 * 4), 0);
}

TEST(Resume, OtherSettingsAreRefused) {
  const TempFolder folder;
  EXPECT_THROW(attempt(folder, 9, {.save_freq = 2}), std::runtime_error);
  const Data50 data;
  Sequential model = make_model();
  test::expect_data_error(
      [&] {
        model.fit(data.x, data.y,
                  {.batch_size = 10,
                   .verbose = 0,
                   .callbacks = {BackupAndRestore(folder / "backup")},
                   .validation_split = 0.1,
                   .seed = 3});
      },
      "batch: expected 15");
}

TEST(Resume, ASignalSavesAndLeaves) {
  const TempFolder calm, folder;
  const Data50 data;
  Sequential model = make_model();
  const auto raise = LambdaCallback({.on_train_batch_end = [](int64_t batch, const Logs&) {
    if (batch == 2) std::raise(SIGTERM);
  }});
  const FitOptions options{.batch_size = 15,
                           .epochs = 2,
                           .verbose = 0,
                           .callbacks = {BackupAndRestore(folder / "b"), raise},
                           .threads = 1};
  try {
    model.fit(data.x, data.y, options);
    ADD_FAILURE() << "SIGTERM was not noticed";
  } catch (const Interrupted& error) {
    EXPECT_EQ(error.exit_code(), 128 + SIGTERM);
    EXPECT_NE(std::string(error.what()).find("SIGTERM after step 3"), std::string::npos);
  }
  EXPECT_EQ(StopSignals::received(), 0);
  FitOptions rest = options;
  rest.callbacks.pop_back();
  Sequential again = make_model(), whole = make_model();
  again.fit(data.x, data.y, rest);
  rest.callbacks.clear();
  whole.fit(data.x, data.y, rest);
  EXPECT_EQ(std::memcmp(again.get_weights()[0].data(), whole.get_weights()[0].data(), 8 * 6 * 4),
            0);
}

TEST(Resume, AFullDiskDoesNotEndTraining) {
  const TempFolder calm, folder;
  const Outcome whole = attempt(calm, -1, {});
  // From the second batch on nothing can be written for a while.
  int calls = 0;
  std::optional<Outcome> outcome;
  {
    const test::DiskFaults faults([&](const DiskCall& call) {
      const bool of_log = call.kind == DiskCall::Kind::write && call.data.ends_with("\r\n");
      return !of_log && ++calls > 30 && calls < 200 ? ENOSPC : 0;
    });
    outcome = attempt(folder, -1, {.save_freq = 1});
  }
  EXPECT_GT(calls, 30);
  expect_same(*outcome, whole);
}

TEST(Resume, ModelsSaveAndLoadTheirWholeState) {
  const TempFolder folder;
  const Data50 data;
  const FitOptions once{.batch_size = 15, .verbose = 0, .threads = 1};
  Sequential whole = make_model(), first = make_model(), second = make_model();
  whole.fit(data.x, data.y, once);
  whole.fit(data.x, data.y, once);
  first.fit(data.x, data.y, once);
  first.save_checkpoint(folder / "c");
  second.load_checkpoint(folder / "c");
  EXPECT_EQ(second.iterations(), 4);
  second.fit(data.x, data.y, once);
  EXPECT_EQ(std::memcmp(second.get_weights()[0].data(), whole.get_weights()[0].data(), 8 * 6 * 4),
            0);
  Sequential other(Shape{6}, {Dense(9), Dense(3, {.activation = "softmax"})});
  other.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
  test::expect_data_error([&] { other.load_checkpoint(folder / "c"); }, "dense/kernel");
}

}  // namespace
}  // namespace pl::resume_test
