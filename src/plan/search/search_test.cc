// The search: properties of its pools on random problems, what it reaches on the skeletons of
// models, and how long it takes.
#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>

#include "tests/problem_replay.h"
#include "tests/problems.h"

namespace pl::test::search_test {
namespace {

double cpu_seconds() { return static_cast<double>(std::clock()) / CLOCKS_PER_SEC; }

// Every entry is what it says it is; bytes fall and time rises.
void expect_sound(const Problem& problem, const std::vector<Candidate>& pool) {
  ASSERT_FALSE(pool.empty());
  const Bytes bound = lower_bound(problem);
  for (size_t i = 0; i < pool.size(); ++i) {
    const Candidate& plan = pool[i];
    ASSERT_TRUE(std::is_sorted(plan.drops.begin(), plan.drops.end()));
    const auto steps = lower(problem, plan.drops);
    ASSERT_TRUE(steps);
    const Evaluation evaluation = evaluate(problem, *steps);
    ASSERT_EQ(plan.peak, evaluation.peak);
    ASSERT_DOUBLE_EQ(plan.ms, evaluation.ms);
    Layout layout = lay_out(problem, *steps);
    ASSERT_EQ(live_bytes(layout.blocks, static_cast<int>(steps->size())), evaluation.live);
    ASSERT_EQ(assign_addresses(layout.blocks, static_cast<int>(steps->size())), plan.bytes);
    ASSERT_GE(plan.bytes, plan.peak);
    ASSERT_GE(plan.peak, bound);
    ASSERT_EQ(Replay(problem, *steps, layout).run(), "");
    if (i == 0) continue;
    ASSERT_LT(plan.bytes, pool[i - 1].bytes);
    ASSERT_GE(plan.ms, pool[i - 1].ms);
  }
}

TEST(Search, OfRandomProblemsGivesSoundPools) {
  size_t plans = 0;
  for (uint64_t seed = 0; seed < 1000; ++seed) {
    Numbers numbers(seed);
    const Problem problem = random_problem(numbers, 16);
    const auto pool = search(problem);
    expect_sound(problem, pool);
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
    EXPECT_TRUE(pool[0].drops.empty());
    plans += pool.size();
  }
  EXPECT_GT(plans, 1500u);
}

TEST(Search, FindsTheSameOnManyThreads) {
  for (uint64_t seed = 0; seed < 60; ++seed) {
    Numbers numbers(seed);
    Problem problem = random_problem(numbers, 24);
    const auto one = search(problem), many = search(problem, {.threads = 4});
    problem.copies = {.bytes_per_ms = 1, .least = 1, .room = 1 << 20};
    const auto away = search_away(problem, one, true);
    const auto away_of_many = search_away(problem, many, true, 4);
    auto expect_equal = [](const std::vector<Candidate>& a, const std::vector<Candidate>& b) {
      ASSERT_EQ(a.size(), b.size());
      for (size_t i = 0; i < a.size(); ++i) {
        EXPECT_EQ(a[i].drops, b[i].drops);
        EXPECT_EQ(a[i].bytes, b[i].bytes);
        EXPECT_EQ(a[i].ms, b[i].ms);
        EXPECT_EQ(a[i].stays, b[i].stays);
      }
    };
    expect_equal(one, many);
    expect_equal(away, away_of_many);
  }
}

// Checkpointing by hand: no entry reads a copy that was released.
TEST(Search, ObeysReleases) {
  int problems = 0, repeated = 0;
  for (uint64_t seed = 0; seed < 100; ++seed) {
    Numbers numbers(seed);
    Problem problem = random_problem(numbers, 16);
    const int nodes = static_cast<int>(problem.nodes.size());
    for (Problem::Value& value : problem.values)
      if (value.producer >= 0 && !value.keep && problem.nodes[index(value.producer)].rerun &&
          numbers.chance(0.4))
        value.release = value.producer + numbers.below(nodes - value.producer);
    const auto steps = lower(problem, {});
    if (!steps) continue;  // something it would need is overwritten by then
    ++problems;
    repeated += steps->size() > problem.nodes.size();
    expect_sound(problem, search(problem));
    ASSERT_FALSE(HasFatalFailure()) << "seed " << seed;
  }
  EXPECT_GT(problems, 50);
  EXPECT_GT(repeated, 25);
}

TEST(Search, OfNothingIsOnePlan) {
  const auto pool = search({});
  ASSERT_EQ(pool.size(), 1u);
  EXPECT_EQ(pool[0].bytes, 0);
}

TEST(Search, GivesEqualPoolsForEqualProblems) {
  for (uint64_t seed = 0; seed < 5; ++seed) {
    Numbers numbers(seed);
    const Problem problem = random_problem(numbers, 40);
    const auto a = search(problem), b = search(problem);
    ASSERT_EQ(a.size(), b.size());
    for (size_t i = 0; i < a.size(); ++i) {
      EXPECT_EQ(a[i].drops, b[i].drops);
      EXPECT_EQ(a[i].bytes, b[i].bytes);
    }
  }
}

struct Reached {
  std::vector<Candidate> pool;
  double seconds;

  // The least time within this share of the bytes without drops.
  double overhead_at(double share) const {
    double ms = -1;
    for (const Candidate& plan : pool)
      if (static_cast<double>(plan.bytes) <= share * static_cast<double>(pool[0].bytes) &&
          (ms < 0 || plan.ms < ms))
        ms = plan.ms;
    return ms / pool[0].ms - 1;
  }
};

Reached reach(const char* name, const Problem& problem) {
  const double begin = cpu_seconds();
  Reached reached{search(problem), 0};
  reached.seconds = cpu_seconds() - begin;
  const auto& pool = reached.pool;
  const auto bound = static_cast<double>(lower_bound(problem));
  double worst = 1;
  for (const Candidate& plan : pool)
    worst = std::max(worst, static_cast<double>(plan.bytes) / static_cast<double>(plan.peak));
  std::printf(
      "%s: %zu nodes, %zu plans in %.3f s; %.1f to %.1f MiB, least %.2f of the bound; "
      "arena over peak at most %.4f; overhead at 1/2 %.3f, at 1/4 %.3f\n",
      name, problem.nodes.size(), pool.size(), reached.seconds,
      static_cast<double>(pool.front().bytes) / kUnit,
      static_cast<double>(pool.back().bytes) / kUnit,
      static_cast<double>(pool.back().bytes) / bound, worst, reached.overhead_at(0.5),
      reached.overhead_at(0.25));
  if (std::getenv("SHOW_POOL"))
    for (const Candidate& plan : pool)
      std::printf("   %8.2f MiB, %.4f of the peak, %.3f of the time, %zu drops\n",
                  static_cast<double>(plan.bytes) / kUnit,
                  static_cast<double>(plan.bytes) / static_cast<double>(plan.peak),
                  plan.ms / pool[0].ms, plan.drops.size());
  return reached;
}

TEST(Search, HalvesModelsForLittleTime) {
  const Reached gpt = reach("transformer, 12 blocks", transformer(12));
  expect_sound(transformer(12), gpt.pool);
  EXPECT_LE(gpt.overhead_at(0.5), 0.06);
  EXPECT_GT(gpt.overhead_at(0.25), 0);
  const Reached resnet = reach("residual network", residual_network(4, 3));
  expect_sound(residual_network(4, 3), resnet.pool);
  EXPECT_LE(resnet.overhead_at(0.5), 0.08);
  const Reached unet = reach("u-network", u_network(4));
  EXPECT_LE(unet.overhead_at(0.5), 0.2);
  reach("transformer, 4 blocks", transformer(4));
}

TEST(Search, OfLargeProblemsSlow) {
  const Reached large = reach("transformer, 82 blocks", transformer(82));
  EXPECT_LE(large.overhead_at(0.5), 0.06);
}

// Values of a chain of n layers, forward and back.
Problem chain_of(int n) {
  Problem problem;
  auto add = [&](std::vector<int> reads, int write) {
    problem.values[static_cast<size_t>(write)].producer = static_cast<int>(problem.nodes.size());
    problem.nodes.push_back({.ms = 1, .reads = std::move(reads), .writes = {write}});
  };
  problem.values.assign(static_cast<size_t>(2 * n + 2), {.bytes = 1000});
  for (int i = 0; i < n; ++i) add({i}, i + 1);
  int gradient = n + 1;
  add({n}, gradient);
  for (int i = n - 1; i >= 0; --i, ++gradient) add({i, gradient}, gradient + 1);
  problem.values.resize(static_cast<size_t>(gradient) + 1);
  problem.values.back().keep = true;
  return problem;
}

TEST(Search, GivesLongChainsSquareRootCheckpoints) {
  const std::vector<Candidate> pool = search(chain_of(400));
  EXPECT_GT(pool.front().bytes, 400'000);
  // Twice the root of 400 and some, for less than one forward pass (half of all) more.
  EXPECT_TRUE(std::any_of(pool.begin(), pool.end(), [&](const Candidate& entry) {
    return entry.bytes < 60'000 && entry.ms < 1.55 * pool.front().ms;
  }));
}

}  // namespace
}  // namespace pl::test::search_test
