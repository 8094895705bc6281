// What a device's memory is said to be for, before it is reserved and when it cannot be.
#include <gtest/gtest.h>

#include <cstdlib>
#include <optional>
#include <stdexcept>

#include "backend/devices.h"
#include "plimsoll.h"
#include "tests/data_files.h"
#include "tests/fake_device.h"
#include "tests/messages.h"
#include "tests/patterns.h"
#include "train/budget.h"
#include "train/device_footprint.h"
#include "train/device_full.h"
#include "train/session.h"
#include "train/train_state.h"

namespace pl::device_bill_test {
namespace {

using test::message_of;
using test::pattern;
using test::same_bits;
using test::TempFolder;

constexpr const char* kName = "cuda:41";

class DeviceBillTest : public ::testing::Test {
 protected:
  DeviceBillTest()
      : fake_(std::make_shared<test::FakeDevice>()),
        space_(Devices::current()->share(device_from_name(kName), fake_)) {
    ::setenv("PLIMSOLL_COSTS", "nominal", 1);
  }
  // All but so many bytes of the device are somebody else's.
  void leave_free(Bytes bytes) { fake_->others = test::FakeDevice::kTotal - fake_->held() - bytes; }
  std::shared_ptr<test::FakeDevice> fake_;
  std::shared_ptr<DeviceSpace> space_;
};

Sequential wide_net(int64_t units = 1024) {
  Sequential model(Shape{64}, {Dense(units, {.activation = "tanh"}),
                               Dense(units, {.activation = "tanh"}), Dense(4)});
  model.compile({.optimizer = SGD(), .loss = "mse", .device = kName});
  return model;
}

void expect_part(const std::string& text, const std::string& part) {
  EXPECT_NE(text.find(part), std::string::npos) << "expected '" << part << "' in: " << text;
}

TEST_F(DeviceBillTest, PartsAreWhatTheBillIsMadeOf) {
  const DeviceFacts facts{.held = 100 * kMiB,
                          .kernels = 10,
                          .launches = 1000,
                          .arena = 10 * kMiB + 5,
                          .apart = kMiB,
                          .mapped = 512 * kMiB,
                          .granule = 2 * kMiB};
  const DeviceBill bill = device_bill(facts);
  EXPECT_EQ(bill.context, facts.held);
  EXPECT_GE(bill.code, 4 * kMiB);
  EXPECT_EQ(bill.recordings, recording_bytes(1000));
  EXPECT_EQ(bill.page_tables, kMiB);  // 8 bytes for 4 KiB
  EXPECT_GE(bill.rounding, 0);
  EXPECT_LT(bill.rounding, 6 * kMiB);
  EXPECT_EQ((bill.sum() + facts.arena) % facts.granule, 0) << "what the driver gives";
  DeviceFacts timed = facts;
  timed.loaded = 32 * kMiB;
  EXPECT_EQ(device_bill(timed).code, timed.loaded);

  Sequential model = wide_net();
  const Tensor x = pattern({256, 64}, 1), y = pattern({256, 4}, 2);
  const PlanReport plan = model.plan(x, y, {.batch_size = 128});
  EXPECT_EQ(plan.bill.sum() + plan.ahead, plan.fixed);
  EXPECT_EQ(plan.bill.context, test::FakeDevice::kContext);
  EXPECT_GT(plan.bill.code, 0);
  EXPECT_GT(plan.bill.recordings, 0);
  EXPECT_GT(plan.ahead, 0);
  EXPECT_GT(plan.host_bill.pipeline, 0) << "the tensors, which are the host's";
  EXPECT_GE(plan.host_bill.staging, 2 * 128 * 64 * 4) << "of two batches";
  EXPECT_EQ(plan.host_bill.copy, plan.persistent);
}

TEST_F(DeviceBillTest, WhoHoldsTheMemoryThatIsMissingAndWhatFits) {
  const Tensor x = pattern({4096, 64}, 1), y = pattern({4096, 4}, 2);
  FitOptions options{.batch_size = 4096, .verbose = 0};
  leave_free(40 * kMiB);
  Sequential model = wide_net();
  const std::string text = message_of([&] { model.fit(x, y, options); });
  expect_part(text, "it has room for 140.0 MiB (process 7 holds ");
  const size_t fits = text.find("what would make it fit:\n    ");
  ASSERT_NE(fits, std::string::npos) << text;
  const size_t least = text.find("memory = ", fits);
  ASSERT_NE(least, std::string::npos) << text;
  options.memory = std::atoll(text.c_str() + least + 9);
  EXPECT_LE(model.fit(x, y, options).measured_process, *options.memory.bytes());
  // With all that there is as the budget, others are still why it is not more.
  leave_free(kMiB);
  options.memory = "max";
  expect_part(message_of([&] { wide_net().fit(x, y, options); }), " (process 7 holds ");
  // A budget of one's own is nobody else's fault.
  fake_->others = kMiB;
  options.memory = test::FakeDevice::kContext + kMiB;
  EXPECT_EQ(message_of([&] { wide_net().fit(x, y, options); }).find("process 7"),
            std::string::npos);
}

TEST_F(DeviceBillTest, AReservationThatFailsAllTheSameSaysWhatIsThere) {
  const Tensor x = pattern({64, 64}, 1), y = pattern({64, 4}, 2);
  Sequential model = wide_net(64);
  model.fit(x, y, {.verbose = 0});
  fake_->refusals = 1;
  const std::string text = message_of([&] { model.fit(x, y, {.verbose = 0}); });
  expect_part(text, "received none\n  what the device has room for now: memory = ");
  expect_part(text, "what fills it:");
  model.fit(x, y, {.verbose = 0});
}

TEST_F(DeviceBillTest, ValuesSayWhatIsFreeToo) {
  Runtime runtime({.threads = 1});
  const auto scope = device(kName);
  leave_free(3 * kMiB);
  const std::string text = message_of([&] { fill({1024, 1024}, 1); });
  expect_part(text, std::string(kName) + " gave none: 3.00 MiB are free (process 7 holds ");
}

TEST_F(DeviceBillTest, WhatNobodyPlannedIsAWarning) {
  const Tensor x = pattern({64, 64}, 1), y = pattern({64, 4}, 2);
  Sequential model = wide_net(64);
  ::testing::internal::CaptureStderr();
  model.fit(x, y, {.verbose = 0});
  EXPECT_EQ(::testing::internal::GetCapturedStderr(), "");
  fake_->grows = 64 * kMiB;
  ::testing::internal::CaptureStderr();
  Sequential other = wide_net(64);
  other.fit(x, y, {.verbose = 0});
  expect_part(::testing::internal::GetCapturedStderr(),
              "plimsoll: warning: [reserve] the process holds ");
}

// The bytes that a plan has for the next step's inputs are not free for others.
TEST_F(DeviceBillTest, KeptPlansKnowWhoCameSince) {
  const Tensor x = pattern({4096, 1024}, 1), y = pattern({4096, 4}, 2);
  Sequential model(Shape{1024}, {Dense(4)});
  model.compile({.optimizer = SGD(), .loss = "mse", .device = kName});
  const FitOptions options{.batch_size = 2048, .verbose = 0};
  const History alone = model.fit(x, y, options);
  const PlanReport plan = model.plan(x, y, options);
  EXPECT_GE(plan.ahead, 8 * kMiB);
  {
    Runtime runtime({.threads = 1});
    const auto scope = device(kName);
    const Tensor other = fill({2048, 1024}, 1);  // 8 MiB
    const History beside = model.fit(x, y, options);
    EXPECT_LE(beside.measured_process, beside.planned_process);
    EXPECT_GE(beside.planned_process, alone.planned_process + 8 * kMiB);
  }
}

// Takes 64 MiB of the device in the first epoch, and keeps them.
struct Keeps : Callback {
  void on_epoch_end(int64_t, Logs&) override {
    const auto scope = device(kName);
    if (!kept) kept = fill({4096, 4096}, 1);
  }
  std::optional<Tensor> kept;
};

TEST_F(DeviceBillTest, KeptPlansKnowWhatACallbackTook) {
  const Tensor x = pattern({256, 64}, 1), y = pattern({256, 4}, 2);
  Runtime runtime({.threads = 1});
  Sequential model = wide_net(64);
  FitOptions options{.batch_size = 64, .verbose = 0};
  const Bytes alone = model.fit(x, y, options).planned_process;
  options.callbacks = {std::make_shared<Keeps>()};
  options.memory = alone + kMiB;
  model.fit(x, y, options);
  expect_part(message_of([&] { model.fit(x, y, options); }), "[plan] expected a plan within");
  options.memory = {};
  const History beside = model.fit(x, y, options);
  EXPECT_GE(beside.planned_process, alone + 64 * kMiB);
  EXPECT_LE(beside.measured_process, beside.planned_process);
  EXPECT_EQ(model.fit(x, y, options).planned_process, beside.planned_process);
}

TEST_F(DeviceBillTest, KeptPlansStayWhileTheirBillCoversWhatIsHeld) {
  const Tensor x = pattern({256, 64}, 1), y = pattern({256, 4}, 2);
  Runtime runtime({.threads = 1});
  Sequential model = wide_net(64);
  const FitOptions options{.batch_size = 64, .verbose = 0};
  const History first = model.fit(x, y, options);
  EXPECT_EQ(model.fit(x, y, options).planned_process, first.planned_process);
  const auto scope = device(kName);
  const Tensor page = fill({1024}, 1);
  const History beside = model.fit(x, y, options);
  EXPECT_EQ(beside.planned_process, first.planned_process) << "planned anew, with the page";
  EXPECT_LE(beside.measured_process, beside.planned_process);
}

TEST_F(DeviceBillTest, TheHostsRefusalHasNoRemediesOfTheDevice) {
  const PlanReport report = wide_net(64).plan({.batch_size = 8});
  EXPECT_STREQ(refused(DoesNotFit("the host's"), report, fake_.get()).what(), "the host's");
  expect_part(refused(DeviceFull("its own"), report, fake_.get()).what(),
              "its own\n  what the device has room for now: ");
}

TEST_F(DeviceBillTest, TheSnapshotsRoomIsTheHostsWithWhatThePlanHasThere) {
  SessionPlan plan;
  plan.on_device = true;
  plan.host_bytes = 4 * kGiB;
  grant_snapshot(plan, kGiB, std::nullopt, 5 * kGiB);
  EXPECT_EQ(plan.snapshot, kGiB);
  grant_snapshot(plan, kGiB, std::nullopt, 5 * kGiB - 1);
  EXPECT_EQ(plan.snapshot, 0);
}

TEST_F(DeviceBillTest, VariablesThatWaitOnTheHostAreOfItsBill) {
  const Tensor x = pattern({64, 64}, 1), y = pattern({64, 4}, 2);
  const FitOptions options{.batch_size = 64, .verbose = 0};
  Sequential model = wide_net(64);
  model.compile({.optimizer = Adam(), .loss = "mse", .device = kName});
  const Bytes with_slots = model.plan(x, y, options).persistent;
  model.fit(x, y, options);
  model.compile({.optimizer = SGD(), .loss = "mse", .device = kName});
  const PlanReport plan = model.plan(x, y, options);
  EXPECT_LT(plan.persistent, with_slots);
  EXPECT_EQ(plan.host_bill.copy, with_slots);
  // A reservation that fails leaves weights as they were.
  const Tensors before = model.get_weights();
  fake_->refusals = 1;
  EXPECT_THROW(model.fit(x, y, options), DoesNotFit);
  const Tensors after = model.get_weights();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same_bits(before[i], after[i])) << i;
}

TEST(ProcessRoomTest, WhatDoesNotFitIsTheFigureThatWasCompared) {
  PlanReport report;
  report.fits = false;
  report.arena = kMiB;
  report.process = system_limit() + 1024 * kGiB;
  const std::string text = message_of([&] { require_room(report); });
  expect_part(text, "[reserve] expected " + format_bytes(report.process) + " for the process, ");
  expect_part(text, " with what it holds already");
}

TEST_F(DeviceBillTest, BitsAreTheDevicesToo) {
  const FitOptions options{.batch_size = 32};
  auto numerics = [&](const std::string& bits) {
    fake_->bits = bits;
    return wide_net(64).plan(options).numerics;
  };
  const std::string on = numerics("sm_90, deterministic");
  EXPECT_EQ(on, numerics("sm_90, deterministic"));
  EXPECT_NE(on, numerics("sm_90, not deterministic"));
  EXPECT_NE(on, numerics(""));
}

TEST_F(DeviceBillTest, FitSaysWhetherItIsDeterministic) {
  const Tensor x = pattern({8, 64}, 1), y = pattern({8, 4}, 2);
  for (const bool deterministic : {true, false}) {
    Sequential model(Shape{64}, {Dense(4)});
    model.compile({.loss = "mse", .device = kName, .deterministic = deterministic});
    EXPECT_EQ(model.plan({.batch_size = 8}).deterministic, deterministic);
    ::testing::internal::CaptureStdout();
    model.fit(x, y, {.verbose = 2});
    const std::string mode = deterministic ? ", deterministic:" : ", not deterministic:";
    expect_part(::testing::internal::GetCapturedStdout(), " on " + std::string(kName) + mode);
  }
}

struct Cut : Callback {
  void on_train_batch_end(int64_t, const Logs&) override {
    if (left-- == 0) throw std::runtime_error("cut");
  }
  int64_t left = 2;
};

TEST_F(DeviceBillTest, CheckpointsAreWrittenFromACopyOnTheHost) {
  const Tensor x = pattern({64, 64}, 1), y = pattern({64, 4}, 2);
  const FitOptions plain{.batch_size = 8, .verbose = 0, .shuffle = false};
  Sequential whole = wide_net(64);
  const PlanReport without = whole.plan(x, y, plain);
  whole.fit(x, y, plain);
  const TempFolder folder;
  FitOptions options = plain;
  options.callbacks = {BackupAndRestore(folder / "b", {.save_freq = 1})};
  Sequential model = wide_net(64);
  const PlanReport plan = model.plan(x, y, options);
  EXPECT_GE(plan.snapshot, plan.persistent);
  EXPECT_EQ(plan.host_bill.snapshot, plan.snapshot);
  EXPECT_EQ(plan.process, without.process + (plan.bill.context - without.bill.context))
      << "nothing of the device's";
  FitOptions cut = options;
  cut.callbacks.push_back(std::make_shared<Cut>());
  EXPECT_THROW(model.fit(x, y, cut), std::runtime_error);
  Sequential again = wide_net(64);
  // Other bits: the run goes on, and says so.
  fake_->bits = "others";
  ::testing::internal::CaptureStderr();
  again.fit(x, y, options);
  expect_part(::testing::internal::GetCapturedStderr(), "--deterministic than in the saved run");
  const Tensors a = whole.get_weights(), b = again.get_weights();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << i;
}

}  // namespace
}  // namespace pl::device_bill_test
