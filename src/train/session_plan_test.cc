// Budgets of a session: what is chosen fits, more memory is never slower, equal questions get equal
// plans.
#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "model/builtin.h"
#include "tests/graph_run.h"
#include "train/session.h"

namespace pl::test::session_plan_test {
namespace {

class SessionBudgets : public ::testing::TestWithParam<const char*> {
 protected:
  SessionPlan plan(const PlanOptions& options) {
    const BuiltinModel& model = find_builtin(GetParam());
    const Compiled compiled{optimizer_from_name("adam"),
                            loss_from_name("sparse_categorical_crossentropy"),
                            {"accuracy"},
                            Dtype::float32};
    return plan_session(
        model.build(model.input, model.classes), compiled, backend_,
        {{StepKind::train, 240}, {StepKind::evaluate, 240}, {StepKind::train, 5}},
        {{{Dtype::uint8, model.input}}, {{Dtype::int32, Shape{}}}, 1.0 / 255, false}, 0, nullptr,
        options);
  }

  CpuBackend backend_{2};
  std::shared_ptr<PlanMemory> memory_ = std::make_shared<PlanMemory>(backend_);
};

TEST_P(SessionBudgets, AreKeptAndMoreMemoryIsNeverSlower) {
  const SessionPlan all = plan({.all = true, .memory = memory_});
  ASSERT_TRUE(all.complete);
  for (size_t p = 1; p < all.frontier.size(); ++p) {
    EXPECT_LT(all.frontier[p].process(), all.frontier[p - 1].process());
    EXPECT_GT(all.frontier[p].ms, all.frontier[p - 1].ms);
  }
  const Bytes least = all.frontier.back().process(), most = all.unlimited.process();
  ASSERT_LT(least, most);
  EXPECT_LE(all.floor, least);
  std::vector<Bytes> budgets{least, most, most + 1, least + 1, most - 1};
  Numbers numbers(7);
  for (int i = 0; i < 20; ++i)
    budgets.push_back(least +
                      static_cast<Bytes>(static_cast<double>(most - least) * numbers.real()));
  std::sort(budgets.begin(), budgets.end());
  double slowest = 1e300;
  for (Bytes budget : budgets) {
    SCOPED_TRACE("budget " + std::to_string(budget));
    const SessionPlan chosen = plan({.budget = budget, .memory = memory_});
    EXPECT_LE(chosen.process(), budget);
    Bytes largest = 0;
    double ms = 0;
    for (const Prepared& prepared : chosen.prepared) {
      EXPECT_NO_THROW(validate(prepared.graph, prepared.plan, prepared.facts));
      largest = std::max(largest, prepared.plan.arena);
    }
    EXPECT_EQ(chosen.arena, largest);
    EXPECT_EQ(chosen.prepared[chosen.fullest].plan.arena, largest);
    for (const SessionPoint& point : chosen.frontier)
      if (point.process() <= budget && ms == 0) ms = point.ms;
    EXPECT_GE(ms, all.unlimited.ms);
    EXPECT_LE(ms, slowest);
    slowest = ms;
  }
  EXPECT_EQ(slowest, all.unlimited.ms);
}

TEST_P(SessionBudgets, EqualQuestionsGetEqualPlans) {
  const SessionPlan all = plan({.all = true, .memory = memory_});
  const Bytes budget = (all.frontier.back().process() + all.unlimited.process()) / 2;
  const SessionPlan again = plan({.budget = budget, .memory = memory_});
  const SessionPlan fresh = plan({.budget = budget});
  ASSERT_EQ(fresh.prepared.size(), again.prepared.size());
  for (size_t s = 0; s < fresh.prepared.size(); ++s)
    EXPECT_EQ(print(fresh.prepared[s].graph, fresh.prepared[s].plan),
              print(again.prepared[s].graph, again.prepared[s].plan));
}

INSTANTIATE_TEST_SUITE_P(Models, SessionBudgets, ::testing::Values("mlp", "mnist-cnn"),
                         [](const auto& info) {
                           return std::string(info.param) == "mlp" ? "Mlp" : "MnistCnn";
                         });

}  // namespace
}  // namespace pl::test::session_plan_test
