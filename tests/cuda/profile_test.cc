// Where the milliseconds of a training step go, by op and by call. Not a test of anything: run with
// --gtest_also_run_disabled_tests, and PLIMSOLL_PROFILE="gpt2 64" for a model and a batch.
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <sstream>

#include "cli/run_setup.h"
#include "tests/cuda/device_test.h"

namespace pl {
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

class DISABLED_CudaProfile : public CudaTest {};

TEST_F(DISABLED_CudaProfile, Step) {
  ::setenv("PLIMSOLL_COSTS", "nominal", 1);
  const char* wanted = std::getenv("PLIMSOLL_PROFILE");
  std::istringstream words(wanted ? wanted : "gpt2 64");
  RunOptions options;
  words >> options.model >> options.batch;
  options.device = "cuda";
  options.cuda = 0;
  options.dtype = kMixedBfloat16;
  options.steps = 14;
  RunSetup setup = set_up_run(options, Purpose::train);
  setup.loop.time_kernels = true;
  Session session(std::move(setup.plan), setup.network, options.seed);
  TrainObserver nobody;
  const LoopResult result =
      run_training(session, setup.loop, *setup.sources.train, nullptr, nobody);
  const Prepared& prepared = session.plan().prepared[0];
  Totals by_op, by_call;
  double sum = 0;
  ASSERT_GE(result.kernel_ms.size(), prepared.plan.steps.size());
  for (size_t s = 0; s < prepared.plan.steps.size(); ++s) {
    const Node& node = prepared.graph.nodes[index(prepared.plan.steps[s].node)];
    std::string call = node.op;
    for (ValueId id : node.in) call += " " + prepared.graph.values[index(id)].meta.text();
    if (!node.out.empty()) call += " -> " + prepared.graph.values[index(node.out[0])].meta.text();
    const std::string& key = prepared.kernels.nodes[index(prepared.plan.steps[s].node)]
                                 ? prepared.kernels.nodes[index(prepared.plan.steps[s].node)]->key
                                 : "";
    call += " " + key.substr(0, 120);
    for (Totals* totals : {&by_op, &by_call}) {
      Total& total = (*totals)[totals == &by_op ? node.op : call];
      total.ms += result.kernel_ms[s];
      ++total.calls;
    }
    sum += result.kernel_ms[s];
  }
  std::printf("%s %lld: step %.3f ms least, %.3f median; kernels one by one %.3f\n",
              options.model.c_str(), static_cast<long long>(options.batch), result.step_ms_min,
              result.step_ms_median, sum);
  print(by_op, 40);
  print(by_call, 60);
  EXPECT_GT(sum, 0);
}

}  // namespace
}  // namespace pl
