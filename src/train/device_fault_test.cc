// What a user reads when a device fails: which step or batch of what, and the op or those around
// it.
#include <gtest/gtest.h>

#include <cstdlib>

#include "backend/devices.h"
#include "plimsoll.h"
#include "tests/fake_device.h"
#include "tests/graph_run.h"
#include "tests/patterns.h"

namespace pl::device_fault_test {
namespace {

using test::error_of;
using test::pattern;

constexpr const char* kName = "cuda:41";
constexpr const char* kFault = "cudaErrorIllegalAddress";

class FaultyDevice : public ::testing::Test {
 protected:
  FaultyDevice()
      : device_(std::make_shared<test::FakeDevice>()),
        space_(Devices::current()->share(device_from_name(kName), device_)) {
    ::setenv("PLIMSOLL_COSTS", "nominal", 1);
    device_->records = true;
  }
  ~FaultyDevice() override { ::unsetenv("PLIMSOLL_SYNC"); }

  Model model() const {
    Sequential model(
        {Dense(5, {.activation = "tanh", .name = "first"}), Dense(3, {.name = "second"})});
    model.build({4});
    model.compile({.optimizer = SGD(), .loss = "mse", .device = kName});
    return model;
  }
  // From the batch on that is the hook's second one.
  std::function<void(int64_t, const Logs&)> in_batch_two(int kernels) const {
    return [this, kernels](int64_t batch, const Logs&) {
      if (batch == 1) device_->fault_in = kernels;
    };
  }
  std::string fit_fails(int kernels) {
    Model m = model();
    return error_of<BackendError>([&] {
      m.fit(x_, y_,
            {.batch_size = 4,
             .verbose = 0,
             .callbacks = {LambdaCallback({.on_train_batch_begin = in_batch_two(kernels)})},
             .threads = 1});
    });
  }

  std::shared_ptr<test::FakeDevice> device_;
  std::shared_ptr<DeviceSpace> space_;
  Tensor x_ = pattern({16, 4}, 1), y_ = pattern({16, 3}, 2);
};

void expect_in(const std::string& text, std::initializer_list<const char*> words) {
  for (const char* word : words)
    EXPECT_NE(text.find(word), std::string::npos) << word << "\n" << text;
}

TEST_F(FaultyDevice, FitSaysWhichStepAndBetweenWhichOps) {
  const std::string text = fit_fails(1);
  EXPECT_EQ(text.find("[train] step 2: [first] "), 0u) << text;
  expect_in(text, {" to [", kFault, "PLIMSOLL_SYNC=1"});
}

TEST_F(FaultyDevice, FitNamesTheOpWhereEachIsWaitedFor) {
  ::setenv("PLIMSOLL_SYNC", "1", 1);
  const std::string text = fit_fails(0);
  EXPECT_EQ(text.find("[train] step 2: [first] "), 0u) << text;
  expect_in(text, {kFault});
  EXPECT_EQ(text.find(" to ["), std::string::npos) << text;
  EXPECT_EQ(text.find("PLIMSOLL_SYNC"), std::string::npos) << text;
}

TEST_F(FaultyDevice, WhatRunsBeforeTheFirstStepSaysSo) {
  Model m = model();
  m.get_weights();
  device_->fault_in = 0;
  const std::string text =
      error_of<BackendError>([&] { m.fit(x_, y_, {.batch_size = 4, .verbose = 0, .threads = 1}); });
  EXPECT_EQ(text.find("[prepare] before step 1: [first] "), 0u) << text;
}

TEST_F(FaultyDevice, EvaluateAndPredictSayWhichBatch) {
  Model m = model();
  std::string text = error_of<BackendError>([&] {
    m.evaluate(x_, y_,
               {.batch_size = 4,
                .callbacks = {LambdaCallback({.on_test_batch_begin = in_batch_two(0)})},
                .threads = 1});
  });
  EXPECT_EQ(text.find("[evaluate] batch 2: [first] "), 0u) << text;
  expect_in(text, {kFault});
  device_->mend();
  text = error_of<BackendError>([&] {
    m.predict(x_, {.batch_size = 4,
                   .callbacks = {LambdaCallback({.on_predict_batch_begin = in_batch_two(0)})},
                   .threads = 1});
  });
  EXPECT_EQ(text.find("[predict] batch 2: [first] "), 0u) << text;
  device_->mend();
}

TEST_F(FaultyDevice, OpsOnValuesSayWhatWasUnderWay) {
  Runtime runtime({.threads = 1});
  const auto scope = device(kName);
  const Tensor a = tanh(x_);
  device_->fault_in = 0;
  const Tensor b = tanh(a);  // fails; nobody knows yet
  std::string text = error_of<BackendError>([&] { square(b); });
  EXPECT_EQ(text.find("[square] or an op before it: "), 0u) << text;
  expect_in(text, {kFault, "PLIMSOLL_SYNC=1"});
  // That there is no memory is not what it says.
  const Tensor large({Dtype::float32, {1024, 1024}});
  text = error_of<BackendError>([&] { tanh(large); });
  EXPECT_EQ(text.find("[tanh] or an op before it: "), 0u) << text;
  expect_in(text, {kFault, "PLIMSOLL_SYNC=1"});
  text = error_of<BackendError>([&] { b.data(); });
  EXPECT_EQ(text.find(std::string("[device] ") + kName + ": "), 0u) << text;
  expect_in(text, {kFault, "PLIMSOLL_SYNC=1"});
  device_->mend();
}

TEST_F(FaultyDevice, OpsOnValuesAreNamedWhereEachIsWaitedFor) {
  ::setenv("PLIMSOLL_SYNC", "1", 1);
  Runtime runtime({.threads = 1});
  const auto scope = device(kName);
  const Tensor a = tanh(x_);
  device_->fault_in = 0;
  EXPECT_EQ(error_of<BackendError>([&] { tanh(a); }),
            std::string("[tanh] [cuda] synchronize: ") + kFault);
  device_->mend();
}

TEST_F(FaultyDevice, FunctionsSayTheirName) {
  ::setenv("PLIMSOLL_SYNC", "1", 1);
  Runtime runtime({.threads = 1});
  const auto scope = device(kName);
  auto twice = pl::function([](const Tensor& x) { return tanh(tanh(x)); }, {.name = "twice"});
  twice(x_);
  device_->fault_in = 0;
  const std::string text = error_of<BackendError>([&] { twice(x_); });
  EXPECT_EQ(text.find("[function] twice: "), 0u) << text;
  expect_in(text, {kFault});
  device_->mend();
}

TEST_F(FaultyDevice, FunctionsAreNotAloneThere) {
  Runtime runtime({.threads = 1});
  const auto scope = device(kName);
  auto twice = pl::function([](const Tensor& x) { return tanh(tanh(x)); }, {.name = "twice"});
  twice(x_).data();
  device_->fault_in = 0;
  const Tensor dead = square(x_);
  const std::string text = error_of<BackendError>([&] { twice(x_); });
  EXPECT_EQ(text.find("[function] twice: before or in "), 0u) << text;
  expect_in(text, {kFault, "PLIMSOLL_SYNC=1"});
  device_->mend();
}

// On the host nothing is waited for.
TEST(WaitsBehindEachOp, ByTheEnvironment) {
  ::unsetenv("PLIMSOLL_SYNC");
  EXPECT_FALSE(waits_behind_each_op());
  for (const auto& [value, waits] : {std::pair{"", false}, {"0", false}, {"1", true}}) {
    ::setenv("PLIMSOLL_SYNC", value, 1);
    EXPECT_EQ(waits_behind_each_op(), waits) << value;
  }
  ::unsetenv("PLIMSOLL_SYNC");
}

}  // namespace
}  // namespace pl::device_fault_test
