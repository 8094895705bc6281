// Lowering, exact bytes, blocks and the lower bound of bare problems.
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "plan/search/flat.h"
#include "tests/problem_replay.h"
#include "tests/problems.h"

namespace pl::test::problem_test {
namespace {

// a -> b -> c -> d, where d reads a too.
Problem skip_chain() {
  ProblemMaker maker;
  const int x = maker.source(64);
  const int a = maker.node("a", 1, {x}, {640});
  const int b = maker.node("b", 2, {a}, {64});
  const int c = maker.node("c", 4, {b}, {128}, 256);
  const int d = maker.node("d", 8, {c, a}, {64});
  maker.problem.values[index(d)].keep = true;
  return maker.problem;
}

TEST(Lower, WithoutDropsIsTheBaseOrder) {
  EXPECT_EQ(lower(skip_chain(), {}), (std::vector<int>{0, 1, 2, 3}));
}

TEST(Lower, RunsADroppedValueInTheBayBeforeItsUse) {
  const Problem problem = skip_chain();
  EXPECT_EQ(lower(problem, {{1, 3}}), (std::vector<int>{0, 1, 2, 0, 3}));
  EXPECT_EQ(lower(problem, {{1, 2}}), (std::vector<int>{0, 1, 2, 3})) << "not used there";
  EXPECT_EQ(lower(problem, {{1, 3}, {2, 3}, {3, 3}}), (std::vector<int>{0, 1, 2, 0, 1, 2, 3}));
}

TEST(Lower, RefusesEffectsReplacedValuesAndSources) {
  ProblemMaker maker;
  const int w = maker.source(0), x = maker.source(64);
  const int a = maker.node("a", 1, {x, w}, {64});
  const int e = maker.node("effect", 1, {x}, {64}, 0, false);
  maker.update(w, a, 1);
  maker.node("use", 1, {a, e, x}, {64});
  EXPECT_FALSE(lower(maker.problem, {{a, 3}})) << "w is replaced by then";
  EXPECT_TRUE(lower(maker.problem, {{a, 2}})) << "the update reads it last";
  EXPECT_FALSE(lower(maker.problem, {{e, 3}}));
  EXPECT_FALSE(lower(maker.problem, {{x, 3}}));
}

TEST(Evaluate, CountsReadsWritesWorkspaceAndWhatIsHeld) {
  const Problem problem = skip_chain();
  const auto held = evaluate(problem, std::vector<int>{0, 1, 2, 3});
  EXPECT_EQ(held.live, (std::vector<Bytes>{704, 704, 64 + 128 + 256 + 640, 640 + 128 + 64}));
  EXPECT_EQ(held.peak, 1088);
  EXPECT_EQ(held.ms, 15);
  const auto again = evaluate(problem, std::vector<int>{0, 1, 2, 0, 3});
  EXPECT_EQ(again.live,
            (std::vector<Bytes>{704, 64 + 704, 64 + 64 + 128 + 256, 64 + 128 + 640, 832}));
  EXPECT_EQ(again.ms, 16);
}

TEST(Evaluate, TakesADyingInputInPlaceInTheLoweredOrder) {
  ProblemMaker maker;
  const int x = maker.source(64);
  const int a = maker.node("a", 1, {x}, {64});
  maker.in_place({x});
  maker.node("b", 1, {a}, {64});
  maker.in_place({a});
  const int c = maker.node("c", 1, {a, 2}, {64});
  maker.problem.values[index(c)].keep = true;
  EXPECT_EQ(evaluate(maker.problem, std::vector<int>{0, 1, 2}).live,
            (std::vector<Bytes>{64, 128, 192}));
  // Computed again behind b, the first copy of a dies in b; x must then outlive the first a.
  EXPECT_EQ(evaluate(maker.problem, std::vector<int>{0, 1, 0, 2}).live,
            (std::vector<Bytes>{128, 128, 128, 192}));
}

TEST(LayOut, OfRandomProblemsAgreesWithEvaluateAndSurvivesAReplay) {
  int schedules = 0, repeated = 0;
  for (uint64_t seed = 0; seed < 3000; ++seed) {
    Numbers numbers(seed);
    const Problem problem = random_problem(numbers);
    const Drops drops = random_drops(problem, numbers, 0.15 * numbers.real());
    const auto steps = lower(problem, drops);
    if (!steps) continue;
    ++schedules;
    repeated += steps->size() > problem.nodes.size();
    Layout layout = lay_out(problem, *steps);
    const Evaluation evaluation = evaluate(problem, *steps);
    ASSERT_EQ(live_bytes(layout.blocks, static_cast<int>(steps->size())), evaluation.live)
        << "seed " << seed;
    ASSERT_EQ(evaluation.peak, *std::max_element(evaluation.live.begin(), evaluation.live.end()));
    ASSERT_LE(lower_bound(problem), evaluation.peak) << "seed " << seed;
    const Bytes height = assign_addresses(layout.blocks, static_cast<int>(steps->size()));
    ASSERT_GE(height, evaluation.peak);
    ASSERT_EQ(Replay(problem, *steps, layout).run(), "") << "seed " << seed;
  }
  EXPECT_GT(schedules, 1000);
  EXPECT_GT(repeated, 400);
}

TEST(Replay, NoticesPlantedFaults) {
  int changed = 0, noticed = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Numbers numbers(seed);
    const Problem problem = random_problem(numbers);
    const auto steps = lower(problem, {});
    Layout layout = lay_out(problem, *steps);
    for (StorageBlock& block : layout.blocks)
      if (block.end > block.start + 1 && numbers.chance(0.3)) --block.end, ++changed;
    assign_addresses(layout.blocks, static_cast<int>(steps->size()));
    noticed += !Replay(problem, *steps, layout).run().empty();
  }
  EXPECT_GT(changed, 300);
  EXPECT_GT(noticed, 100) << "blocks freed too early lose their bytes";
}

// The least peak over all orders and repetitions: breadth-first over sets of live values, for tiny
// problems without in-place pairs and effects.
Bytes least_peak(const Problem& problem) {
  const int values = static_cast<int>(problem.values.size());
  Bytes low = 0, high = evaluate(problem, *lower(problem, {})).peak;
  auto bytes_of = [&](uint32_t set) {
    Bytes bytes = 0;
    for (int v = 0; v < values; ++v)
      if (set >> v & 1) bytes += problem.values[index(v)].bytes;
    return bytes;
  };
  uint32_t start = 0, goal = 0, all_done = (1u << problem.nodes.size()) - 1;
  for (int v = 0; v < values; ++v) {
    if (problem.values[index(v)].producer < 0) start |= 1u << v;
    if (problem.values[index(v)].keep) goal |= 1u << v;
  }
  auto reachable = [&](Bytes limit) {
    std::set<std::pair<uint32_t, uint32_t>> seen{{start, 0}};
    std::vector<std::pair<uint32_t, uint32_t>> queue{{start, 0}};
    auto visit = [&](uint32_t live, uint32_t done) {
      if (seen.emplace(live, done).second) queue.emplace_back(live, done);
    };
    for (size_t i = 0; i < queue.size(); ++i) {
      const auto [live, done] = queue[i];
      if (done == all_done && (live & goal) == goal) return true;
      for (int v = 0; v < values; ++v)
        if (live >> v & 1) visit(live & ~(1u << v), done);
      for (size_t n = 0; n < problem.nodes.size(); ++n) {
        uint32_t reads = 0, writes = 0;
        for (int v : problem.nodes[n].reads) reads |= 1u << v;
        for (int v : problem.nodes[n].writes) writes |= 1u << v;
        if ((live & reads) == reads &&
            bytes_of(live | writes) + problem.nodes[n].workspace <= limit)
          visit(live | writes, done | 1u << n);
      }
    }
    return false;
  };
  while (low < high) {
    const Bytes middle = low + (high - low) / 2;
    if (reachable(middle))
      high = middle;
    else
      low = middle + 1;
  }
  return std::max(low, bytes_of(start));  // sources are there at step 0, read or not
}

TEST(LowerBound, IsBelowTheLeastPeakOfAllOrders) {
  int compared = 0;
  double sum = 0;
  for (uint64_t seed = 0; seed < 200; ++seed) {
    Numbers numbers(seed);
    Problem problem = random_problem(numbers, 7);
    if (problem.values.size() > 12) continue;
    for (auto& node : problem.nodes) node.rerun = true, node.in_place.clear();
    for (auto& value : problem.values) value.replaced_by = -1;
    const Bytes bound = lower_bound(problem);
    const Bytes least = least_peak(problem);
    ASSERT_LE(bound, least) << "seed " << seed;
    ++compared;
    sum += least > 0 ? static_cast<double>(bound) / static_cast<double>(least) : 1;
  }
  EXPECT_GT(compared, 100);
  std::printf("lower bound over least peak, mean of %d: %.4f\n", compared, sum / compared);
  EXPECT_GT(sum / compared, 0.95);
}

// It holds scratch only: what it was asked before changes no answer.
TEST(Scorer, GivesEqualAnswersToEqualCalls) {
  int lowered = 0;
  for (uint64_t seed = 0; seed < 50; ++seed) {
    Numbers numbers(seed);
    const Problem problem = random_problem(numbers, 12);
    const Flat flat(problem);
    Scorer used(flat);
    std::vector<int> steps, again;
    for (int i = 0; i < 20; ++i) {
      Drops drops = random_drops(problem, numbers, 0.15 * numbers.real());
      std::sort(drops.begin(), drops.end(), [](const Drop& a, const Drop& b) {
        return std::pair(a.at, a.value) < std::pair(b.at, b.value);
      });
      Scorer fresh(flat);
      const bool legal = used.lower(drops, steps);
      ASSERT_EQ(legal, fresh.lower(drops, again)) << "seed " << seed;
      if (!legal) continue;
      ++lowered;
      ASSERT_EQ(steps, again) << "seed " << seed;
      const Bytes target = numbers.below(4096);
      const Score a = used.score(steps, target), b = fresh.score(again, target);
      EXPECT_EQ(a.peak, b.peak);
      EXPECT_EQ(a.excess, b.excess);
      EXPECT_EQ(a.ms, b.ms);
    }
  }
  EXPECT_GT(lowered, 300);
}

}  // namespace
}  // namespace pl::test::problem_test
