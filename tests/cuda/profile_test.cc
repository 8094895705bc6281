// Where the milliseconds of a training step go, by op and by call. Not a test of anything: run with
// --gtest_also_run_disabled_tests, and PLIMSOLL_PROFILE="gpt2 64 7.8GiB 4" for a model, a batch, a
// budget and parts (both may be left out, "-" is no budget).
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "cli/run_setup.h"
#include "tests/cuda/device_test.h"

namespace pl::profile_test {
namespace {

struct Total {
  double ms = 0;
  int calls = 0;
};
using Totals = std::map<std::string, Total>;

void print(const Totals& totals, size_t most) {
  std::vector<std::pair<std::string, Total>> list(totals.begin(), totals.end());
  std::sort(list.begin(), list.end(),
            [](const auto& a, const auto& b) { return a.second.ms > b.second.ms; });
  for (size_t i = 0; i < std::min(most, list.size()); ++i)
    std::printf("%9.3f ms %4d x  %s\n", list[i].second.ms, list[i].second.calls,
                list[i].first.c_str());
}

// The calls of the plan, those of loops in all of their trips, each timed alone.
void add(const Graph& graph, const Plan& plan, const GraphFacts& facts, int64_t trips,
         Totals& by_op, Totals& by_call) {
  for (const Step& step : plan.steps) {
    const Node& node = graph.nodes[index(step.node)];
    if (node.loop >= 0) {
      const Loop& loop = graph.loops[static_cast<size_t>(node.loop)];
      add(loop.body, plan.loops[static_cast<size_t>(node.loop)],
          facts.loops[static_cast<size_t>(node.loop)], loop.trips, by_op, by_call);
      continue;
    }
    const Facts& fact = facts.nodes[index(step.node)];
    std::string call = node.op;
    for (ValueId id : node.in) call += " " + graph.values[index(id)].meta.text();
    if (!node.out.empty()) call += " -> " + graph.values[index(node.out[0])].meta.text();
    call += " " + fact.key.substr(0, 120);
    for (Totals* totals : {&by_op, &by_call}) {
      Total& total = (*totals)[totals == &by_op ? node.op : call];
      total.ms += fact.ms * static_cast<double>(trips);
      total.calls += static_cast<int>(trips);
    }
  }
}

class DISABLED_CudaProfile : public CudaTest {};

TEST_F(DISABLED_CudaProfile, Step) {
  const char* wanted = std::getenv("PLIMSOLL_PROFILE");
  std::istringstream words(wanted ? wanted : "gpt2 64");
  RunOptions options;
  std::string memory;
  int64_t split = 0;
  words >> options.model >> options.batch >> memory >> split;
  if (!memory.empty() && memory != "-") options.memory = parse_bytes(memory, "memory");
  if (split > 0) options.split = split;
  options.device = "cuda";
  options.cuda = 0;
  options.dtype = kMixedBfloat16;
  options.steps = 14;
  RunSetup setup = set_up_run(options, Purpose::train);
  KernelBook book(*setup.backend, machine_costs(*setup.backend));
  Session session(std::move(setup.plan), setup.network, options.seed);
  TrainObserver nobody;
  const LoopResult result =
      run_training(session, setup.loop, *setup.sources.train, nullptr, nobody);
  const Prepared& prepared = session.plan().prepared[0];
  const KernelBook::Timing timing(book, Bytes{16} << 30);
  const GraphFacts facts = book.facts(prepared.graph);
  Totals by_op, by_call;
  add(prepared.graph, prepared.plan, facts, 1, by_op, by_call);
  double sum = 0;
  int calls = 0;
  for (const auto& [op, total] : by_op) {
    sum += total.ms;
    calls += total.calls;
  }
  std::printf("%s: step %.3f ms least, %.3f median; %d parts; %d calls, alone %.3f ms\n",
              wanted ? wanted : "gpt2 64", result.step_ms_min, result.step_ms_median,
              static_cast<int>(prepared.split), calls, sum);
  print(by_op, 40);
  print(by_call, 70);
  EXPECT_GT(sum, 0);
}

}  // namespace
}  // namespace pl::profile_test
