// Optimiser state and activations in host memory: planned where the budget asks for it, and the
// same numbers.
#include <gtest/gtest.h>

#include "execute/call_timer.h"
#include "model/builtin.h"
#include "op/pointwise.h"
#include "tests/fake_device.h"
#include "train/loop.h"

namespace pl::offload_test {
namespace {

using test::FakeDevice;

class Offload : public ::testing::Test {
 protected:
  Network network() const { return find_builtin("mlp").build(Shape{784}, 10); }

  SessionPlan plan(PlanOptions options) {
    options.memory = std::make_shared<PlanMemory>(device_);
    options.memory->device_held = 100 * kMiB;
    const Compiled compiled{optimizer_from_name("adam"),
                            loss_from_name("sparse_categorical_crossentropy"),
                            {"accuracy"},
                            Dtype::float32};
    return plan_session(network(), compiled, device_, {{StepKind::train, 32}},
                        {{{Dtype::float32, Shape{784}}}, {{Dtype::int32, Shape{}}}, 1, true}, 0,
                        nullptr, options);
  }

  uint64_t train(SessionPlan made, Bytes* pinned = nullptr) {
    Session session(std::move(made), network(), 3);
    auto* x = static_cast<float*>(session.input(0, 0));
    auto* y = static_cast<int32_t*>(session.input(0, 1));
    for (int i = 0; i < 32 * 784; ++i) x[i] = static_cast<float>(i % 17) / 17;
    for (int i = 0; i < 32; ++i) y[i] = i % 10;
    for (int64_t step = 1; step <= 3; ++step)
      session.run(0, {.step = step, .learning_rate = 0.01, .rows = 32});
    EXPECT_EQ(session.used_bytes(), session.plan().arena);
    if (pinned) *pinned = session.variables().pinned_bytes();
    return session.variables().hash(false);
  }

  FakeDevice device_;
};

TEST_F(Offload, MakesSmallerBudgetsFitWithTheSameBits) {
  const SessionPlan all = plan({.all = true});
  const Bytes least = all.frontier.back().process();
  EXPECT_EQ(all.host_bytes, 0);
  const Bytes budget = least - 2 * kMiB;
  EXPECT_GT(plan({.budget = budget}).process(), budget) << "nothing may lie on the host";
  SessionPlan some = plan({.budget = budget, .host = kGiB});
  EXPECT_LE(some.process(), budget);
  EXPECT_GE(some.host_bytes, 2 * kMiB);
  EXPECT_LT(some.host_bytes, 5 * kMiB) << "no more than is asked for";
  EXPECT_LE(some.floor, some.process());
  const Bytes host = some.host_bytes;
  Bytes pinned = 0;
  const uint64_t with = train(std::move(some), &pinned);
  EXPECT_EQ(pinned, host);
  EXPECT_EQ(with, train(plan({})));
}

TEST_F(Offload, StaysWithinTheHostsBudget) {
  const SessionPlan all = plan({.host = kMiB, .all = true});
  for (const SessionPoint& point : all.frontier) EXPECT_LE(point.host_bytes, kMiB);
  EXPECT_EQ(all.unlimited.host_bytes, 0);
}

// ---- activations

class OffloadActivations : public ::testing::Test {
 protected:
  static constexpr int64_t kBatch = 256;
  Network network() const { return find_builtin("mnist-cnn").build(Shape{28, 28, 1}, 10); }

  SessionPlan plan(PlanOptions options) {
    options.memory = std::make_shared<PlanMemory>(device_);
    options.memory->device_held = 100 * kMiB;
    const Compiled compiled{optimizer_from_name("sgd"),
                            loss_from_name("sparse_categorical_crossentropy"),
                            {"accuracy"},
                            Dtype::float32};
    return plan_session(network(), compiled, device_, {{StepKind::train, kBatch}},
                        {{{Dtype::float32, Shape{28, 28, 1}}}, {{Dtype::int32, Shape{}}}, 1, true},
                        0, nullptr, options);
  }

  uint64_t train(SessionPlan made) {
    Session session(std::move(made), network(), 3);
    auto* x = static_cast<float*>(session.input(0, 0));
    auto* y = static_cast<int32_t*>(session.input(0, 1));
    for (int64_t i = 0; i < kBatch * 784; ++i) x[i] = static_cast<float>(i % 17) / 17;
    for (int64_t i = 0; i < kBatch; ++i) y[i] = static_cast<int32_t>(i % 10);
    for (int64_t step = 1; step <= 2; ++step)
      session.run(0, {.step = step, .learning_rate = 0.01, .rows = kBatch});
    EXPECT_EQ(session.used_bytes(), session.plan().arena);
    EXPECT_EQ(session.used_away_bytes(), session.plan().away);
    return session.variables().hash(false);
  }

  FakeDevice device_;
};

TEST_F(OffloadActivations, LeaveWhereNothingMayBeComputedAgain) {
  const Switches whole{.recompute = false, .split = 1};
  const SessionPlan without = plan({.switches = whole, .all = true});
  EXPECT_EQ(without.frontier.size(), 1u);
  const Bytes budget = without.process() - kMiB;
  EXPECT_GT(plan({.budget = budget, .switches = whole}).process(), budget);
  SessionPlan with = plan({.budget = budget, .host = kGiB, .switches = whole});
  EXPECT_LE(with.process(), budget);
  EXPECT_GT(with.away, kMiB);
  EXPECT_FALSE(with.prepared[0].plan.stays.empty());
  EXPECT_LE(with.floor, with.process());
  const int before = device_.sent;
  EXPECT_EQ(train(std::move(with)), train(plan({.switches = whole})));
  EXPECT_GT(device_.sent, before);
}

TEST_F(OffloadActivations, MakeNoPlanSlowerAndKeepWithinTheHostsBudget) {
  const Switches whole{.split = 1};
  const SessionPlan without = plan({.switches = whole, .all = true});
  for (Bytes host : {4 * kMiB, kGiB}) {
    const SessionPlan with = plan({.host = host, .switches = whole, .all = true});
    int leaving = 0;
    for (const SessionPoint& point : with.frontier) {
      EXPECT_LE(point.host_bytes + point.away, host);
      leaving += point.away > 0;
    }
    for (const SessionPoint& point : without.frontier) {
      double best = 1e300;
      for (const SessionPoint& other : with.frontier)
        if (other.process() <= point.process()) best = std::min(best, other.ms);
      EXPECT_LE(best, point.ms * (1 + 1e-9));
    }
    EXPECT_TRUE(host < kGiB || leaving > 0);
  }
}

TEST(CallTimer, TimesACallWhereThereIsRoom) {
  FakeDevice device;
  const Metas metas{{Dtype::float32, Shape{1000}}, {Dtype::float32, Shape{1000}}};
  const Metas out{metas[0]};
  const auto kernel = prepare(kAdd, {device, metas, out, {}});
  EXPECT_GT(CallTimer(device, device, kMiB).ms(kAdd, *kernel, metas, out).value_or(0), 0);
  EXPECT_GT(device.runs, 1);
  EXPECT_FALSE(CallTimer(device, device, 8000).ms(kAdd, *kernel, metas, out).has_value());
}

}  // namespace
}  // namespace pl::offload_test
