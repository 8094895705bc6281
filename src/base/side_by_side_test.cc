#include "base/side_by_side.h"

#include <gtest/gtest.h>

#include <atomic>
#include <stdexcept>
#include <vector>

namespace pl::side_by_side_test {
namespace {

TEST(SideBySide, DoesEverythingOnce) {
  for (size_t threads : {0, 1, 2, 7, 100}) {
    std::vector<std::atomic<int>> done(50);
    side_by_side(done.size(), threads, [&](size_t i) { ++done[i]; });
    for (const auto& times : done) EXPECT_EQ(times, 1);
  }
  side_by_side(0, 4, [](size_t) { FAIL(); });
}

TEST(SideBySide, TellsWhatFailed) {
  for (size_t threads : {1, 4})
    EXPECT_THROW(side_by_side(20, threads,
                              [](size_t i) {
                                if (i == 13) throw std::runtime_error("no");
                              }),
                 std::runtime_error);
}

}  // namespace
}  // namespace pl::side_by_side_test
