// compile({.run_eagerly = true}): op by op within the same budget, with the bits of a planned step
// whose ops were not fused.
#include <gtest/gtest.h>

#include <cmath>

#include "tests/eager_runs.h"
#include "tests/own_process.h"

namespace pl::run_eagerly_test {
namespace {

using test::expect_same_bits;
using test::pattern;
using test::whole_numbers;

TEST(RunEagerly, IsAPlannedModelBitForBit) {
  for (const test::EagerCase& of : test::eager_cases()) test::expect_eager_is_planned(of);
}

// What a step of one's own prints, it prints in every step.
TEST(RunEagerly, RunsTheModelsCodeInEveryStep) {
  struct Own : Sequential {
    Own() : Sequential(Shape{4}, {Dense(1)}) {}
    TensorLogs train_step(const StepData& data) override {
      GradientTape tape;
      const Tensor loss = compute_loss(data, (*this)(data.x(), true));
      if (!loss.is_symbol()) seen.push_back(loss.data_as<float>()[0]);
      const std::vector<Variable> weights = trainable_variables();
      const Tensors gradients = tape.gradient(loss, weights);
      optimizer().apply_gradients({{gradients[0], weights[0]}, {gradients[1], weights[1]}});
      return {{"loss", loss}};
    }
    std::vector<float> seen;
  };
  const Tensor x = pattern({16, 4}, 1), y = pattern({16, 1}, 2);
  Own eager, planned;
  eager.compile({.optimizer = SGD(), .loss = "mse", .run_eagerly = true});
  planned.compile({.optimizer = SGD(), .loss = "mse", .fuse = false});
  const FitOptions options{.batch_size = 4, .epochs = 2, .verbose = 0, .threads = 1};
  const History a = eager.fit(x, y, options), b = planned.fit(x, y, options);
  EXPECT_EQ(eager.seen.size(), 8u);
  EXPECT_EQ(planned.seen.size(), 0u);
  EXPECT_EQ(a.history, b.history);
  expect_same_bits(eager.get_weights(), planned.get_weights());
}

TEST(RunEagerly, StaysWithinTheBudgetOrSaysSo) {
  if (test::ran_in_own_process()) return;
  auto make = [] {
    Sequential model(Shape{256}, {Dense(1024, {.activation = "gelu"}),
                                  Dense(1024, {.activation = "gelu"}), Dense(3)});
    model.compile({.optimizer = SGD(),
                   .loss = Loss{"sparse_categorical_crossentropy", true},
                   .run_eagerly = true});
    return model;
  };
  const Tensor x = pattern({256, 256}, 1), y = whole_numbers({256}, 3);
  FitOptions options{.batch_size = 256, .verbose = 0, .threads = 1};
  Sequential free = make();
  const PlanReport report = free.plan(x, y, options);
  const History history = free.fit(x, y, options);
  EXPECT_LE(history.used_arena, report.arena);
  // As much as was used is enough.
  options.memory = report.process - report.arena + history.used_arena + kMiB;
  const History tight = make().fit(x, y, options);
  EXPECT_LE(tight.used_arena, tight.planned_arena);
  EXPECT_LE(tight.planned_process, *options.memory.bytes());
  // Less than a planned step needs is refused at once, a little more in the step that has no room.
  for (const Bytes less : {report.process - report.arena + history.used_arena - 4 * kMiB,
                           report.process - report.arena + kMiB}) {
    options.memory = less;
    try {
      make().fit(x, y, options);
      ADD_FAILURE() << "it must be refused";
    } catch (const DoesNotFit& error) {
      EXPECT_NE(std::string(error.what()).find("expected"), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace pl::run_eagerly_test
