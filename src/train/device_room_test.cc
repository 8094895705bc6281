// Models on a device with little room: what leaves for the host, and steps op by op.
#include <gtest/gtest.h>

#include <cstring>

#include "tests/eager_runs.h"
#include "tests/on_device.h"
#include "tests/patterns.h"

namespace pl::test::device_room_test {
namespace {

TEST_F(OnDevice, ActivationsLeaveForTheHostWhereTheBudgetAsksForIt) {
  const Tensor x = pattern({64, 32, 32, 3}, 1), y = spread_labels(64, 10);
  auto model_of = [&] {
    std::vector<LayerRef> layers;
    for (int i = 0; i < 6; ++i) layers.push_back(Conv2D(16, {3, 3}, {.activation = "tanh"}));
    layers.insert(layers.end(), {Flatten(), Dense(10, {.activation = "softmax"})});
    Sequential model(Shape{32, 32, 3}, layers);
    model.compile({.optimizer = SGD(), .loss = "sparse_categorical_crossentropy", .device = kName});
    return model;
  };
  FitOptions options{.batch_size = 64, .epochs = 2, .verbose = 0};
  options.recompute = false;
  options.split = 1;
  options.threads = 1;
  Sequential whole = model_of();
  const PlanReport unlimited = whole.plan(x, y, options);
  EXPECT_EQ(unlimited.away, 0);
  whole.fit(x, y, options);
  options.memory = unlimited.process - kMiB;
  options.offload = false;
  EXPECT_THROW(model_of().fit(x, y, options), DoesNotFit);
  options.offload = true;
  Sequential some = model_of();
  const PlanReport plan = some.plan(x, y, options);
  EXPECT_LE(plan.process, unlimited.process - kMiB);
  EXPECT_GT(plan.away, kMiB);
  some.fit(x, y, options);
  const Tensors a = whole.get_weights(), b = some.get_weights();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i]));
  options.host_memory = "1MiB";
  EXPECT_THROW(model_of().fit(x, y, options), DoesNotFit);
}

TEST_F(OnDevice, OptimiserStateLiesOnTheHostWhereTheBudgetAsksForIt) {
  const Tensor x = pattern({64, 256}, 1), y = spread_labels(64, 10);
  auto model_of = [&] {
    Sequential model(Shape{256},
                     {Dense(1024, {.activation = "relu"}), Dense(10, {.activation = "softmax"})});
    model.compile(
        {.optimizer = Adam(), .loss = "sparse_categorical_crossentropy", .device = kName});
    return model;
  };
  FitOptions options{.batch_size = 32, .epochs = 2, .verbose = 0};
  options.split = 1;
  options.threads = 1;
  Sequential all = model_of(), some = model_of();
  options.recompute = false;
  options.offload = false;
  all.fit(x, y, options);
  const FitOptions free = options;
  const Bytes least = some.plan(x, y, options).process;
  options.memory = least - kMiB;
  EXPECT_THROW(model_of().fit(x, y, options), DoesNotFit);
  options.offload = true;
  const PlanReport plan = some.plan(x, y, options);
  EXPECT_LE(plan.process, least - kMiB);
  EXPECT_GE(plan.host, kMiB);
  const Bytes before = held();
  some.fit(x, y, options);
  EXPECT_LE(held() - before, plan.arena - plan.host);
  auto same = [&] {
    const Tensors a = all.get_weights(), b = some.get_weights();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << i;
  };
  same();
  // The state stays there for other calls, and goes where the next training wants it.
  EXPECT_EQ(some.evaluate(x, y), all.evaluate(x, y));
  EXPECT_TRUE(same_bits(some.predict(x), all.predict(x)));
  EXPECT_EQ(some.plan(x, y, free).host, 0);
  some.fit(x, y, free);
  all.fit(x, y, free);
  same();
  some.fit(x, y, options);
  all.fit(x, y, free);
  same();
}

TEST_F(OnDevice, WeightsOutliveADeviceThatHasNoRoomForThem) {
  const Tensor x = pattern({32, 16}, 1), y = spread_labels(32, 4);
  Sequential model(Shape{16}, {Dense(8, {.activation = "relu"}), Dense(4)});
  const auto loss = losses::SparseCategoricalCrossentropy({.from_logits = true});
  model.compile({.optimizer = SGD(), .loss = loss, .device = kName});
  model.fit(x, y, {.epochs = 1, .verbose = 0});
  const Tensors before = model.get_weights();
  model.compile({.optimizer = Adam(), .loss = loss, .device = kName});
  // Neither the larger layout nor the old one again: somebody else was quicker.
  static_cast<test::FakeDevice&>(space_->backend()).refusals = 2;
  EXPECT_THROW(model.fit(x, y, {.epochs = 1, .verbose = 0}), DoesNotFit);
  const Tensors after = model.get_weights();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same_bits(before[i], after[i])) << i;
  EXPECT_TRUE(std::isfinite(model.evaluate(x, y)["loss"]));
  model.fit(x, y, {.epochs = 1, .verbose = 0});
}

TEST_F(OnDevice, KeptPlansMakeRoomForModelsThatCameSince) {
  const Tensor x = pattern({64, 64}, 1), y = spread_labels(64, 4);
  auto model_of = [&](int64_t units) {
    Sequential model(Shape{64}, {Dense(units, {.activation = "tanh"}), Dense(4)});
    model.compile({.optimizer = SGD(),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .device = kName});
    return model;
  };
  Sequential model = model_of(512), other = model_of(1 << 16);
  FitOptions options{.batch_size = 64, .epochs = 1, .verbose = 0};
  options.memory = model.plan(x, y, options).process + 8 * kMiB;
  model.fit(x, y, options);
  other.fit(x, y, {.batch_size = 64, .epochs = 1, .verbose = 0});
  EXPECT_GT(held(), *options.memory.bytes()) << "of the other one's weights";
  EXPECT_THROW(model.fit(x, y, options), DoesNotFit);
  options.memory = held() + 8 * kMiB;
  model.fit(x, y, options);
}

class Penalised : public Sequential {
 public:
  Penalised() : Sequential(Shape{4}, {Dense(8, {.activation = "tanh"}), Dense(1)}) {}
  TensorLogs train_step(const StepData& data) override {
    const std::vector<Variable> weights = trainable_variables();
    GradientTape tape;
    const Tensor loss = pl::add(compute_loss(data, (*this)(data.x(), true)),
                                scale(reduce_sum(square(weights[0])), 0.01));
    const Tensors g = tape.gradient(loss, weights);
    GradientsAndVariables list;
    for (size_t i = 0; i < g.size(); ++i) list.emplace_back(g[i], weights[i]);
    optimizer().apply_gradients(list);
    return {{"loss", loss}};
  }
};

TEST_F(OnDevice, StepsOfOnesOwn) {
  auto run = [&](const char* where) {
    Penalised model;
    model.compile({.optimizer = Adam(), .loss = "mse", .device = where});
    model.fit(pattern({16, 4}, 1), pattern({16, 1}, 2),
              {.batch_size = 8, .epochs = 2, .verbose = 0, .threads = 1});
    return model.get_weights();
  };
  const Tensors cpu = run(""), there = run(kName);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(same_bits(cpu[i], there[i]));
}

TEST_F(OnDevice, StepsOpByOp) {
  const Bytes before = held();
  for (const test::EagerCase& of : test::eager_cases()) {
    test::expect_eager_is_planned(of, kName);
    SCOPED_TRACE(of.name);
    CompileOptions compile = of.compile;
    const test::EagerRun here = test::run_steps(of.make(), compile, of.x, of.y, true);
    compile.device = kName;
    const test::EagerRun there = test::run_steps(of.make(), compile, of.x, of.y, true);
    EXPECT_EQ(here.history.history, there.history.history);
    test::expect_same_bits(here.weights, there.weights);
  }
  EXPECT_EQ(held(), before);
}

TEST_F(OnDevice, StepsOpByOpRunTheKernelsThatTheModelChose) {
  auto& fastest = static_cast<FakeDevice&>(space_->backend_for(false));
  auto& same_bits_again = static_cast<FakeDevice&>(space_->backend());
  for (const bool deterministic : {true, false}) {
    const int before[] = {fastest.ran, same_bits_again.ran};
    Sequential model(Shape{8}, {Dense(4)});
    model.compile({.optimizer = SGD(),
                   .loss = "mse",
                   .run_eagerly = true,
                   .device = kName,
                   .deterministic = deterministic});
    model.fit(pattern({8, 8}, 1), pattern({8, 4}, 2), {.verbose = 0});
    EXPECT_EQ(fastest.ran > before[0], !deterministic);
    EXPECT_EQ(same_bits_again.ran > before[1], deterministic);
  }
}

TEST_F(OnDevice, StepsOpByOpStayWithinTheBudget) {
  auto make = [] {
    Sequential model(Shape{256}, {Dense(1024, {.activation = "gelu"}),
                                  Dense(1024, {.activation = "gelu"}), Dense(3)});
    model.compile({.optimizer = SGD(), .loss = "mse", .run_eagerly = true, .device = kName});
    return model;
  };
  const Tensor x = pattern({2048, 256}, 1), y = pattern({2048, 3}, 2);
  FitOptions options{.batch_size = 2048, .verbose = 0, .threads = 1};
  const History free = make().fit(x, y, options);
  EXPECT_LE(free.used_arena, free.planned_arena);
  const Bytes fixed = free.planned_process - free.planned_arena;
  options.memory = fixed + free.used_arena + 8 * kMiB;
  const History tight = make().fit(x, y, options);
  EXPECT_LE(tight.planned_process, *options.memory.bytes());
  EXPECT_LE(tight.measured_process, tight.planned_process);
  EXPECT_EQ(tight.history, free.history);
  options.memory = fixed + free.used_arena - 8 * kMiB;
  EXPECT_THROW(make().fit(x, y, options), DoesNotFit);
}

}  // namespace
}  // namespace pl::test::device_room_test
