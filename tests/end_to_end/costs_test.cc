// The cost table as the command keeps it: calibrated on first use in a process of its own, refined
// by training, and no reason for anything to fail.
#include <cstdlib>
#include <filesystem>

#include "tests/end_to_end/command.h"

namespace pl::test::costs_test {
namespace {

// Every other test plans with nominal costs, so that plans do not depend on what ran before.
const bool kNominal = ::setenv("PLIMSOLL_COSTS", "nominal", 0) == 0;

// A cache of its own, in which tables are made.
class Costs : public ::testing::Test {
 protected:
  Costs() {
    ::setenv("PLIMSOLL_CACHE", (folder_ / "cache").c_str(), 1);
    ::unsetenv("PLIMSOLL_COSTS");
  }
  ~Costs() override {
    ::unsetenv("PLIMSOLL_CACHE");
    ::setenv("PLIMSOLL_COSTS", "nominal", 1);
  }
  std::string table() const {
    std::error_code none;
    for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache", none))
      if (entry.path().filename().string().starts_with("costs-"))
        return ::pl::test::read_bytes(entry.path());
    return "";
  }

  // Plans until there are rates: a busy machine may spoil the first measurement.
  std::string calibrated_table() const {
    for (int attempt = 0; attempt < 10 && table().find("\nmatmul ") == std::string::npos; ++attempt)
      EXPECT_EQ(plimsoll({"plan", "mlp", "--threads", "1", "--json"}).exit, 0);
    return table();
  }

  TempFolder folder_;
};

TEST_F(Costs, AreMeasuredOnceAndRefinedByTraining) {
  ASSERT_TRUE(kNominal);
  const std::string calibrated = calibrated_table();
  EXPECT_NE(calibrated.find("\nmatmul "), std::string::npos) << calibrated;
  EXPECT_EQ(calibrated.find("\ntime "), std::string::npos);
  ASSERT_EQ(plimsoll({"plan", "mlp", "--threads", "1", "--json"}).exit, 0);
  EXPECT_EQ(table(), calibrated);
  ASSERT_EQ(plimsoll({"train", "mlp", "--threads", "1", "--steps", "10", "--json"}).exit, 0);
  const std::string refined = table();
  EXPECT_TRUE(refined.starts_with(calibrated)) << "the rates stay";
  EXPECT_NE(refined.find("\ntime "), std::string::npos);
  EXPECT_NE(refined.find(" matmul "), std::string::npos);
}

TEST_F(Costs, TooFewStepsTeachNothing) {
  ASSERT_EQ(plimsoll({"train", "mlp", "--threads", "1", "--steps", "6", "--json"}).exit, 0);
  EXPECT_EQ(table().find("\ntime "), std::string::npos);
}

// The buffers of the calibration are on nobody's bill, so they must not be in the process, nor in
// one that it waits for.
TEST_F(Costs, CalibrationDoesNotCountAsTheRunsMemory) {
  if (kSanitized) GTEST_SKIP() << "not measured under a sanitizer";
  const Finished done =
      plimsoll_measured({"train", "mlp", "--threads", "1", "--steps", "8", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  EXPECT_LE(done.peak, integer_at(done.event("plan"), "process_bytes"));
}

TEST_F(Costs, ASmallBudgetIsNotSpentOnCalibration) {
  const Finished done = plimsoll({"plan", "mlp", "--memory", "40MiB", "--json"});
  EXPECT_EQ(done.exit, 0) << done.err;
  EXPECT_EQ(table(), "");
}

TEST_F(Costs, ACacheThatCannotBeUsedIsNoError) {
  for (const char* place : {"/dev/null/none", "/proc"}) {
    ::setenv("PLIMSOLL_CACHE", place, 1);
    const Finished done = plimsoll({"train", "mlp", "--steps", "8", "--json"});
    EXPECT_EQ(done.exit, 0) << place << ": " << done.err;
    if (kSanitized) continue;  // a sanitizer's own memory draws a warning
    EXPECT_EQ(done.err, "");
  }
}

TEST_F(Costs, ADamagedTableIsMadeAnew) {
  calibrated_table();
  for (const auto& entry : std::filesystem::directory_iterator(folder_ / "cache"))
    std::ofstream(entry.path()) << "{\"not\": \"a table\"";
  EXPECT_NE(calibrated_table().find("\nmatmul "), std::string::npos);
}

}  // namespace
}  // namespace pl::test::costs_test
