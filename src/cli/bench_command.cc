// `plimsoll bench`: kernels at the shapes of their benchmark samples, whole steps, for each step
// the bare list of its prepared kernels, so that what the engine adds can be seen, and their times
// by op; and planning.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <functional>
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/json.h"
#include "base/terminal.h"
#include "cli/commands.h"
#include "cli/run_setup.h"
#include "op/sample.h"
#include "train/samples.h"

namespace pl {
namespace {

using Clock = std::chrono::steady_clock;
constexpr double kSecondsPerBench = 0.5;
constexpr int kMinRuns = 7, kMaxRuns = 400;

struct Times {
  std::vector<double> ms;
  double at(double share) {
    std::sort(ms.begin(), ms.end());
    return ms[static_cast<size_t>(share * static_cast<double>(ms.size() - 1))];
  }
};

struct Result {
  std::string name;
  double median_ms, min_ms, p90_ms, gflops, gbps;
};

Cost& operator+=(Cost& sum, const Cost& one) {
  sum.flops += one.flops;
  sum.bytes += one.bytes;
  return sum;
}

Cost cost_of(const Graph& graph, const Node& node) {
  Metas in, out;
  for (ValueId id : node.in) in.push_back(graph.values[static_cast<size_t>(id)].meta);
  for (ValueId id : node.out) out.push_back(graph.values[static_cast<size_t>(id)].meta);
  return get_op(node.op).cost(in, out, node.attrs);
}

double timed(const std::function<void()>& body) {
  const auto start = Clock::now();
  body();
  return std::chrono::duration<double, std::milli>(Clock::now() - start).count();
}

// Times several bodies in turn, so that a disturbance hits all of them alike.
std::vector<Times> interleaved(const std::vector<std::function<void()>>& bodies,
                               int min_runs = kMinRuns) {
  std::vector<Times> times(bodies.size());
  for (int warm = 0; warm < (min_runs < kMinRuns ? 1 : 2); ++warm)
    for (const auto& body : bodies) body();
  const auto start = Clock::now();
  for (int run = 0; run < kMaxRuns; ++run) {
    for (size_t b = 0; b < bodies.size(); ++b) times[b].ms.push_back(timed(bodies[b]));
    if (run + 1 >= min_runs &&
        std::chrono::duration<double>(Clock::now() - start).count() > kSecondsPerBench)
      break;
  }
  return times;
}

Result summarize(std::string name, Times times, const Cost& cost) {
  const double median = times.at(0.5);
  return {std::move(name),          median, times.at(0), times.at(0.9), cost.flops / median / 1e6,
          cost.bytes / median / 1e6};
}

// A step or a plan that is timed. Images of `side` x `side` instead of the model's own, unless 0.
struct StepCase {
  const char* model;
  int64_t batch, side = 0;

  const BuiltinModel& builtin() const { return find_builtin(model); }
  Shape input() const { return side > 0 ? Shape{side, side, 3} : builtin().input; }
  std::string name() const {
    return std::string(model) + (side > 0 ? "/" + std::to_string(side) : "") + "/b" +
           std::to_string(batch);
  }
};
constexpr StepCase kSteps[] = {{"mlp", 32},          {"mlp", 128},          {"mlp", 2048},
                               {"mnist-cnn", 32},    {"mnist-cnn", 256},    {"mnist-cnn", 2048},
                               {"small-cnn", 32},    {"small-cnn", 256},    {"small-cnn", 2048},
                               {"resnet18", 32, 64}, {"resnet18", 128, 64}, {"gpt-tiny", 8}};

// The plans that are timed, each with its whole frontier, kernels prepared and all.
constexpr StepCase kPlans[] = {{"mnist-cnn", 256}, {"resnet50", 32},  {"densenet121", 32},
                               {"unet", 8},        {"vit-b16", 32},   {"gpt-tiny", 32},
                               {"gpt2", 64},       {"gpt2-large", 8}, {"gpt2-xl", 8}};
constexpr int kPlanRuns = 3, kPartRuns = 9;

class Bench {
 public:
  explicit Bench(const BenchOptions& options) : options_(options), backend_(options.threads) {}

  std::vector<Result> run() {
    BackendScope scope(backend_);
    for (const Op* op : catalogue())
      for (const Sample& sample : op->samples())
        if (sample.benchmark) bench_sample(*op, sample);
    for (const StepCase& step : kSteps) bench_step(step);
    for (const StepCase& plan : kPlans) bench_plan(plan);
    return std::move(results_);
  }

 private:
  bool wanted(const std::string& name) const {
    return name.find(options_.filter) != std::string::npos;
  }

  void add(Result result) {
    if (!options_.json)
      std::fprintf(human_stream(),
                   "%-56s %10.3f ms  min %10.3f  p90 %10.3f %9.1f GFLOP/s %7.1f GB/s\n",
                   result.name.c_str(), result.median_ms, result.min_ms, result.p90_ms,
                   result.gflops, result.gbps);
    results_.push_back(std::move(result));
  }

  void bench_sample(const Op& op, const Sample& sample) {
    for (const Variant& variant : op.variants) {
      const std::string name =
          "op/" + std::string(op.name) + "/" + sample.name + "/" + variant.name;
      if (!wanted(name) ||
          (std::string_view(variant.name) == "reference" && op.variants.size() > 1))
        continue;
      const Tensors in = sample_inputs(op, sample);
      const Metas metas = sample_metas(sample, Dtype::float32);
      const Metas outs = op.infer(metas, sample.attrs);
      auto kernel = prepare(op, {backend_, metas, outs, sample.attrs}, variant.name);
      if (!kernel) continue;
      Tensors out;
      std::vector<void*> in_pointers, out_pointers;
      for (const Tensor& tensor : in) in_pointers.push_back(tensor.data());
      for (const Meta& meta : outs) out_pointers.push_back(out.emplace_back(meta).data());
      Buffer workspace(kernel->workspace_bytes);
      auto times = interleaved(
          {[&] { kernel->run(in_pointers.data(), out_pointers.data(), workspace.data()); }});
      add(summarize(name, std::move(times[0]), op.cost(metas, outs, sample.attrs)));
    }
  }

  static Compiled compiled_for(const BuiltinModel& model) {
    Compiled compiled{
        Adam(), loss_from_name("sparse_categorical_crossentropy"), {"accuracy"}, Dtype::float32};
    compiled.loss.from_logits = model.logits;
    return compiled;
  }

  void bench_plan(const StepCase& plan) {
    const std::string name = "plan/" + plan.name();
    if (!wanted(name)) return;
    const BuiltinModel& model = plan.builtin();
    const Network network = model.build(plan.input(), model.classes);
    const Compiled compiled = compiled_for(model);
    const SampleSpec sample = wanted_sample(network, compiled);
    auto times = interleaved(
        {[&] {
          PlanOptions options{.all = true, .memory = std::make_shared<PlanMemory>(backend_)};
          plan_session(network, compiled, backend_, {{StepKind::train, plan.batch}}, sample, 0,
                       nullptr, options);
        }},
        kPlanRuns);
    add(summarize(name, std::move(times[0]), {}));
  }

  void bench_step(const StepCase& step) {
    const BuiltinModel& model = step.builtin();
    const int64_t batch = step.batch;
    const std::string tail = step.name();
    if (!wanted("step/" + tail) && !wanted("kernels/" + tail) && !wanted("parts/" + tail)) return;
    const Network network = model.build(step.input(), model.classes);
    const Compiled compiled = compiled_for(model);
    SampleSpec sample = wanted_sample(network, compiled);
    sample.resident = true;
    SessionPlan plan =
        plan_session(network, compiled, backend_, {{StepKind::train, batch}}, sample, 0);
    Cost cost;
    for (const Node& node : plan.prepared[0].graph.nodes)
      cost += cost_of(plan.prepared[0].graph, node);
    Session session(std::move(plan), network, 0);
    auto source = synthetic_source(synthetic_spec(network, compiled, batch, 0));
    std::vector<int64_t> indices(static_cast<size_t>(batch));
    for (int64_t i = 0; i < batch; ++i) indices[static_cast<size_t>(i)] = i;
    void* places[] = {session.input(0, 0), session.input(0, 1)};
    source->read(indices, places);
    StepParams params{.step = 1, .learning_rate = 1e-3, .rows = batch};
    session.run(0, params);
    if (wanted("parts/" + tail)) bench_parts("parts/" + tail, session);
    if (!wanted("step/" + tail) && !wanted("kernels/" + tail)) return;
    auto times =
        interleaved({[&] { session.run(0, params); },
                     [&] {
                       for (const auto& bound : session.executor(0).steps())
                         bound.kernel->run(bound.in.data(), bound.out.data(), bound.workspace);
                     }});
    if (wanted("step/" + tail)) add(summarize("step/" + tail, std::move(times[0]), cost));
    if (wanted("kernels/" + tail)) add(summarize("kernels/" + tail, std::move(times[1]), cost));
  }

  // The kernels of a step one by one, summed by op: where its time goes.
  void bench_parts(const std::string& name, Session& session) {
    const Prepared& prepared = session.plan().prepared[0];
    const auto& steps = session.executor(0).steps();
    std::map<std::string, std::pair<Times, Cost>> parts;
    for (const Step& step : prepared.plan.steps) {
      const Node& node = prepared.graph.nodes[static_cast<size_t>(step.node)];
      parts[node.op].second += cost_of(prepared.graph, node);
    }
    for (int run = 0; run < kPartRuns; ++run) {
      std::map<std::string, double> sums;
      for (size_t s = 0; s < steps.size(); ++s) {
        const auto& bound = steps[s];
        const size_t node = static_cast<size_t>(prepared.plan.steps[s].node);
        sums[prepared.graph.nodes[node].op] +=
            timed([&] { bound.kernel->run(bound.in.data(), bound.out.data(), bound.workspace); });
      }
      for (const auto& [op, ms] : sums) parts[op].first.ms.push_back(ms);
    }
    for (auto& [op, part] : parts)
      add(summarize(name + "/" + op, std::move(part.first), part.second));
  }

  const BenchOptions& options_;
  CpuBackend backend_;
  std::vector<Result> results_;
};

}  // namespace

int run_bench(const BenchOptions& options) {
  const std::vector<Result> results = Bench(options).run();
  if (results.empty())
    throw UserError("[bench] expected a filter that matches, received '" + options.filter + "'");
  if (!options.json) return 0;
  Json list = Json::array();
  for (const Result& r : results)
    list.push(Json::object()
                  .set("name", r.name)
                  .set("median_ms", r.median_ms)
                  .set("min_ms", r.min_ms)
                  .set("p90_ms", r.p90_ms)
                  .set("gflops", r.gflops)
                  .set("gbps", r.gbps));
  std::printf("%s\n", list.dump().c_str());
  return 0;
}

}  // namespace pl
