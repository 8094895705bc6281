// Lanes: steps that need each other's bytes stay in order, others do not wait.
#include "execute/lanes.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "tests/graph_run.h"

namespace pl {
namespace {

constexpr int kLanes = 3;

// Knows of every step what it comes behind, from marks and waits alone.
class LaneDevice final : public DeviceWork {
 public:
  LaneDevice() : done_(kLanes) {}
  int lanes() const override { return kLanes; }
  void use_lane(int lane) override { lane_ = static_cast<size_t>(lane); }
  int mark() override {
    marks_.push_back(done_[lane_]);
    return static_cast<int>(marks_.size()) - 1;
  }
  void wait(int mark) override {
    const auto& other = marks_[static_cast<size_t>(mark)];
    done_[lane_].insert(other.begin(), other.end());
    ++waits;
  }
  double time_ms(const std::function<void()>&) override { return 0; }
  // A step runs on the lane in use; answers those that it comes behind.
  std::set<int> run(int step) {
    std::set<int> behind = done_[lane_];
    done_[lane_].insert(step);
    return behind;
  }
  size_t lane() const { return lane_; }
  int waits = 0;

 private:
  size_t lane_ = 0;
  std::vector<std::set<int>> done_, marks_;
};

struct Range {
  int64_t at, bytes;
  bool meets(const Range& other) const {
    return at < other.at + other.bytes && other.at < at + bytes;
  }
};
struct Work {
  std::vector<Range> reads, writes;
};

bool depends(const Work& later, const Work& earlier) {
  auto any = [](const std::vector<Range>& a, const std::vector<Range>& b) {
    return std::any_of(a.begin(), a.end(), [&](const Range& x) {
      return std::any_of(b.begin(), b.end(), [&](const Range& y) { return x.meets(y); });
    });
  };
  return any(later.reads, earlier.writes) || any(later.writes, earlier.writes) ||
         any(later.writes, earlier.reads);
}

std::set<int> take(Lanes& lanes, LaneDevice& device, const char* base, const Work& work,
                      int step) {
  lanes.begin();
  for (const Range& range : work.reads) lanes.reads(base + range.at, range.bytes);
  for (const Range& range : work.writes) lanes.writes(base + range.at, range.bytes);
  lanes.take();
  std::set<int> behind = device.run(step);
  lanes.end();
  return behind;
}

TEST(Lanes, KeepTheOrderOfStepsThatShareBytes) {
  const std::vector<char> memory(512);
  test::Numbers numbers(5);
  auto ranges = [&](int most) {
    std::vector<Range> list;
    const int count = static_cast<int>(numbers.real() * (most + 1));
    for (int i = 0; i < count; ++i)
      list.push_back({static_cast<int64_t>(numbers.real() * 400),
                      1 + static_cast<int64_t>(numbers.real() * 60)});
    return list;
  };
  for (int round = 0; round < 20; ++round) {
    LaneDevice device;
    Lanes lanes(device);
    std::vector<Work> all;
    for (int step = 0; step < 60; ++step) {
      all.push_back({ranges(3), ranges(2)});
      const std::set<int> behind = take(lanes, device, memory.data(), all.back(), step);
      for (int before = 0; before < step; ++before)
        if (depends(all.back(), all[static_cast<size_t>(before)]))
          ASSERT_TRUE(behind.contains(before)) << "step " << step << " does not wait for " << before;
    }
  }
}

TEST(Lanes, LetIndependentStepsRunSideBySide) {
  const std::vector<char> memory(512);
  LaneDevice device;
  Lanes lanes(device);
  const Work first{{}, {{0, 64}}}, left{{{0, 64}}, {{64, 64}}}, right{{{0, 64}}, {{128, 64}}};
  take(lanes, device, memory.data(), first, 0);
  take(lanes, device, memory.data(), left, 1);
  const size_t lane = device.lane();
  const std::set<int> behind = take(lanes, device, memory.data(), right, 2);
  EXPECT_NE(device.lane(), lane);
  EXPECT_EQ(behind, std::set<int>{0});
  EXPECT_EQ(device.waits, 1);
  const Work chain{{{128, 64}}, {{128, 64}}};
  take(lanes, device, memory.data(), chain, 3);
  EXPECT_EQ(device.waits, 1) << "a chain stays on its lane";
}

}  // namespace
}  // namespace pl
