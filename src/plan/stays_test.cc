// Values in another memory between two uses: schedules of copies, what they do to live bytes, and
// the validator's reading of plans with them.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/graph_problem.h"
#include "plan/plan.h"
#include "tests/messages.h"
#include "tests/problems.h"
#include "tests/random_graph.h"

namespace pl::test::stays_test {
namespace {

constexpr Bytes kAlignment = 64;

// Six nodes of 1 ms in a row; the first one's 640 bytes are read again by the last.
Problem far_chain() {
  ProblemMaker maker;
  int last = maker.node("a", 1, {maker.source(64)}, {640});
  const int a = last;
  for (int i = 0; i < 4; ++i) last = maker.node("b", 1, {last}, {64});
  last = maker.node("c", 1, {last, a}, {64});
  maker.problem.values[index(last)].keep = true;
  maker.problem.copies = {.bytes_per_ms = 640, .begin_ms = 0, .least = 100, .room = 10000};
  return maker.problem;
}

constexpr int kFar = 1;  // the value

TEST(Stays, ACopyHasTheTimeItNeedsAndNoMore) {
  const Problem problem = far_chain();
  const Drops drops{{kFar, 5, false, true}};
  const auto steps = lower(problem, drops);
  ASSERT_EQ(steps, (std::vector<int>{0, 1, 2, 3, 4, 5})) << "nothing is computed again";
  // Read by node 1, so it is copied out beside node 2 and back beside node 4: 1 ms each.
  const std::vector<Stay> stays = schedule(problem, drops, *steps);
  EXPECT_EQ(stays, (std::vector<Stay>{{kFar, 1, 2, 4, 5}}));
  EXPECT_EQ(time_of(problem, *steps, stays), 6);
  const std::vector<int> marked = with_marks(problem, *steps, stays);
  const int left = 6 + kFar, back = 6 + static_cast<int>(problem.values.size()) + kFar;
  EXPECT_EQ(marked, (std::vector<int>{0, 1, 2, left, 3, back, 4, 5}));
  EXPECT_EQ(evaluate(problem, marked).live,
            (std::vector<Bytes>{704, 704, 768, 704, 128, 704, 768, 768}));
  EXPECT_EQ(evaluate(problem, *steps).live[3], 768);
}

TEST(Stays, ASlowCopyLeavesLaterAndASlowerOneIsNotWorthIt) {
  Problem problem = far_chain();
  const Drops drops{{kFar, 5, false, true}};
  const std::vector<int> steps{0, 1, 2, 3, 4, 5};
  problem.copies.bytes_per_ms = 639;
  EXPECT_TRUE(schedule(problem, drops, steps).empty()) << "two nodes each way leave no step free";
  problem.copies.bytes_per_ms = 640;
  problem.copies.least = 641;
  EXPECT_TRUE(schedule(problem, drops, steps).empty()) << "too small";
  problem.copies = {};
  EXPECT_TRUE(schedule(problem, drops, steps).empty()) << "nowhere to go";
}

TEST(Stays, AKeptInputStaysInItsPlace) {
  for (bool keep : {false, true}) {
    ProblemMaker maker;
    const int x = maker.source(640, keep);
    int last = maker.node("a", 1, {x}, {64});
    for (int i = 0; i < 5; ++i) last = maker.node("b", 1, {last}, {64});
    maker.node("c", 1, {last, x}, {64});
    maker.problem.copies = {.bytes_per_ms = 640, .begin_ms = 0, .least = 100, .room = 10000};
    const Drops drops{{x, 6, false, true}};
    const auto steps = *lower(maker.problem, drops);
    EXPECT_EQ(schedule(maker.problem, drops, steps).empty(), keep);
  }
}

TEST(Stays, NothingIsOnItsWayBesideANodeThatJoins) {
  Problem problem = far_chain();
  const Drops drops{{kFar, 5, false, true}};
  const std::vector<int> steps{0, 1, 2, 3, 4, 5};
  problem.nodes[2].joins = true;
  const std::vector<Stay> stays = schedule(problem, drops, steps);
  ASSERT_EQ(stays, (std::vector<Stay>{{kFar, 1, 1, 4, 5}}));
  EXPECT_EQ(time_of(problem, steps, stays), 7) << "node 2 waits for the copy";
}

TEST(Stays, OneCopyAfterAnotherInEachDirection) {
  ProblemMaker maker;
  const int x = maker.source(64);
  const int a = maker.node("a", 1, {x}, {640}), b = maker.node("a", 1, {x}, {640});
  for (int i = 0; i < 8; ++i) maker.node("n", 1, {x}, {64});
  maker.node("end", 1, {b, x}, {64});
  maker.node("end", 1, {a, x}, {64});
  maker.problem.copies = {.bytes_per_ms = 320, .begin_ms = 0, .least = 100, .room = 10000};
  const Drops drops{{a, 11, false, true}, {b, 10, false, true}};
  const auto steps = *lower(maker.problem, drops);
  // a is copied from 1 to 3 ms and b from 3 to 5; b must be back at 10 and a at 11.
  EXPECT_EQ(schedule(maker.problem, drops, steps),
            (std::vector<Stay>{{b, 1, 4, 7, 10}, {a, 0, 2, 9, 11}}));
}

// A copy for random uses, sources included.
Drops with_away(const Problem& problem, const Drops& drops, Numbers& numbers, double share) {
  Drops all = drops;
  for (size_t n = 0; n < problem.nodes.size(); ++n)
    for (int value : problem.nodes[n].reads) {
      const Drop away{value, static_cast<int>(n), false, true};
      const bool known = std::any_of(drops.begin(), drops.end(), [&](const Drop& drop) {
        return drop.value == away.value && drop.at == away.at;
      });
      if (!known && numbers.chance(share)) all.push_back(away);
    }
  std::sort(all.begin(), all.end());
  return all;
}

Problem::Copies random_copies(const Problem& problem, Numbers& numbers) {
  double ms = 0;
  Bytes bytes = 0;
  for (const Problem::Node& node : problem.nodes) ms += node.ms;
  for (const Problem::Value& value : problem.values) bytes += value.bytes;
  return {.bytes_per_ms = static_cast<double>(bytes) / std::max(ms, 1e-3) * 8 * numbers.real() + 1,
          .begin_ms = numbers.chance(0.5) ? 0.0 : 1e-3 * ms,
          .least = 1,
          .room = Bytes{1} << 40};
}

TEST(Stays, OfRandomProblemsNeverMakeAStepWaitAndCountExactly) {
  int schedules = 0, stays_seen = 0, smaller = 0;
  for (uint64_t seed = 0; seed < 2000; ++seed) {
    SCOPED_TRACE(seed);
    Numbers numbers(seed);
    Problem problem = random_problem(numbers);
    problem.copies = random_copies(problem, numbers);
    const bool joins = numbers.chance(0.3);
    for (Problem::Node& node : problem.nodes) node.joins = joins && numbers.chance(0.2);
    const Drops again = random_drops(problem, numbers, 0.1 * numbers.real());
    if (!lower(problem, again)) continue;
    const Drops drops = with_away(problem, again, numbers, 0.4);
    const auto steps = lower(problem, drops);
    ASSERT_EQ(steps, lower(problem, again)) << "a value that comes back is not computed";
    const std::vector<Stay> stays = schedule(problem, drops, *steps);
    for (const Stay& stay : stays) {
      ASSERT_LE(stay.out_after, stay.out_until);
      ASSERT_LT(stay.out_until + 1, stay.in_from);
      ASSERT_LE(stay.in_from, stay.in_before);
    }
    const double plain = time_of(problem, *steps, {}), with = time_of(problem, *steps, stays);
    ASSERT_GE(with, plain - 1e-9 * plain);
    if (!joins) {
      ASSERT_NEAR(with, plain, 1e-9 * plain + 1e-12);
    }
    const std::vector<int> marked = with_marks(problem, *steps, stays);
    Layout layout = lay_out(problem, marked);
    const Evaluation evaluation = evaluate(problem, marked);
    const int count = static_cast<int>(marked.size());
    ASSERT_EQ(live_bytes(layout.blocks, count), evaluation.live);
    ASSERT_LE(lower_bound(problem), evaluation.peak);
    ++schedules;
    stays_seen += static_cast<int>(stays.size());
    smaller += evaluation.peak < evaluate(problem, *steps).peak;
    std::vector<ByteOffset> places;
    const Bytes height = assign_stays(problem, stays, count, places);
    for (size_t i = 0; i < stays.size(); ++i) ASSERT_LE(places[i], height);
  }
  std::printf("%d schedules, %d stays, %d smaller\n", schedules, stays_seen, smaller);
  EXPECT_GT(schedules, 1000);
  EXPECT_GT(stays_seen, 2000);
  EXPECT_GT(smaller, 200);
}

// ---- the search

// Twelve equal layers and their gradients, dear to compute again.
Problem deep_training() {
  ProblemMaker maker;
  Training training(maker);
  int x = maker.source(6400);
  for (int i = 0; i < 12; ++i) x = training.layer("dense", {x}, 6400, 640, 1);
  training.finish(x, maker.source(64));
  return maker.problem;
}

TEST(Stays, TheSearchSendsAwayWhatCopiesHide) {
  Problem problem = deep_training();
  const std::vector<Candidate> without = search(problem);
  problem.copies = {.bytes_per_ms = 3200, .begin_ms = 0, .least = 64, .room = 1 << 20};
  const std::vector<Candidate> away = search_away(problem, without, true);
  ASSERT_FALSE(away.empty());
  int faster = 0;
  for (size_t i = 0; i < away.size(); ++i) {
    const Candidate& candidate = away[i];
    const auto steps = *lower(problem, candidate.drops);
    EXPECT_EQ(schedule(problem, candidate.drops, steps), candidate.stays);
    EXPECT_EQ(height_of(problem, with_marks(problem, steps, candidate.stays)), candidate.bytes);
    EXPECT_NEAR(time_of(problem, steps, candidate.stays), candidate.ms, 1e-9);
    EXPECT_LE(candidate.away, problem.copies.room);
    double best = 1e300;  // of plans that do without, in as much memory
    for (const Candidate& other : without)
      if (other.bytes <= candidate.bytes) best = std::min(best, other.ms);
    faster += candidate.ms < 0.97 * best;
  }
  EXPECT_GE(faster, 3);
  EXPECT_LT(away.back().bytes, without.front().bytes / 2);
}

TEST(Stays, TheSearchKeepsWithinTheOtherMemory) {
  Problem problem = deep_training();
  problem.copies = {.bytes_per_ms = 6400, .begin_ms = 0, .least = 64, .room = 2 * 6400};
  const std::vector<Candidate> found = search_away(problem, {}, false);
  EXPECT_FALSE(found.empty());
  for (const Candidate& candidate : found) {
    EXPECT_LE(candidate.away, problem.copies.room);
    EXPECT_EQ(lower(problem, candidate.drops)->size(), problem.nodes.size()) << "recompute is off";
  }
}

// ---- the validator

struct Planned {
  Graph graph;
  GraphFacts facts;
  VariableLayout variables;
  Plan plan;
};

// A random graph of equal values, with as many of them away as the search for gaps finds.
Planned random_plan(uint64_t seed) {
  Planned p;
  p.graph = RandomGraph(seed, Dtype::float64, 10 + static_cast<int>(seed % 20)).take();
  p.facts.nodes.resize(p.graph.nodes.size());
  for (Facts& facts : p.facts.nodes) facts.nominal_ms = facts.ms = 1;
  p.variables = layout_variables(p.graph.variables, kAlignment);
  Problem problem = make_problem(p.graph, p.facts.nodes, kAlignment).problem;
  problem.copies = {.bytes_per_ms = 1e6, .begin_ms = 0, .least = 1, .room = Bytes{1} << 40};
  Numbers numbers(seed);
  Drops again = random_drops(problem, numbers, 0.1);
  if (!lower(problem, again)) again.clear();
  Decision decision{.drops = with_away(problem, again, numbers, 0.5), .loops = {}};
  decision.stays = schedule(problem, decision.drops, *lower(problem, decision.drops));
  p.plan = make_plan(p.graph, p.facts, p.variables, kAlignment, decision);
  return p;
}

std::string fault_of(const Planned& p) {
  return error_of<InternalError>([&] { validate(p.graph, p.plan, p.facts); });
}

TEST(ValidateStays, AcceptsWhatThePlannerMakes) {
  int stays = 0;
  for (uint64_t seed = 0; seed < 600; ++seed) {
    const Planned p = random_plan(seed);
    ASSERT_EQ(fault_of(p), "") << "seed " << seed << "\n" << print(p.graph, p.plan);
    ASSERT_LE(p.plan.floor, p.plan.bound);
    stays += static_cast<int>(p.plan.stays.size());
  }
  EXPECT_GT(stays, 1000);
}

// Each fault is planted in every stay; those that change what happens must be noticed, whatever
// they are called.
TEST(ValidateStays, NoticesPlantedFaults) {
  struct Fault {
    const char* name;
    void (*plant)(HostStay&);
    const char* says;
    double least;  // share noticed: some change nothing, since nobody uses the bytes meanwhile
  };
  const Fault faults[] = {
      {"comes from elsewhere", [](HostStay& s) { s.from += kAlignment; }, "", 0.99},
      {"comes back elsewhere", [](HostStay& s) { s.to += kAlignment; }, "", 0.95},
      {"never comes back", [](HostStay& s) { s.in_before = s.in_from = 1 << 20; }, "ends before",
       1},
      {"comes back at once", [](HostStay& s) { s.in_from = s.out_until; }, "ends before", 1},
      {"leaves before it is there", [](HostStay& s) { s.out_after = 0; }, "", 0.2},
      {"comes back too late", [](HostStay& s) { ++s.in_before; }, "", 0.9},
      {"outside host memory", [](HostStay& s) { s.host_at = -kAlignment; }, "outside of its part",
       1},
      {"of another value", [](HostStay& s) { s.value = 0; }, "", 0.9},
  };
  for (const Fault& fault : faults) {
    int planted = 0, noticed = 0;
    for (uint64_t seed = 0; seed < 150; ++seed) {
      Planned p = random_plan(seed);
      for (HostStay& stay : p.plan.stays) {
        const HostStay before = stay;
        fault.plant(stay);
        const std::string said = fault_of(p);
        stay = before;
        ++planted;
        noticed += !said.empty() && said.find(fault.says) != std::string::npos;
      }
    }
    EXPECT_GT(planted, 200) << fault.name;
    EXPECT_GE(noticed, fault.least * planted) << fault.name << ": " << noticed << " of " << planted;
  }
}

// Bytes that are given to others while they are still copied out, or already copied back.
TEST(ValidateStays, NoticesBytesUsedWhileTheyAreOnTheirWay) {
  int out = 0, in = 0, host = 0;
  for (uint64_t seed = 0; seed < 300; ++seed) {
    Planned p = random_plan(seed);
    for (size_t i = 0; i < p.plan.stays.size(); ++i) {
      HostStay& stay = p.plan.stays[i];
      const HostStay before = stay;
      stay.out_until = stay.in_from - 1;  // as if the copy took all the time there is
      out += fault_of(p).find("overwritten before they are copied") != std::string::npos;
      stay = before;
      stay.in_from = stay.out_until + 1;
      in += fault_of(p).find("written while a value comes back") != std::string::npos;
      stay = before;
      for (size_t j = 0; j < i; ++j) {
        stay.host_at = p.plan.stays[j].host_at;
        host += fault_of(p).find("same place of host memory") != std::string::npos;
        stay = before;
      }
    }
  }
  EXPECT_GT(out, 100);
  EXPECT_GT(in, 100);
  EXPECT_GT(host, 100);
}

}  // namespace
}  // namespace pl::test::stays_test
