// A device's failure is heard of long behind the launch that caused it: what its messages say of
// where it was.
#include <gtest/gtest.h>

#include <cstdlib>

#include "execute/executor.h"
#include "model/layers.h"
#include "plan/passes.h"
#include "tests/fake_device.h"
#include "tests/graph_run.h"
#include "train/step_trace.h"

namespace pl::test::fault_test {
namespace {

constexpr const char* kFault = "cudaErrorIllegalAddress";

Graph dense_step() {
  const Network network = chain({12}, {Dense(8, {.activation = "tanh"}), Dense(6), Dense(3)});
  const Compiled compiled{optimizer_from_name("sgd"), loss_from_name("mse"), {}, Dtype::float32};
  const Meta y = *target_meta(compiled.loss, network.output_shapes()[0], Dtype::float32);
  Graph graph = trace_step(network, compiled, {StepKind::train, 8},
                           {{{Dtype::float32, {12}}}, {y}, 1, false});
  run_passes(graph);
  return graph;
}

class DeviceFaults : public ::testing::Test {
 protected:
  ~DeviceFaults() override { ::unsetenv("PLIMSOLL_SYNC"); }
  void make(const Graph& graph) {
    executor_.reset();
    prepared_ = prepare_as_is(graph, device_);
    arena_ = device_.reserve(prepared_.plan.arena);
    executor_ = std::make_unique<Executor>(
        prepared_.graph, prepared_.plan, prepared_.kernels,
        ArenaView{arena_->data(), arena_->data() + prepared_.plan.persistent}, &device_);
    executor_->warm_up();
    executor_->record();
  }
  static std::string named(const Graph& graph, const Executor::Bound& step) {
    const Node& node = graph.nodes[index(step.node)];
    return node.path.empty() ? node.op : "[" + node.path + "] " + node.op;
  }
  std::string message() {
    return error_of<BackendError>([&] {
      executor_->step();
      try {
        device_.synchronize();
      } catch (const DeviceFault& fault) {
        throw executor_->located(fault);
      }
      executor_->waited();
    });
  }

  FakeDevice device_;
  Prepared prepared_;
  std::unique_ptr<DeviceMemory> arena_;
  std::unique_ptr<Executor> executor_;
};

TEST_F(DeviceFaults, OfARecordingNameItsFirstAndLastOp) {
  device_.records = true;
  make(dense_step());
  EXPECT_EQ(message(), "");
  device_.fault_in = 2;
  const std::string text = message();
  EXPECT_EQ(text.find(named(prepared_.graph, executor_->steps().front()) + " to "), 0u) << text;
  EXPECT_NE(text.find(" to " + named(prepared_.graph, executor_->steps().back()) + ": "),
            std::string::npos)
      << text;
  EXPECT_NE(text.find(kFault), std::string::npos) << text;
  EXPECT_NE(text.find("PLIMSOLL_SYNC=1"), std::string::npos) << text;
}

// What was waited for is not under suspicion.
TEST_F(DeviceFaults, BehindTheLossAreOfTheRest) {
  device_.records = true;
  make(dense_step());
  size_t rest = 0;
  const Graph& graph = prepared_.graph;
  for (size_t s = 0; s < executor_->steps().size(); ++s)
    for (ValueId out : graph.nodes[index(executor_->steps()[s].node)].out)
      if (out == graph.keep[0]) rest = s + 1;
  ASSERT_LT(rest + 1, executor_->steps().size());
  device_.fault_in = static_cast<int>(rest);
  const std::string text = error_of<BackendError>([&] {
    executor_->step_if_finite();
    try {
      device_.synchronize();
    } catch (const DeviceFault& fault) {
      throw executor_->located(fault);
    }
  });
  EXPECT_EQ(text.find(named(graph, executor_->steps()[rest]) + " to "), 0u) << text;
}

// The call that hears of it is not blamed.
TEST_F(DeviceFaults, OfLaunchesOneByOneBlameNoInnocentOp) {
  make(dense_step());
  device_.fault_in = 0;
  const std::string text = message();
  EXPECT_EQ(text.find(named(prepared_.graph, executor_->steps()[0]) + " to " +
                      named(prepared_.graph, executor_->steps()[1]) + ": "),
            0u)
      << text;
  EXPECT_NE(text.find("PLIMSOLL_SYNC=1"), std::string::npos) << text;
}

TEST_F(DeviceFaults, AreExactWhenEachOpIsWaitedFor) {
  ::setenv("PLIMSOLL_SYNC", "1", 1);
  for (const bool records : {false, true})
    for (size_t s = 0;; ++s) {
      device_.mend();
      device_.records = records;
      make(dense_step());
      if (s >= executor_->steps().size()) break;
      device_.fault_in = static_cast<int>(s);
      EXPECT_EQ(message(),
                named(prepared_.graph, executor_->steps()[s]) + ": [cuda] synchronize: " + kFault);
    }
}

TEST_F(DeviceFaults, InPartsNameTheBodysOps) {
  device_.records = true;
  make(split_batch(dense_step(), 4));
  const Executor::BoundLoop& loop = executor_->loops()[0];
  // Of the second trip: all that the first one ran is behind it.
  device_.fault_in = static_cast<int>(loop.steps.size()) + 1;
  const std::string text = message();
  EXPECT_NE(text.find(" to "), std::string::npos) << text;
  EXPECT_NE(text.find(kFault), std::string::npos) << text;
  EXPECT_EQ(text.find("[] "), std::string::npos) << text;
}

TEST_F(DeviceFaults, InPartsAreExactToo) {
  ::setenv("PLIMSOLL_SYNC", "1", 1);
  make(split_batch(dense_step(), 4));
  const Executor::BoundLoop& loop = executor_->loops()[0];
  size_t before = 0;
  while (executor_->steps()[before].loop < 0) ++before;
  device_.fault_in = static_cast<int>(before + loop.steps.size()) + 1;
  EXPECT_EQ(message(), named(*loop.body, loop.steps[1]) + ": [cuda] synchronize: " + kFault);
}

TEST_F(DeviceFaults, WhileItWarmsUpAreExact) {
  device_.fault_in = 1;
  const std::string text = error_of<BackendError>([&] { make(dense_step()); });
  EXPECT_EQ(text,
            named(prepared_.graph, executor_->steps()[1]) + ": [cuda] synchronize: " + kFault);
}

// Recorded or not, a step computes the same.
TEST_F(DeviceFaults, RecordedStepsRunAsOthers) {
  std::vector<std::string> results;
  for (const bool records : {false, true})
    for (const int parts : {1, 4}) {
      device_.records = records;
      make(parts > 1 ? split_batch(dense_step(), parts) : dense_step());
      const FakeMemoryOpen open;
      std::memset(arena_->data(), 0, static_cast<size_t>(prepared_.plan.arena));
      auto* floats = reinterpret_cast<float*>(arena_->data());
      for (Bytes i = 0; i < prepared_.plan.persistent / 4; ++i)
        floats[i] = 0.01f * static_cast<float>(i % 37);
      auto* x = static_cast<float*>(executor_->input(0));
      for (int i = 0; i < 96; ++i) x[i] = 0.1f * static_cast<float>(i % 11);
      EXPECT_EQ(message(), "");
      results.emplace_back(static_cast<const char*>(executor_->kept(0)), sizeof(float));
    }
  EXPECT_EQ(results[0], results[2]);
  EXPECT_EQ(results[1], results[3]);
}

}  // namespace
}  // namespace pl::test::fault_test
