// Budgets are for a whole process, and what other tests leave in it (code pages, heap, data) is no
// part of any bill: a test of a budget runs in a process of its own.
#pragma once

#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <string>

namespace pl::test {

// True: this process is for several tests, and the one that calls ran in another; it failed here if
// it did there. False: go on.
inline bool ran_in_own_process() {
  const ::testing::UnitTest& all = *::testing::UnitTest::GetInstance();
  if (all.test_to_run_count() <= 1) return false;
  const std::string program = std::filesystem::read_symlink("/proc/self/exe").string();
  const ::testing::TestInfo& test = *all.current_test_info();
  const std::string name = std::string(test.test_suite_name()) + "." + test.name();
  const std::string command = "'" + program + "' --gtest_brief=1 --gtest_filter='" + name + "'";
  EXPECT_EQ(std::system(command.c_str()), 0) << command;
  return true;
}

}  // namespace pl::test
