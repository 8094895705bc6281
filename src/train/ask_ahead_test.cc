// Calls of a device that are timed while others are prepared and searches begin: plans are those of
// a run that knew all times before.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>

#include "base/cache_folder.h"
#include "model/builtin.h"
#include "tests/fake_device.h"
#include "train/session.h"

namespace pl::ask_ahead_test {
namespace {

class AskAhead : public ::testing::Test {
 protected:
  AskAhead() : before_(environment("PLIMSOLL_CACHE")) {
    char folder[] = "/tmp/plimsoll-ahead-XXXXXX";
    folder_ = ::mkdtemp(folder);
    ::setenv("PLIMSOLL_CACHE", folder_.c_str(), 1);
    device_.threads = 3;
  }
  ~AskAhead() override {
    if (before_.empty())
      ::unsetenv("PLIMSOLL_CACHE");
    else
      ::setenv("PLIMSOLL_CACHE", before_.c_str(), 1);
    std::filesystem::remove_all(folder_);
  }

  // With what earlier runs left in the folder.
  SessionPlan plan(std::optional<Bytes> budget) {
    const auto memory = std::make_shared<PlanMemory>(device_, CostTable::load(folder_, device_));
    const Compiled compiled{optimizer_from_name("adam"),
                            loss_from_name("sparse_categorical_crossentropy"),
                            {"accuracy"},
                            Dtype::float32};
    return plan_session(find_builtin("mlp").build(Shape{784}, 10), compiled, device_,
                        {{StepKind::train, 512}, {StepKind::evaluate, 512}},
                        {{{Dtype::float32, Shape{784}}}, {{Dtype::int32, Shape{}}}, 1, true}, 0,
                        nullptr, {.budget = budget, .host = kGiB, .memory = memory});
  }

  test::FakeDevice device_{DeviceKind::cuda};
  std::string folder_, before_;
};

TEST_F(AskAhead, ARunThatTimesCallsPlansAsOneThatKnowsThem) {
  const Bytes all = plan(std::nullopt).process();
  ASSERT_EQ(device_.runs, 0);  // nothing to search for
  for (const double share : {0.985, 0.97, 0.955}) {
    SCOPED_TRACE(share);
    std::filesystem::remove_all(folder_);
    const auto budget = static_cast<Bytes>(share * static_cast<double>(all));
    const int before = device_.runs;
    const SessionPlan timed = plan(budget);
    const int behind = device_.runs;
    EXPECT_GT(behind, before);
    EXPECT_EQ(device_.alone, 0);
    const SessionPlan known = plan(budget);
    EXPECT_LE(known.process(), budget);
    EXPECT_EQ(known.process(), timed.process());
    EXPECT_EQ(known.ms, timed.ms);
    ASSERT_EQ(known.frontier.size(), timed.frontier.size());
    for (size_t p = 0; p < known.frontier.size(); ++p)
      EXPECT_EQ(known.frontier[p].ms, timed.frontier[p].ms);
    for (size_t s = 0; s < known.prepared.size(); ++s)
      EXPECT_EQ(print(known.prepared[s].graph, known.prepared[s].plan),
                print(timed.prepared[s].graph, timed.prepared[s].plan));
  }
}

// Times and what calls need are a library's too, which is among the machine's words.
TEST_F(AskAhead, AnotherLibraryIsAskedAnew) {
  device_.words = "a device, cuBLASLt 130000, cuDNN 91300";
  const auto budget = static_cast<Bytes>(0.97 * static_cast<double>(plan(std::nullopt).process()));
  auto timed = [&] {
    const int before = device_.runs;
    plan(budget);
    return device_.runs - before;
  };
  EXPECT_GT(timed(), 0);
  EXPECT_EQ(timed(), 0);
  device_.words = "a device, cuBLASLt 130000, cuDNN 91400";
  EXPECT_GT(timed(), 0);
  device_.words = "a device, cuBLASLt 130000, cuDNN 91300";
  EXPECT_EQ(timed(), 0);
}

}  // namespace
}  // namespace pl::ask_ahead_test
