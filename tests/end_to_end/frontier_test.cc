// What half of the transient arena costs, for built-in models at their default sizes: predicted
// time from nominal rates, so that no machine's noise decides.
#include <cstdlib>

#include "tests/end_to_end/command.h"

namespace pl::test::frontier_test {
namespace {

struct Case {
  const char* name;
  const char* model;
  double most;  // of the step's time
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

constexpr Case kCases[] = {
    {"Resnet50", "resnet50", 0.15},       {"Unet", "unet", 0.15},
    {"Densenet121", "densenet121", 0.15}, {"Gpt2", "gpt2", 0.10},
    {"VitB16", "vit-b16", 0.10},
};

class HalfTheTransientArena : public ::testing::TestWithParam<Case> {};

TEST_P(HalfTheTransientArena, CostsLittleTime) {
  ::setenv("PLIMSOLL_COSTS", "nominal", 1);
  const Finished done = plimsoll({"plan", GetParam().model, "--frontier", "--json"});
  ASSERT_EQ(done.exit, 0) << done.err;
  const Json plan = done.lines().at(0);
  const Json& unlimited = plan.at("unlimited", "plan");
  const int64_t transient =
      integer_at(unlimited, "arena_bytes") - integer_at(plan, "persistent_bytes");
  const int64_t budget = integer_at(unlimited, "process_bytes") - transient / 2;
  const double whole = unlimited.at("step_ms", "unlimited").as_real("step_ms");
  // Time ascends along the frontier: the first that fits is the fastest.
  for (const Json& point : plan.at("frontier", "plan").as_array("frontier")) {
    if (integer_at(point, "process_bytes") > budget) continue;
    const double more = point.at("step_ms", "point").as_real("step_ms") / whole - 1;
    EXPECT_LE(more, GetParam().most);
    std::printf("half of the transient arena takes %.1f %% more time\n", 100 * more);
    return;
  }
  FAIL() << "no plan within " << budget << " bytes";
}

INSTANTIATE_TEST_SUITE_P(Plan, HalfTheTransientArena, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace pl::test::frontier_test
