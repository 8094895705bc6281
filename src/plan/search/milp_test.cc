// Against optimal answers: graphs of up to 25 nodes with branches and skips, at several budgets
// each, solved by tests/golden/milp.py (recompute only, fixed order, live bytes, the same liveness
// rule).
#include <gtest/gtest.h>

#include <algorithm>

#include "base/file.h"
#include "base/json.h"
#include "plan/problem.h"
#include "tests/places.h"

namespace pl::test::milp_test {
namespace {

std::vector<int> integers(const Json& list) {
  std::vector<int> result;
  for (const Json& item : list.as_array("list"))
    result.push_back(static_cast<int>(item.as_integer("item")));
  return result;
}

// Node i writes value i.
Problem read_graph(const Json& graph) {
  Problem problem;
  const auto& bytes = graph.at("bytes", "graph").as_array("bytes");
  for (size_t n = 0; n < bytes.size(); ++n) {
    problem.values.push_back(
        {.bytes = bytes[n].as_integer("bytes"), .producer = static_cast<int>(n)});
    Problem::Node node{
        .ms = graph.at("ms", "graph").as_array("ms")[n].as_real("ms"),
        .workspace = graph.at("workspace", "graph").as_array("workspace")[n].as_integer("bytes"),
        .reads = integers(graph.at("reads", "graph").as_array("reads")[n]),
        .writes = {static_cast<int>(n)}};
    problem.nodes.push_back(std::move(node));
  }
  for (int n : integers(graph.at("once", "graph"))) problem.nodes[index(n)].rerun = false;
  for (int v : integers(graph.at("keep", "graph"))) problem.values[index(v)].keep = true;
  return problem;
}

// The least time of a plan whose live bytes stay within the budget; -1 without one. Peaks are
// compared, not arenas: the programme knows no addresses.
double time_within(const std::vector<Candidate>& pool, double budget) {
  double ms = -1;
  for (const Candidate& plan : pool)
    if (static_cast<double>(plan.peak) <= budget && (ms < 0 || plan.ms < ms)) ms = plan.ms;
  return ms;
}

TEST(Search, ComesNearTheOptimum) {
  const Json file =
      parse_json(read_text_file(::pl::test::golden("milp.json"), 1 << 24), "milp.json");
  std::vector<double> gaps;
  int cases = 0, missed = 0;
  for (const Json& graph : file.at("graphs", "file").as_array("graphs")) {
    const Problem problem = read_graph(graph);
    const auto pool = search(problem);
    for (const Json& item : graph.at("cases", "graph").as_array("cases")) {
      const double budget = item.as_array("case")[0].as_real("budget");
      const double best = item.as_array("case")[1].as_real("ms");
      const double ours = time_within(pool, budget);
      ++cases;
      EXPECT_GE(time_within(pool, 1.03 * budget), 0) << "does not fit 1.03 of " << budget;
      if (ours < 0) {
        ++missed;
        continue;
      }
      EXPECT_GT(ours, best * 0.998) << "below the optimum: the rules differ";
      gaps.push_back(ours / best - 1);
    }
  }
  std::sort(gaps.begin(), gaps.end());
  ASSERT_GT(gaps.size(), 80u);
  const double median = gaps[gaps.size() / 2], p90 = gaps[gaps.size() * 90 / 100],
               p95 = gaps[gaps.size() * 95 / 100], worst = gaps.back();
  std::printf(
      "%d cases, %d fit 1.03 of the budget only; gap median %.4f, p90 %.4f, p95 %.4f, "
      "worst %.4f\n",
      cases, missed, median, p90, p95, worst);
  EXPECT_LE(p95, 0.05);
  EXPECT_LE(worst, 0.10);
}

}  // namespace
}  // namespace pl::test::milp_test
