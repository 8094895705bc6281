#include "backend/cpu/host_memory.h"

#include <gtest/gtest.h>

namespace pl::host_memory_test {
namespace {

TEST(HostRoom, GivesADeviceHalfOrWhatWasSaidButNoMoreThanThereIs) {
  const HostRoom room{.available = 100, .cgroup = 60, .address_space = 80};
  EXPECT_EQ(room.for_device(std::nullopt), 30);
  EXPECT_EQ(room.for_device(0), 0);
  EXPECT_EQ(room.for_device(45), 45);
  EXPECT_EQ(room.for_device(61), 60);
  EXPECT_EQ(HostRoom{.available = 7}.for_device(std::nullopt), 3);
}

}  // namespace
}  // namespace pl::host_memory_test
