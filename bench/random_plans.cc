// Do predicted times rank plans? Makes random plans of a model (values dropped at random, the batch
// split at random), times each, and compares the order with that of the cost table, which has
// learned from the unlimited plan alone:
//
//     random_plans gpt-tiny --batch 8 --threads 1 [-- PLANS [ROUNDS [SEED]]]
//
// Prints one line a plan and Kendall's tau over the pairs whose measured times differ by more than
// 5 %, for the learned table, for the rates of this machine alone, and for nominal rates.
#include <algorithm>
#include <cstdio>
#include <ctime>
#include <map>
#include <random>

#include "base/error.h"
#include "cli/run_setup.h"
#include "execute/calibrate.h"
#include "execute/cost_table.h"
#include "plan/graph_problem.h"
#include "plan/split.h"

namespace pl {
namespace {

constexpr double kSplitShare = 0.3;   // of the plans
constexpr double kMostDropped = 0.7;  // of the values that could be

struct Model {
  const char* name;
  CostTable costs;
};

// Predicted time of one step of a plan; not for loops.
double predict_step(const CostTable& table, const Graph& graph, const Step& step,
                    const GraphFacts& facts, int threads) {
  const Node& node = graph.nodes[index(step.node)];
  const Op& op = get_op(node.op);
  Metas in, out;
  for (ValueId id : node.in) in.push_back(graph.values[index(id)].meta);
  for (ValueId id : node.out) out.push_back(graph.values[index(id)].meta);
  return table.ms(call_key(graph, node, facts.nodes[index(step.node)].key, threads), op,
                  op.cost(in, out, node.attrs));
}

// Of a plan: its steps and those of its loops, as often as they run.
double predict(const CostTable& table, const Graph& graph, const Plan& plan,
               const GraphFacts& facts, int threads) {
  double ms = 0;
  for (const Step& step : plan.steps) {
    const int l = graph.nodes[index(step.node)].loop;
    if (l < 0) {
      ms += predict_step(table, graph, step, facts, threads);
    } else {
      const Loop& loop = graph.loops[index(l)];
      ms += static_cast<double>(loop.trips) *
            predict(table, loop.body, plan.loops[index(l)], facts.loops[index(l)], threads);
    }
  }
  return ms;
}

// Values that may be computed again, each with probability `share` at each later use.
Drops random_drops(const Problem& problem, double share, std::mt19937_64& random) {
  Drops drops;
  std::uniform_real_distribution<double> uniform(0, 1);
  for (size_t n = 0; n < problem.nodes.size(); ++n)
    for (int value : problem.nodes[n].reads) {
      const int producer = problem.values[index(value)].producer;
      if (producer < 0 || !problem.nodes[index(producer)].rerun) continue;
      if (static_cast<int>(n) - producer < 8) continue;  // nothing to win
      if (uniform(random) >= share) continue;
      drops.push_back({value, static_cast<int>(n)});
      std::sort(drops.begin(), drops.end());
      if (!lower(problem, drops)) std::erase(drops, Drop{value, static_cast<int>(n)});
    }
  return drops;
}

struct Trial {
  int64_t split = 1;
  size_t drops = 0;
  Bytes arena = 0;
  std::vector<double> predicted;  // by each model
  double measured = 1e30;
  std::unique_ptr<Session> session;
};

class Bench {
 public:
  Bench(RunSetup setup, uint64_t seed)
      : setup_(std::move(setup)), book_(*setup_.backend), random_(seed) {
    threads_ = setup_.backend->threads();
    CostTable learned(threads_), rates(threads_);
    rates.calibrate(calibrate(*setup_.backend, calibration_bytes()));
    learned = rates;
    models_ = {{"learned", learned}, {"rates", rates}, {"nominal", CostTable(threads_)}};
    whole_ = setup_.plan.prepared[0].graph;
  }

  void run(int plans, int rounds) {
    learn();
    for (int p = 0; p < plans; ++p) trials_.push_back(make_trial(p == 0));
    for (int r = 0; r < rounds + 2; ++r)
      for (Trial& trial : trials_) {
        const double ms = step(*trial.session, nullptr);
        if (r >= 2) trial.measured = std::min(trial.measured, ms);
      }
    report();
  }

 private:
  double step(Session& session, StepTimes* times) {
    StepParams params;
    params.step = 1;
    params.learning_rate = 1e-3;
    params.rows = setup_.loop.batch;
    const double start = now_ms();
    session.run(0, params, times);
    return now_ms() - start;
  }

  // A single thread's own time leaves out that of other processes; of a team it would count
  // waiting.
  double now_ms() const {
    timespec now{};
    ::clock_gettime(threads_ == 1 ? CLOCK_THREAD_CPUTIME_ID : CLOCK_MONOTONIC, &now);
    return static_cast<double>(now.tv_sec) * 1e3 + static_cast<double>(now.tv_nsec) / 1e6;
  }

  std::unique_ptr<Session> start(Prepared prepared) {
    SessionPlan plan;
    plan.signatures = {setup_.plan.signatures[0]};
    plan.layout = setup_.plan.layout;
    plan.arena = prepared.plan.arena;
    plan.prepared.push_back(std::move(prepared));
    auto session = std::make_unique<Session>(std::move(plan), setup_.network, 0);
    std::vector<int64_t> rows(static_cast<size_t>(setup_.loop.batch));
    for (size_t i = 0; i < rows.size(); ++i) rows[i] = static_cast<int64_t>(i);
    void* places[] = {session->input(0, 0), session->input(0, 1)};
    setup_.sources.train->read(rows, places);
    return session;
  }

  Prepared prepare(Graph graph, const Decision& decision) {
    Prepared prepared;
    prepared.facts = book_.facts(graph);
    prepared.plan =
        make_plan(graph, prepared.facts, setup_.plan.layout, setup_.backend->alignment(), decision);
    validate(graph, prepared.plan, prepared.facts);
    prepared.kernels = book_.kernels(graph);
    prepared.graph = std::move(graph);
    return prepared;
  }

  // What `train` does: of five steps the second fastest time of each kernel.
  void learn() {
    auto session = start(prepare(whole_, {}));
    const size_t steps = session->executor(0).timed_steps();
    std::vector<StepTimes> runs(5, StepTimes(steps));
    for (int warm = 0; warm < 2; ++warm) step(*session, nullptr);
    for (StepTimes& times : runs) step(*session, &times);
    std::vector<double> ms(steps);
    for (size_t s = 0; s < steps; ++s) {
      std::vector<int64_t> list;
      for (const StepTimes& times : runs) list.push_back(times[s]);
      std::nth_element(list.begin(), list.begin() + 1, list.end());
      ms[s] = static_cast<double>(list[1]) / 1e6;
    }
    const Prepared& prepared = session->plan().prepared[0];
    learn_steps(models_[0].costs, prepared.graph, prepared.plan, prepared.facts, ms, threads_);
    report_ops(prepared, ms);
  }

  // Where the time of the unlimited plan goes, and where each model thinks it does.
  void report_ops(const Prepared& prepared, const std::vector<double>& ms) const {
    std::map<std::string, std::vector<double>> sums;  // calls, measured, each model's
    for (size_t s = 0; s < prepared.plan.steps.size(); ++s) {
      const Step& step = prepared.plan.steps[s];
      auto& sum = sums[prepared.graph.nodes[index(step.node)].op];
      sum.resize(2 + models_.size());
      ++sum[0];
      sum[1] += ms[s];
      for (size_t m = 0; m < models_.size(); ++m)
        sum[2 + m] +=
            predict_step(models_[m].costs, prepared.graph, step, prepared.facts, threads_);
    }
    for (const auto& [op, sum] : sums) {
      std::printf("%-40s x%-4.0f %9.4f ms ", op.c_str(), sum[0], sum[1]);
      for (size_t m = 0; m < models_.size(); ++m)
        std::printf(" %s %9.4f", models_[m].name, sum[2 + m]);
      std::printf("\n");
    }
  }

  // A random split now and then, and random drops.
  Trial make_trial(bool unlimited) {
    std::uniform_real_distribution<double> uniform(0, 1);
    Trial trial;
    Graph graph = whole_;
    if (!unlimited && uniform(random_) < kSplitShare) {
      const std::vector<int64_t> choices = split_choices(setup_.loop.batch);
      const auto most = static_cast<double>(std::min<size_t>(choices.size(), 4));
      trial.split = choices[static_cast<size_t>(uniform(random_) * most)];
      try {
        if (trial.split > 1) graph = split_batch(whole_, trial.split);
      } catch (const UserError&) {
        trial.split = 1;  // this model's batch cannot be split
      }
    }
    Decision decision;
    decision.loops.resize(graph.loops.size());
    if (!unlimited) {
      const GraphFacts facts = book_.facts(graph);
      const Loop* loop = graph.loops.empty() ? nullptr : &graph.loops[0];
      const GraphProblem problem =
          make_problem(loop ? loop->body : graph, loop ? facts.loops[0].nodes : facts.nodes,
                       setup_.backend->alignment(), loop);
      Drops& drops = loop ? decision.loops[0].drops : decision.drops;
      drops = random_drops(problem.problem, kMostDropped * uniform(random_), random_);
      trial.drops = drops.size();
    }
    Prepared prepared = prepare(std::move(graph), decision);
    trial.arena = prepared.plan.arena;
    for (const Model& model : models_)
      trial.predicted.push_back(
          predict(model.costs, prepared.graph, prepared.plan, prepared.facts, threads_));
    trial.session = start(std::move(prepared));
    return trial;
  }

  void report() const {
    for (const Trial& trial : trials_) {
      std::printf("split %3lld  drops %4zu  arena %11lld  measured %9.3f ms ",
                  static_cast<long long>(trial.split), trial.drops,
                  static_cast<long long>(trial.arena), trial.measured);
      for (size_t m = 0; m < models_.size(); ++m)
        std::printf(" %s %9.3f (%+.1f %%)", models_[m].name, trial.predicted[m],
                    100 * (trial.predicted[m] / trial.measured - 1));
      std::printf("\n");
    }
    for (size_t m = 0; m < models_.size(); ++m) {
      int same = 0, other = 0;
      for (size_t a = 0; a < trials_.size(); ++a)
        for (size_t b = 0; b < a; ++b) {
          const Trial& fast = trials_[a].measured < trials_[b].measured ? trials_[a] : trials_[b];
          const Trial& slow = trials_[a].measured < trials_[b].measured ? trials_[b] : trials_[a];
          if (slow.measured <= 1.05 * fast.measured) continue;
          ++(fast.predicted[m] < slow.predicted[m] ? same : other);
        }
      std::printf("%-8s Kendall's tau %.3f over %d pairs\n", models_[m].name,
                  same + other ? static_cast<double>(same - other) / (same + other) : 1.0,
                  same + other);
    }
  }

  RunSetup setup_;
  KernelBook book_;
  Graph whole_;
  std::mt19937_64 random_;
  int threads_ = 1;
  std::vector<Model> models_;
  std::vector<Trial> trials_;
};

int run(std::vector<std::string> words) {
  int plans = 20, rounds = 5;
  uint64_t seed = 1;
  if (const auto at = std::find(words.begin(), words.end(), "--"); at != words.end()) {
    const std::vector<std::string> own(at + 1, words.end());
    if (own.size() > 0) plans = std::stoi(own[0]);
    if (own.size() > 1) rounds = std::stoi(own[1]);
    if (own.size() > 2) seed = std::stoull(own[2]);
    words.erase(at, words.end());
  }
  words.insert(words.begin(), "train");
  Bench(set_up_run(parse_command_line(words).run, Purpose::train), seed).run(plans, rounds);
  return 0;
}

}  // namespace
}  // namespace pl

int main(int argc, char** argv) {
  try {
    return pl::run(std::vector<std::string>(argv + 1, argv + argc));
  } catch (const std::exception& error) {
    std::fprintf(stderr, "random_plans: %s\n", error.what());
    return 2;
  }
}
