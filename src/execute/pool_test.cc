// Pools over random training steps: every entry can be built, is what it said it would be, passes
// the validator, and computes what the step computes without any reuse of bytes.
#include "execute/pool.h"

#include <gtest/gtest.h>

#include <cmath>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "plan/graph_problem.h"
#include "plan/passes.h"
#include "plan/split.h"
#include "tests/problems.h"
#include "tests/random_graph.h"
#include "tests/random_step.h"

namespace pl::test::pool_test {
namespace {

constexpr int kShare = PLIMSOLL_SANITIZED ? 6 : 1;  // of the seeds, where everything is slow

// Kernels and searches are the same for many graphs, so one of each serves a whole test.
struct Bench {
  CpuBackend backend{1};
  KernelBook book{backend};
  SearchMemo memo;

  VariableLayout layout(const Graph& graph) const {
    return layout_variables(graph.variables, backend.alignment());
  }
  Pool pool(const Graph& graph, const Switches& switches = {}) {
    return make_pool(graph, book, memo, layout(graph), switches);
  }
  Prepared built(const Graph& graph, const PoolEntry& entry) {
    return build(graph, entry, book, layout(graph));
  }
};

Graph random_step(uint64_t seed, double mixing = 0) {
  constexpr int64_t batches[] = {4, 6, 8};
  Graph graph = RandomStep(seed, Dtype::float64, batches[seed % 3],
                           3 + static_cast<int>(seed / 3 % 10), mixing)
                    .take();
  if (seed % 2) run_passes(graph);
  return graph;
}

// What an entry promises, against the plan that it becomes.
void expect_kept_promise(const Pool& pool, const PoolEntry& entry, const Prepared& prepared,
                         double unlimited) {
  const Plan& plan = prepared.plan;
  ASSERT_EQ(plan.arena, entry.arena);
  ASSERT_GE(plan.arena, plan.bound);
  ASSERT_LE(pool.of(entry).floor, plan.bound);
  ASSERT_EQ(pool.of(entry).floor, plan.floor);
  // A split never counts as faster than the whole, and a finer one never as fast as a coarser.
  ASSERT_GE(entry.ms, std::max(plan.ms, unlimited) * (1 - 1e-9));
  ASSERT_LE(entry.ms, std::max(plan.ms, unlimited) * (1 + 1e-4));
  ASSERT_EQ(plan.recomputed.values, entry.recomputed.values);
  ASSERT_EQ(plan.recomputed.bytes, entry.recomputed.bytes);
  ASSERT_NEAR(plan.recomputed.ms, entry.recomputed.ms, 1e-9 * entry.ms);
  Bytes categories = 0;
  for (Bytes bytes : plan.at_peak) categories += bytes;
  ASSERT_EQ(categories, plan.bound);
  validate(prepared.graph, plan, prepared.facts);
}

const PoolEntry* fastest_within(const Pool& pool, Bytes budget) {
  const PoolEntry* best = nullptr;
  for (const PoolEntry& entry : pool.entries)
    if (entry.arena <= budget && (!best || entry.ms < best->ms)) best = &entry;
  return best;
}

TEST(Pool, EveryEntryOfARandomStepIsWhatItSaid) {
  Bench bench;
  int plans = 0, split = 0, again = 0, both = 0, refused = 0, budgets = 0;
  for (uint64_t seed = 0; seed < 300 / kShare && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = random_step(seed, 0.02);
    const Pool pool = bench.pool(graph);
    ASSERT_FALSE(pool.entries.empty());
    ASSERT_EQ(pool.entries.front().split, 1);
    ASSERT_TRUE(pool.entries.front().drops.empty());
    refused += !pool.refusal.empty();
    const double unlimited = pool.entries.front().ms;
    for (const PoolEntry& entry : pool.entries) {
      expect_kept_promise(pool, entry, bench.built(graph, entry), unlimited);
      ++plans;
      split += entry.split > 1;
      again += !entry.drops.empty();
      both += entry.split > 1 && !entry.drops.empty();
    }
    // More memory is never slower, and what is chosen fits.
    Numbers numbers(seed);
    const Bytes most = pool.entries.front().arena;
    std::vector<Bytes> tried;
    for (int i = 0; i < 20; ++i) tried.push_back(numbers.below(static_cast<int>(most)) + 64);
    std::sort(tried.begin(), tried.end());
    double slowest = 1e300;
    for (Bytes budget : tried) {
      const PoolEntry* chosen = fastest_within(pool, budget);
      if (!chosen) continue;
      ++budgets;
      ASSERT_LE(chosen->arena, budget);
      ASSERT_LE(chosen->ms, slowest);
      ASSERT_GE(chosen->ms, unlimited);
      slowest = chosen->ms;
    }
  }
  std::printf(
      "%d plans: %d split, %d compute again, %d both; %d steps cannot be split; %d budgets\n",
      plans, split, again, both, refused, budgets);
  EXPECT_GT(plans, 2000 / kShare);
  EXPECT_GT(split, 1000 / kShare);
  EXPECT_GT(again, 200 / kShare);
  EXPECT_GT(both, 100 / kShare);
  EXPECT_GE(refused, kShare == 1 ? 10 : 0);
  EXPECT_LT(refused, 100);
}

// Decisions that no search would take, of any graph and of the bodies of split ones.
TEST(Pool, RandomDecisionsMakeValidPlans) {
  Bench bench;
  int plans = 0, again = 0;
  for (uint64_t seed = 0; seed < 400 / kShare && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    Numbers numbers(seed + 17);
    Graph graph = random_step(seed);
    const int64_t batch = samples_of(graph), trips = seed % 2 ? batch / 2 : batch;
    for (bool cut : {false, true}) {
      if (cut) graph = split_batch(graph, trips);
      const GraphFacts facts = bench.book.facts(graph);
      const Graph& inner = cut ? graph.loops[0].body : graph;
      const GraphProblem made =
          make_problem(inner, cut ? facts.loops[0].nodes : facts.nodes, bench.backend.alignment(),
                       cut ? &graph.loops[0] : nullptr);
      for (double share : {0.05, 0.2, 0.6}) {
        const Drops drops = random_drops(made.problem, numbers, share);
        const auto steps = lower(made.problem, drops);
        if (!steps) continue;
        ++plans;
        again += steps->size() > made.problem.nodes.size();
        const Decision decision =
            cut ? Decision{.drops = {}, .loops = {{.drops = drops}}} : Decision{.drops = drops};
        const Plan plan =
            make_plan(graph, facts, bench.layout(graph), bench.backend.alignment(), decision);
        validate(graph, plan, facts);
        ASSERT_EQ((cut ? plan.loops[0] : plan).steps.size(), steps->size());
        ASSERT_LE(plan.floor, plan.bound);
        ASSERT_LE(plan.bound, plan.arena);
      }
    }
  }
  std::printf("%d plans, %d compute again\n", plans, again);
  EXPECT_GT(plans, 1000 / kShare);
  EXPECT_GT(again, 500 / kShare);
}

// ---- what they compute

// Numbers without ties, so that the last bit of a sum decides nothing.
void fill_smooth(const Meta& meta, uint64_t seed, void* data) {
  Numbers numbers(seed);
  for (int64_t i = 0; i < meta.elements(); ++i) switch (meta.dtype) {
      case Dtype::float64:
        static_cast<double*>(data)[i] = 2 * numbers.real() - 1;
        break;
      case Dtype::int32:
        static_cast<int32_t*>(data)[i] = numbers.below(RandomStep::kClasses);
        break;
      default:
        throw InternalError("no such input");
    }
}

template <class Run>
void fill_step(Run& run, uint64_t seed, int64_t step) {
  const Graph& graph = run.graph();
  for (size_t i = 0; i < graph.inputs.size(); ++i) {
    const Meta& meta = graph.values[index(graph.inputs[i])].meta;
    if (meta == step_params_meta()) {
      const StepParams params{
          .step = step, .seed = seed, .learning_rate = 0.01, .rows = samples_of(graph)};
      std::memcpy(run.input(i), &params, sizeof params);
    } else {
      fill_smooth(meta, seed * 100 + static_cast<uint64_t>(step) * 10 + i, run.input(i));
    }
  }
}
template <class Run>
void fill_weights(Run& run, uint64_t seed) {
  for (size_t v = 0; v < run.graph().variables.size(); ++v) {
    const GraphVariable& variable = run.graph().variables[v];
    fill_smooth(variable.meta, seed * 100 + 50 + v, run.variable(v));
    if (variable.category == Category::optimizer)
      std::memset(run.variable(v), 0, static_cast<size_t>(variable.meta.bytes()));
  }
}

// The largest difference of two results, relative to the largest element.
double distance(const std::string& a, const std::string& b, Dtype dtype) {
  if (a.size() != b.size()) return 1e300;
  if (dtype != Dtype::float64) return a == b ? 0 : 1e300;
  double most = 0, difference = 0;
  for (size_t i = 0; i < a.size(); i += sizeof(double)) {
    double x, y;
    std::memcpy(&x, a.data() + i, sizeof x);
    std::memcpy(&y, b.data() + i, sizeof y);
    if (std::isnan(x) || std::isnan(y)) return 1e300;
    most = std::max(most, std::abs(x));
    difference = std::max(difference, std::abs(x - y));
  }
  return difference / std::max(most, 1e-3);
}

void expect_same(const Graph& graph, Interpreter& truth, PlannedRun& run, bool bits) {
  const auto a = results(truth), b = results(run);
  if (bits) {
    ASSERT_EQ(difference(graph, a, b), "");
    return;
  }
  ASSERT_EQ(a.size(), b.size());
  for (size_t i = 0; i < a.size(); ++i) {
    const size_t kept = graph.keep.size();
    const Dtype dtype = i < kept ? graph.values[index(graph.keep[i])].meta.dtype
                                 : graph.variables[i - kept].meta.dtype;
    ASSERT_LE(distance(a[i], b[i], dtype), 1e-9) << "result " << i << " of " << kept << " kept";
  }
}

// Two steps with dead bytes poisoned, against a run that never reuses a byte.
void expect_same_results(const Graph& graph, Prepared prepared, Bench& bench, uint64_t seed,
                         bool bits) {
  prepared.kernels = bench.book.kernels(prepared.graph);
  Interpreter truth(graph, bench.backend);
  PlannedRun run(std::move(prepared));
  fill_weights(truth, seed);
  fill_weights(run, seed);
  for (int64_t step = 1; step <= 2; ++step) {
    fill_step(truth, seed, step);
    fill_step(run, seed, step);
    truth.step();
    run.step_poisoned();
    expect_same(graph, truth, run, bits);
    if (testing::Test::HasFatalFailure()) return;
  }
  ASSERT_EQ(run.executor().used_bytes(), run.plan().arena);
}

TEST(Pool, EntriesComputeWhatTheStepComputes) {
  Bench bench;
  int runs = 0, split = 0, again = 0;
  for (uint64_t seed = 1000; seed < 1000 + 80 / kShare && !HasFatalFailure(); ++seed) {
    const Graph graph = random_step(seed);
    const Pool pool = bench.pool(graph);
    Numbers numbers(seed);
    for (int sample = 0; sample < 4; ++sample) {
      const PoolEntry& entry =
          pool.entries[index(numbers.below(static_cast<int>(pool.entries.size())))];
      SCOPED_TRACE("seed " + std::to_string(seed) + " in " + std::to_string(entry.split) +
                   " parts");
      expect_same_results(graph, bench.built(graph, entry), bench, seed, entry.split == 1);
      ++runs;
      split += entry.split > 1;
      again += !entry.drops.empty();
    }
  }
  std::printf("%d runs: %d split, %d compute again\n", runs, split, again);
  EXPECT_GT(split, 100 / kShare);
  EXPECT_GT(again, 30 / kShare);
}

TEST(Pool, RandomDecisionsComputeWhatTheStepComputes) {
  Bench bench;
  int again = 0;
  for (uint64_t seed = 2000; seed < 2000 + 120 / kShare && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = random_step(seed);
    const bool cut = seed % 3 == 0;
    Prepared prepared;
    prepared.graph = cut ? split_batch(graph, samples_of(graph) / (seed % 2 ? 2 : 1)) : graph;
    prepared.facts = bench.book.facts(prepared.graph);
    const Graph& inner = cut ? prepared.graph.loops[0].body : graph;
    const GraphProblem made =
        make_problem(inner, cut ? prepared.facts.loops[0].nodes : prepared.facts.nodes,
                     bench.backend.alignment(), cut ? &prepared.graph.loops[0] : nullptr);
    Numbers numbers(seed);
    const Drops drops = random_drops(made.problem, numbers, 0.25);
    if (!lower(made.problem, drops)) continue;
    again += !drops.empty();
    prepared.plan = make_plan(
        prepared.graph, prepared.facts, bench.layout(graph), bench.backend.alignment(),
        cut ? Decision{.drops = {}, .loops = {{.drops = drops}}} : Decision{.drops = drops});
    validate(prepared.graph, prepared.plan, prepared.facts);
    expect_same_results(graph, std::move(prepared), bench, seed, !cut);
  }
  EXPECT_GT(again, 60 / kShare);
}

// Graphs that are no training steps: anything goes, but for a split.
TEST(Pool, RandomGraphsComputeTheSameBitsWithSomeValuesTwice) {
  Bench bench;
  int again = 0;
  for (uint64_t seed = 3000; seed < 3000 + 150 / kShare && !HasFatalFailure(); ++seed) {
    SCOPED_TRACE("seed " + std::to_string(seed));
    const Graph graph = RandomGraph(seed, Dtype::float64, 6 + static_cast<int>(seed % 20)).take();
    const Pool pool = bench.pool(graph, {.recompute = true, .split = 1});
    const PoolEntry& least = pool.entries.back();
    again += !least.drops.empty();
    Prepared prepared = bench.built(graph, least);
    prepared.kernels = bench.book.kernels(prepared.graph);
    Interpreter truth(graph, bench.backend);
    PlannedRun run(std::move(prepared));
    fill_variables(truth, seed);
    fill_variables(run, seed);
    for (int64_t step = 1; step <= 2; ++step) {
      fill_inputs(truth, seed + static_cast<uint64_t>(step), step);
      fill_inputs(run, seed + static_cast<uint64_t>(step), step);
      truth.step();
      run.step_poisoned();
      ASSERT_EQ(difference(graph, results(truth), results(run)), "");
    }
  }
  std::printf("%d graphs with values computed again\n", again);
  EXPECT_GT(again, 20 / kShare);
}

}  // namespace
}  // namespace pl::test::pool_test
