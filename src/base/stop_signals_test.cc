#include "base/stop_signals.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>

namespace pl::stop_signals_test {
namespace {

TEST(StopSignals, TheFirstIsNotedAndForgottenAtTheEnd) {
  {
    const StopSignals outer;
    EXPECT_EQ(StopSignals::received(), 0);
    {
      const StopSignals inner;
      std::raise(SIGTERM);
    }
    EXPECT_EQ(StopSignals::received(), SIGTERM);
    std::raise(SIGTERM);  // a second one changes nothing
  }
  EXPECT_EQ(StopSignals::received(), 0);
}

TEST(StopSignals, OtherHandlersAreLeftAlone) {
  struct sigaction mine {};
  mine.sa_handler = SIG_IGN;
  struct sigaction before {};
  sigaction(SIGINT, &mine, &before);
  {
    const StopSignals signals;
    std::raise(SIGINT);
    EXPECT_EQ(StopSignals::received(), 0);
  }
  sigaction(SIGINT, &before, nullptr);
}

TEST(StopSignals, ASecondCtrlCLeavesAtOnce) {
  const pid_t child = ::fork();
  if (child == 0) {
    std::signal(SIGINT, SIG_DFL);
    const StopSignals signals;
    std::raise(SIGINT);
    std::raise(SIGINT);
    ::_exit(1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  ASSERT_TRUE(WIFEXITED(status));
  EXPECT_EQ(WEXITSTATUS(status), 130);
}

}  // namespace
}  // namespace pl::stop_signals_test
