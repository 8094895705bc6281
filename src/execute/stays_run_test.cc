// Steps whose values are in host memory between two uses compute the same bits, on a device that
// copies as late as it may.
#include <gtest/gtest.h>

#include <cstring>

#include "execute/executor.h"
#include "execute/pool.h"
#include "plan/device_plan.h"
#include "plan/graph_problem.h"
#include "plan/split.h"
#include "tests/fake_device.h"
#include "tests/problems.h"
#include "tests/random_step.h"

namespace pl::test::stays_run_test {
namespace {

constexpr Problem::Copies kCopies{
    .bytes_per_ms = 1e5, .begin_ms = 0, .least = 1, .room = Bytes{1} << 40};

// All variables and kept values behind two steps. `one_by_one`: no updates run together.
std::vector<std::string> run_steps(FakeDevice& device, const Prepared& prepared, uint64_t seed,
                                   bool one_by_one = false) {
  const Plan& plan = prepared.plan;
  const auto arena = device.reserve(plan.arena), away = device.reserve_staging(plan.away + 1);
  const FakeMemoryOpen open;
  std::memset(arena->data(), 0xFF, static_cast<size_t>(plan.arena));  // NaNs
  Executor executor(prepared.graph, plan, prepared.kernels,
                    {.persistent = arena->data(),
                     .transient = arena->data() + plan.persistent,
                     .variables = {},
                     .away = away->data()},
                    &device);
  const Graph& graph = prepared.graph;
  Numbers numbers(seed);
  auto fill = [&](void* at, const Meta& meta, bool zero) {
    std::vector<char> bytes(static_cast<size_t>(meta.bytes()), 0);
    if (!zero) fill_numbers(meta, numbers, bytes.data());
    std::memcpy(at, bytes.data(), bytes.size());
  };
  for (size_t v = 0; v < graph.variables.size(); ++v)
    fill(arena->data() + plan.variable_at[v], graph.variables[v].meta,
         graph.variables[v].category == Category::optimizer);
  std::vector<std::string> results;
  auto take = [&](const void* at, const Meta& meta) {
    results.emplace_back(static_cast<const char*>(at), static_cast<size_t>(meta.bytes()));
  };
  for (int64_t step = 1; step <= 2; ++step) {
    for (size_t i = 0; i < graph.inputs.size(); ++i) {
      const Meta& meta = graph.values[index(graph.inputs[i])].meta;
      if (meta == step_params_meta()) {
        const StepParams params{
            .step = step, .seed = seed, .learning_rate = 0.01, .rows = samples_of(graph)};
        std::memcpy(executor.input(i), &params, sizeof params);
      } else {
        fill(executor.input(i), meta, false);
      }
    }
    StepTimes times(executor.timed_steps());
    EXPECT_TRUE(executor.step_if_finite(one_by_one ? &times : nullptr));
    for (size_t k = 0; k < graph.keep.size(); ++k)
      take(executor.kept(k), graph.values[index(graph.keep[k])].meta);
  }
  for (size_t v = 0; v < graph.variables.size(); ++v)
    take(arena->data() + plan.variable_at[v], graph.variables[v].meta);
  EXPECT_EQ(executor.used_bytes(), plan.arena);
  EXPECT_EQ(executor.used_away_bytes(), plan.away);
  return results;
}

Drops random_away(const Problem& problem, Drops drops, Numbers& numbers) {
  const size_t again = drops.size();
  for (size_t n = 0; n < problem.nodes.size(); ++n)
    for (int value : problem.nodes[n].reads) {
      const Drop away{value, static_cast<int>(n), false, true};
      const bool known =
          std::any_of(drops.begin(), drops.begin() + static_cast<long>(again),
                      [&](const Drop& drop) { return drop.value == value && drop.at == away.at; });
      if (!known && numbers.chance(0.5)) drops.push_back(away);
    }
  std::sort(drops.begin(), drops.end());
  return drops;
}

TEST(StaysRun, RandomStepsComputeTheSameBits) {
  FakeDevice device;
  KernelBook book(device);
  int stays = 0, in_bodies = 0;
  for (uint64_t seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    const Graph whole =
        RandomStep(seed, Dtype::float64, 4, 4 + static_cast<int>(seed % 8), 0).take();
    const bool cut = seed % 3 == 0;
    Prepared prepared;
    prepared.graph = cut ? split_batch(whole, 2) : whole;
    prepared.facts = book.facts(prepared.graph);
    prepared.kernels = book.kernels(prepared.graph);
    const VariableLayout layout = layout_variables(whole.variables, device.alignment());
    const Loop* loop = cut ? &prepared.graph.loops[0] : nullptr;
    Problem problem = make_problem(loop ? loop->body : prepared.graph,
                                   loop ? prepared.facts.loops[0].nodes : prepared.facts.nodes,
                                   device.alignment(), loop)
                          .problem;
    problem.copies = kCopies;
    Numbers numbers(seed);
    Drops again = random_drops(problem, numbers, 0.1);
    if (!lower(problem, again)) again.clear();
    // Of a device: the same steps in the same arena, at other addresses.
    auto plan_with = [&](const Drops& drops, bool of_device) {
      Decision mine{.drops = drops, .loops = {}};
      mine.stays = schedule(problem, drops, *lower(problem, drops));
      stays += static_cast<int>(mine.stays.size());
      in_bodies += cut ? static_cast<int>(mine.stays.size()) : 0;
      const Decision decision = cut ? Decision{.drops = {}, .loops = {mine}} : mine;
      const Plan plain =
          make_plan(prepared.graph, prepared.facts, layout, device.alignment(), decision);
      prepared.plan =
          make_device_plan(prepared.graph, prepared.facts, layout, device.alignment(), decision);
      EXPECT_EQ(prepared.plan.arena, plain.arena);
      EXPECT_EQ(prepared.plan.bound, plain.bound);
      if (!of_device) prepared.plan = plain;
      validate(prepared.graph, prepared.plan, prepared.facts);
    };
    plan_with({}, false);
    const auto truth = run_steps(device, prepared, seed, true);
    for (const bool of_device : {false, true}) {
      plan_with({}, of_device);
      EXPECT_EQ(run_steps(device, prepared, seed), truth);
    }
    plan_with(random_away(problem, again, numbers), true);
    EXPECT_EQ(run_steps(device, prepared, seed), truth);
  }
  EXPECT_GT(device.together, 400);
  EXPECT_GT(device.sent, 400);
  EXPECT_GT(stays, 200);
  EXPECT_GT(in_bodies, 40);
}

// The device really copies as late as it may: a step that does not wait shows.
TEST(StaysRun, ATestsDeviceShowsBytesThatAreUsedTooEarly) {
  FakeDevice device;
  KernelBook book(device);
  int wrong = 0;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    Prepared prepared;
    prepared.graph = RandomStep(seed, Dtype::float64, 4, 8, 0).take();
    prepared.facts = book.facts(prepared.graph);
    prepared.kernels = book.kernels(prepared.graph);
    const VariableLayout layout = layout_variables(prepared.graph.variables, device.alignment());
    Problem problem =
        make_problem(prepared.graph, prepared.facts.nodes, device.alignment()).problem;
    problem.copies = kCopies;
    Numbers numbers(seed);
    Decision decision{.drops = random_away(problem, {}, numbers), .loops = {}};
    decision.stays = schedule(problem, decision.drops, *lower(problem, decision.drops));
    prepared.plan = make_plan(prepared.graph, prepared.facts, layout, device.alignment(), decision);
    const auto truth = run_steps(device, prepared, seed);
    for (HostStay& stay : prepared.plan.stays) stay.out_until = stay.in_from - 1;
    wrong += run_steps(device, prepared, seed) != truth;
  }
  EXPECT_GT(wrong, 10);
}

}  // namespace
}  // namespace pl::test::stays_run_test
