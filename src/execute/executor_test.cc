// A poison run over whole training steps: no kernel changes a byte outside its grants, dead bytes
// are never read, and what was used is what was planned.
#include "execute/executor.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "model/builtin.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "plan/device_plan.h"
#include "tests/fake_device.h"
#include "tests/model_run.h"
#include "train/step_trace.h"

namespace pl::test::executor_test {
namespace {

struct Case {
  const char* name;
  const char* model;
  int64_t batch;
  const char* optimizer;
  StepKind kind;
  int64_t split = 1;
};

void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"MlpSgd", "mlp", 8, "sgd", StepKind::train},
    {"MlpAdam", "mlp", 8, "adam", StepKind::train},
    {"MnistCnnAdam", "mnist-cnn", 8, "adam", StepKind::train},
    {"MnistCnnOddBatch", "mnist-cnn", 3, "sgd", StepKind::train},
    {"MnistCnnEvaluate", "mnist-cnn", 8, "adam", StepKind::evaluate},
    {"MnistCnnPredict", "mnist-cnn", 8, "adam", StepKind::predict},
    {"MlpAdamSplit", "mlp", 6, "adam", StepKind::train, 3},
    {"MnistCnnOneByOne", "mnist-cnn", 3, "sgd", StepKind::train, 3},
    {"MnistCnnEvaluateSplit", "mnist-cnn", 6, "adam", StepKind::evaluate, 2},
    {"MnistCnnPredictOneByOne", "mnist-cnn", 3, "adam", StepKind::predict, 3},
};

Prepared prepared(const Case& c, Backend& backend) {
  const BuiltinModel& model = find_builtin(c.model);
  const Compiled compiled{optimizer_from_name(c.optimizer),
                          loss_from_name("sparse_categorical_crossentropy"),
                          {"accuracy"},
                          Dtype::float32};
  Graph graph =
      trace_step(model.build(model.input, model.classes), compiled, {c.kind, c.batch},
                 {{{Dtype::uint8, model.input}}, {{Dtype::int32, Shape{}}}, 1.0 / 255, false});
  run_passes(graph);
  return prepare_split(std::move(graph), backend, c.split);
}

// What differs first between the arena and how it was, but for what the call may write.
size_t changed_outside(PlannedRun& run, const PlannedRun::Call& call, std::string before) {
  auto allow = [&](const void* at, Bytes bytes) {
    const char* from = static_cast<const char*>(at);
    before.replace(static_cast<size_t>(from - run.data()), static_cast<size_t>(bytes), from,
                   static_cast<size_t>(bytes));
  };
  const Node& node = call.graph.nodes[index(call.node)];
  for (size_t o = 0; o < call.out.size(); ++o)
    allow(call.out[o], call.graph.values[index(node.out[o])].meta.bytes());
  if (call.workspace) allow(call.workspace, call.kernel.workspace_bytes);
  return static_cast<size_t>(std::mismatch(before.begin(), before.end(), run.data()).first -
                             before.begin());
}

class PoisonRun : public ::testing::TestWithParam<Case> {};

TEST_P(PoisonRun, WritesNothingOutsideItsGrants) {
  CpuBackend backend(2);
  PlannedRun run(prepared(GetParam(), backend));
  fill_model(run);
  const auto arena = static_cast<size_t>(run.plan().arena);
  for (int64_t number = 1; number <= 2; ++number) {
    fill_inputs(run, 6, number, 10);
    size_t calls = 0;
    run.each_call([&](const PlannedRun::Call& call) {
      ++calls;
      std::string before(run.data(), arena);
      call.run();
      EXPECT_EQ(changed_outside(run, call, std::move(before)), arena)
          << "step " << call.step << " (" << call.graph.nodes[index(call.node)].op
          << ") changed a byte outside its grants";
    });
    EXPECT_GE(calls, run.plan().steps.size());
  }
}

TEST_P(PoisonRun, GivesTheBitsOfAPlainRun) {
  CpuBackend backend(2);
  PlannedRun plain(prepared(GetParam(), backend)), poisoned(prepared(GetParam(), backend));
  fill_model(plain);
  fill_model(poisoned);
  for (int64_t number = 1; number <= 2; ++number) {
    fill_inputs(plain, 6, number, 10);
    fill_inputs(poisoned, 6, number, 10);
    plain.step();
    poisoned.step_poisoned();
    EXPECT_EQ(difference(plain.graph(), results(plain), results(poisoned)), "");
  }
}

TEST_P(PoisonRun, UsesExactlyWhatWasPlanned) {
  CpuBackend backend(2);
  const PlannedRun run(prepared(GetParam(), backend));
  EXPECT_EQ(run.executor().used_bytes(), run.plan().arena);
  EXPECT_GE(run.plan().arena, run.plan().bound);
}

INSTANTIATE_TEST_SUITE_P(Steps, PoisonRun, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

// `used` comes from the grants: a plan that promises more than it grants is told apart.
TEST(Executor, CountsGrantsAndNotThePlansTotal) {
  CpuBackend backend(1);
  Recorder r;
  const Tensor x = r.input("x", {Dtype::float32, Shape{20}}, true);
  r.keep(tanh(x), "out");
  Graph graph = r.take();
  Prepared prepared = prepare_graph(graph, backend, {});
  const Bytes needed = prepared.plan.arena;
  prepared.plan.arena += 640;
  const PlannedRun run(std::move(prepared));
  EXPECT_EQ(run.executor().used_bytes(), needed);
}

// Each step's time lies where that step is, and a timed run gives the bits of a plain one.
TEST(Executor, TimesEachStep) {
  CpuBackend backend(1);
  Recorder r;
  const Tensor small = r.input("small", {Dtype::float32, Shape{4}}, true);
  const Tensor large = r.input("large", {Dtype::float32, Shape{1 << 20}}, true);
  r.keep(tanh(small), "first");
  r.keep(tanh(large), "second");
  const Graph graph = r.take();
  PlannedRun plain(graph, backend), timed(graph, backend);
  fill_inputs(plain, 6, 1, 10);
  plain.step();
  StepTimes least(2, int64_t{1} << 62);
  for (int i = 0; i < 10; ++i) {  // the least of some: other work on the machine only adds
    StepTimes times(2, -1);
    fill_inputs(timed, 6, 1, 10);
    timed.step(&times);
    for (size_t s = 0; s < 2; ++s) least[s] = std::min(least[s], times[s]);
  }
  EXPECT_EQ(difference(plain.graph(), results(plain), results(timed)), "");
  EXPECT_GE(least[0], 0);
  EXPECT_GT(least[1], 10 * least[0]);  // 2^20 elements against 4
  StepTimes too_few(1);
  EXPECT_THROW(timed.step(&too_few), InternalError);
}

class Failing final : public Kernel {
 public:
  void run(void* const*, void* const*, void*) override { throw BackendError("no more"); }
};

TEST(Executor, NamesLayerPathAndOpOfAKernelThatFails) {
  CpuBackend backend(1);
  Recorder r;
  const Tensor x = r.input("x", {Dtype::float32, Shape{4}}, true);
  {
    PathScope path(&r, "block"), inner(&r, "activation");
    r.keep(tanh(x), "out");
  }
  Prepared prepared = prepare_graph(r.take(), backend, {});
  prepared.kernels.nodes[0] = std::make_shared<Failing>();
  PlannedRun run(std::move(prepared));
  EXPECT_EQ(error_of<BackendError>([&] { run.step(); }), "[block/activation] tanh: no more");
}

TEST(Executor, RefusesAStepWithoutAKernel) {
  CpuBackend backend(1);
  Recorder r;
  r.keep(tanh(r.input("x", {Dtype::float32, Shape{4}}, true)), "out");
  Prepared prepared = prepare_graph(r.take(), backend, {});
  prepared.kernels.nodes[0].reset();
  EXPECT_THROW(PlannedRun(std::move(prepared)), InternalError);
}

// A device whose kernels take several calls at once; what runs is counted.
class Elsewhere final : public Backend {
 public:
  Elsewhere() : Backend({DeviceKind::cuda, 0}, 1, 64) {}
  bool on_host() const override { return false; }
};
class Counting final : public SeveralKernel {
 public:
  explicit Counting(std::vector<size_t>& launches) : launches_(launches) {}
  void run(void* const*, void* const*, void*) override { launches_.push_back(1); }
  bool joins(const Kernel& other) const override {
    return dynamic_cast<const Counting*>(&other) != nullptr;
  }
  void run_several(std::span<const KernelCall> calls) override {
    launches_.push_back(calls.size());
  }

 private:
  std::vector<size_t>& launches_;
};

// Three updates of their own, then one that reads what the third wrote, and one beside it.
TEST(Executor, NeighboursThatDoNotMeetRunAsOneLaunch) {
  CpuBackend backend(1);
  Recorder r;
  const Meta meta{Dtype::float32, Shape{40}};
  const Tensor g = r.input("g", meta, false);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  std::vector<Tensor> w;
  for (int i = 0; i < 5; ++i)
    w.push_back(r.variable("w" + std::to_string(i), meta, Category::parameters));
  for (int i = 0; i < 3; ++i) w[i] = sgd(w[i], g, params);
  sgd(w[3], w[2], params);
  sgd(w[4], g, params);
  r.keep(tanh(g), "out");
  Graph graph = r.take();
  const VariableLayout layout = PlannedRun::layout_of(graph, backend.alignment());
  Prepared prepared = prepare_graph(std::move(graph), backend, layout, {.off = {"early-update"}});
  std::vector<size_t> launches;
  for (size_t n = 0; n < prepared.graph.nodes.size(); ++n)
    if (prepared.graph.nodes[n].op == kSgd.name)
      prepared.kernels.nodes[n] = std::make_shared<Counting>(launches);
  Elsewhere device;
  const auto arena = device.reserve(prepared.plan.arena);
  Executor executor(prepared.graph, prepared.plan, prepared.kernels,
                    {arena->data(), arena->data() + prepared.plan.persistent}, &device);
  executor.step();
  EXPECT_EQ(launches, (std::vector<size_t>{3, 2}));
  launches.clear();
  StepTimes times(executor.timed_steps());
  executor.step(&times);
  EXPECT_EQ(launches, std::vector<size_t>(5, 1)) << "timed steps run one by one";
  launches.clear();
  executor.warm_up();
  EXPECT_EQ(launches.size(), 7u) << "both ways are warm";
}

// A graph whose kernels of `op` take several calls.
struct Joining {
  Joining(Graph graph, const Op& op, bool device_plan = false) {
    CpuBackend backend(1);
    const VariableLayout layout = PlannedRun::layout_of(graph, backend.alignment());
    prepared = prepare_graph(std::move(graph), backend, layout, all_passes_off());
    if (device_plan) {
      const Bytes arena = prepared.plan.arena;
      prepared.plan = make_device_plan(prepared.graph, prepared.facts, layout, backend.alignment());
      validate(prepared.graph, prepared.plan, prepared.facts);
      EXPECT_EQ(prepared.plan.arena, arena);
    }
    for (size_t n = 0; n < prepared.graph.nodes.size(); ++n)
      if (prepared.graph.nodes[n].op == op.name)
        prepared.kernels.nodes[n] = std::make_shared<Counting>(launches);
  }
  void run() {
    Elsewhere device;
    const auto arena = device.reserve(prepared.plan.arena);
    Executor executor(prepared.graph, prepared.plan, prepared.kernels,
                      {arena->data(), arena->data() + prepared.plan.persistent}, &device);
    executor.step_if_finite();
  }
  Prepared prepared;
  std::vector<size_t> launches;
};
std::vector<size_t> launches_of(Graph graph, const Op& op, bool device_plan = false) {
  Joining joining(std::move(graph), op, device_plan);
  joining.run();
  return joining.launches;
}

// Four gradients, an update behind each. Where the gradients are kept nobody takes their bytes.
// `before`: so many numbers are in the arena before.
Graph updates_apart(Dim size, bool kept, Dim before = 0) {
  Recorder r;
  const Meta meta{Dtype::float32, Shape{size}};
  if (before > 0) r.keep(reduce_sum(r.input("before", {Dtype::float32, Shape{before}}, true)), "b");
  const Tensor x = r.input("x", meta, true);
  const Tensor params = r.input("step_params", step_params_meta(), false);
  for (int i = 0; i < 4; ++i) {
    const Tensor w = r.variable("w" + std::to_string(i), meta, Category::parameters);
    const Tensor g = tanh(x);
    sgd(w, g, params);
    if (kept) r.keep(g, "g" + std::to_string(i));
  }
  r.keep(tanh(x), "out");
  return r.take();
}

TEST(Executor, StepsWaitForOthersLikeThemWhileTheirOperandsLast) {
  EXPECT_EQ(launches_of(updates_apart(40, true), kSgd), std::vector<size_t>{4});
  EXPECT_EQ(launches_of(updates_apart(40, false), kSgd), std::vector<size_t>(4, 1));
  EXPECT_EQ(launches_of(updates_apart(1 << 20, true), kSgd), std::vector<size_t>(4, 1))
      << "what is large runs while its operands are in the cache";
}

class Working final : public Kernel {
 public:
  explicit Working(Bytes bytes) { workspace_bytes = bytes; }
  void run(void* const*, void* const*, void*) override {}
};

// The third gradient's kernel works where the first gradient is.
TEST(Executor, StepsDoNotWaitForOneThatWorksOnTheirOperands) {
  Joining joining(updates_apart(40, true), kSgd);
  Plan& plan = joining.prepared.plan;
  const NodeId third = plan.steps[4].node;
  ASSERT_EQ(joining.prepared.graph.nodes[index(third)].op, "tanh");
  joining.prepared.kernels.nodes[index(third)] = std::make_shared<Working>(64);
  plan.steps[4].workspace_at = plan.steps[0].out[0];
  joining.run();
  EXPECT_EQ(joining.launches, (std::vector<size_t>{2, 2}));
}

// Copies begin and end where the plan says: x leaves behind the second gradient, and is back for
// the third.
TEST(Executor, StepsDoNotWaitForOneWithCopiesAroundIt) {
  Joining joining(updates_apart(40, true), kSgd);
  Prepared& prepared = joining.prepared;
  const ByteOffset x = prepared.plan.steps[0].in[0];
  prepared.plan.stays.push_back({.value = prepared.graph.inputs[0],
                                 .out_after = 2,
                                 .out_until = 2,
                                 .in_from = 4,
                                 .in_before = 4,
                                 .from = x,
                                 .to = x,
                                 .host_at = 0});
  FakeDevice device;
  const auto arena = device.reserve(prepared.plan.arena), away = device.reserve_staging(256);
  const Executor executor(prepared.graph, prepared.plan, prepared.kernels,
                          {.persistent = arena->data(),
                           .transient = arena->data() + prepared.plan.persistent,
                           .variables = {},
                           .away = away->data()},
                          &device);
  std::vector<std::vector<size_t>> together;
  for (const Executor::Bound& step : executor.steps())
    if (!step.together.empty()) together.push_back(step.together);
  EXPECT_EQ(together, (std::vector<std::vector<size_t>>{{5, 7}}));
}

TEST(Executor, OfADevicesPlanOperandsLastAsLongAsThereIsRoom) {
  EXPECT_EQ(launches_of(updates_apart(40, false), kSgd, true), std::vector<size_t>(4, 1));
  // Gradients are 192 bytes each: two find room where 384 were before.
  EXPECT_EQ(launches_of(updates_apart(40, false, 96), kSgd, true), (std::vector<size_t>{2, 2}));
  EXPECT_EQ(launches_of(updates_apart(40, false, 4000), kSgd), std::vector<size_t>(4, 1));
  EXPECT_EQ(launches_of(updates_apart(40, false, 4000), kSgd, true), std::vector<size_t>{4});
}

// The host looks at the loss between the two parts of a step.
TEST(Executor, StepsBeforeTheLossDoNotWaitForThoseBehindIt) {
  Recorder r;
  const Meta meta{Dtype::float32, Shape{8}};
  const Tensor x = r.input("x", meta, true);
  auto statistics = [&](int i) {
    const std::string name = std::to_string(i);
    const Tensor mean = r.variable("mean" + name, meta, Category::parameters),
                 variance = r.variable("variance" + name, meta, Category::parameters);
    moving_statistics(mean, variance, x, x, 0.9);
  };
  statistics(0);
  const Tensor y = tanh(x);
  statistics(1);
  r.keep(reduce_sum(y, {0}), "loss");
  statistics(2);
  r.keep(tanh(y), "out");
  statistics(3);
  EXPECT_EQ(launches_of(r.take(), kMovingStatistics), (std::vector<size_t>{2, 2}));
}

TEST(Executor, RangesThatLieSideBySideAreOne) {
  char memory[1024];
  using Ranges = std::vector<std::pair<void*, Bytes>>;
  EXPECT_EQ(
      joined_ranges({{memory + 64, 60}, {memory, 1}, {memory + 512, 64}, {memory + 128, 7}}, 64),
      (Ranges{{memory, 135}, {memory + 512, 64}}));
  EXPECT_EQ(joined_ranges({{memory, 64}, {memory + 128, 64}, {memory + 64, 0}}, 64),
            (Ranges{{memory, 64}, {memory + 128, 64}}));
}

}  // namespace
}  // namespace pl::test::executor_test
