#include "execute/preparing.h"

#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "backend/cuda/handle_lock.h"
#include "op/ops.h"
#include "tests/fake_device.h"

namespace pl::preparing_test {
namespace {

Preparing::Call adding(Dim elements, Dim of_other) {
  const Meta meta{Dtype::float32, Shape{elements}}, other{Dtype::float32, Shape{of_other}};
  return {"add " + std::to_string(elements), &get_op("add"), {meta, other}, {meta}, {}};
}

TEST(Preparing, GivesEveryKernelOnceInAnyOrder) {
  test::FakeDevice device;
  std::vector<Preparing::Call> calls;
  for (Dim elements = 1; elements <= 40; ++elements) calls.push_back(adding(elements, elements));
  Preparing preparing(device, calls, 4);
  EXPECT_EQ(preparing.take("no such call"), nullptr);
  for (Dim elements : {40, 1, 17, 3, 2}) {
    const std::string name = "add " + std::to_string(elements);
    EXPECT_NE(preparing.take(name), nullptr) << name;
    EXPECT_EQ(preparing.take(name), nullptr) << name;
    EXPECT_EQ(preparing.take_ready(name), nullptr) << name;
  }
  EXPECT_EQ(preparing.take_all().size(), 35u);
  EXPECT_TRUE(preparing.take_all().empty());
}

TEST(Preparing, LeavesWhatNobodyWaitsFor) {
  test::FakeDevice device;
  std::vector<Preparing::Call> calls;
  for (Dim elements = 1; elements <= 400; ++elements) calls.push_back(adding(elements, elements));
  Preparing preparing(device, calls, 2);
  EXPECT_NE(preparing.take("add 1"), nullptr);
}

// cuDNN's handle: whoever runs goes before all who wait to build.
TEST(HandleLock, RunsGoFirst) {
  HandleLock handle;
  handle.lock();
  std::atomic<int> builders = 0;
  std::vector<std::string> order;  // guarded by the handle
  std::vector<std::thread> threads;
  for (int b = 0; b < 4; ++b)
    threads.emplace_back([&] {
      ++builders;
      handle.lock();
      order.push_back("build");
      handle.unlock();
    });
  while (builders < 4) std::this_thread::yield();
  threads.emplace_back([&] {
    handle.lock_first();
    order.push_back("run");
    handle.unlock();
  });
  while (!handle.awaited()) std::this_thread::yield();
  handle.unlock();
  for (std::thread& thread : threads) thread.join();
  ASSERT_EQ(order.size(), 5u);
  EXPECT_EQ(order[0], "run");
}

}  // namespace
}  // namespace pl::preparing_test
