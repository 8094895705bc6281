#include "backend/cuda/device_holders.h"

#include "backend/cuda/cuda_backend.h"
#include "tests/cuda/device_test.h"

namespace pl::device_holders_cuda_test {
namespace {

using DeviceHoldersTest = CudaTest;

TEST(DeviceHolders, AreTheOthersAllButThisProcess) {
  EXPECT_EQ(held_by_others({{1, 10}, {2, 200}, {3, 3000}}, 2), 3010);
  EXPECT_EQ(held_by_others({{1, 10}}, 0), 10);
  EXPECT_EQ(held_by_others({}, 1), 0);
}

TEST(DeviceHolders, AProcessOfAnotherNumberIsTheOneThatCame) {
  const std::vector<DeviceHolder> before{{1, 10}, {2, 200}};
  EXPECT_EQ(own_process(before, {{1, 10}, {2, 200}, {7, 5}}, 7), 7u);    // under its own
  EXPECT_EQ(own_process(before, {{1, 10}, {2, 200}, {40, 5}}, 7), 40u);  // in a container
  EXPECT_EQ(own_process(before, {{2, 200}, {40, 5}}, 7), 40u);           // another one left
  EXPECT_EQ(own_process(before, {{1, 10}, {40, 5}, {41, 5}}, 7), 0u);    // either
  EXPECT_EQ(own_process(before, before, 7), 0u);
}

// Of a device that does not exist, and where NVML is missing.
TEST(DeviceHolders, AreNoneWhereNobodyCanBeAsked) {
  DeviceHolders none(1000);
  none.find_own();
  EXPECT_EQ(none.others(), 0);
  EXPECT_NE(none.others_text().find("what others hold counts as"), std::string::npos);
}

TEST(DeviceHolders, AProcessIsKnownByWhatItTakes) {
  EXPECT_EQ(grown_by({{1, 10}, {2, 200}}, {{1, 10}, {2, 232}, {3, 50}}, 32), 2u);
  EXPECT_EQ(grown_by({{1, 10}, {2, 200}}, {{1, 50}, {2, 232}}, 32), 0u);  // either
  EXPECT_EQ(grown_by({{1, 10}}, {{1, 10}}, 32), 0u);
}

// As in a process that had a context before: in a container it has another number then.
TEST_F(DeviceHoldersTest, ASecondBackendHoldsWhatTheFirstDoes) {
  const auto memory = backend->reserve(256 * kMiB);
  CudaBackend second;
  EXPECT_LT(std::abs(second.held() - backend->held()), 4 * kMiB);
}

TEST_F(DeviceHoldersTest, WhatThisProcessHoldsFollowsItsReservations) {
  const Bytes held = backend->held();
  EXPECT_GT(held, 0);
  {
    const auto memory = backend->reserve(256 * kMiB);
    EXPECT_GE(backend->held(), held + 256 * kMiB);
    EXPECT_LT(backend->held(), held + 300 * kMiB);
  }
  EXPECT_LT(backend->held(), held + 44 * kMiB);
}

}  // namespace
}  // namespace pl::device_holders_cuda_test
