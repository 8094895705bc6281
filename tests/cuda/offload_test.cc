// Activations in host memory on the GPU: copies beside kernels change no bit, and the bytes are
// those of the plan.
#include <cstdlib>

#include "cli/run_setup.h"
#include "tests/cuda/device_test.h"

namespace pl::offload_test {
namespace {

struct Offloaded {
  uint64_t state = 0;
  Bytes arena = 0, used = 0, planned = 0, held = 0, away = 0, used_away = 0;
  size_t stays = 0;
};

class Silent : public TrainObserver {};

class CudaOffload : public CudaTest {
 protected:
  void SetUp() override {
    ::setenv("PLIMSOLL_COSTS", "nominal", 1);
    CudaTest::SetUp();
    backend.reset();  // the run opens its own
  }

  static RunOptions options_of(const std::string& model, int64_t batch) {
    RunOptions options;
    options.model = model;
    options.batch = batch;
    options.device = "cuda";
    options.cuda = 0;
    options.recompute = false;
    options.split = 1;
    options.steps = 4;
    options.dtype = Dtype::float32;
    return options;
  }

  static Offloaded train(const RunOptions& options) {
    RunSetup setup = set_up_run(options, Purpose::train);
    Session session(std::move(setup.plan), setup.network, options.seed);
    Silent silent;
    run_training(session, setup.loop, *setup.sources.train, nullptr, silent);
    Offloaded result{.state = session.variables().hash(false),
                     .arena = session.plan().arena,
                     .used = session.used_bytes(),
                     .planned = session.plan().process(),
                     .held = setup.backend->held(),
                     .away = session.plan().away,
                     .used_away = session.used_away_bytes()};
    const Plan& plan = session.plan().prepared[0].plan;
    result.stays = plan.stays.size();
    for (const Plan& body : plan.loops) result.stays += body.stays.size();
    return result;
  }

  // The smallest plan in which nothing but values leaves, against the step without limit.
  static void expect_same_bits(RunOptions options) {
    const Offloaded whole = train(options);
    EXPECT_EQ(whole.stays, 0u);
    const RunSetup asked = set_up_run(options, Purpose::plan);
    const SessionPoint* least = nullptr;
    for (const SessionPoint& point : asked.report.frontier)
      if (point.away > 0 && point.host_bytes == 0) least = &point;
    ASSERT_NE(least, nullptr) << "no plan sends anything away";
    options.memory = least->process();
    const Offloaded some = train(options);
    EXPECT_GT(some.stays, 0u);
    EXPECT_EQ(some.state, whole.state);
    EXPECT_EQ(some.used, some.arena);
    EXPECT_EQ(some.used_away, some.away);
    EXPECT_LE(some.held, some.planned);
    EXPECT_LE(some.planned, *options.memory);
    EXPECT_EQ(train(options).state, whole.state) << "again";
  }
};

TEST_F(CudaOffload, WholeStepsComputeTheSameBits) {
  expect_same_bits(options_of("resnet18", 64));
  expect_same_bits(options_of("mnist-cnn", 2048));
}

// A split's own sums differ from those of the whole step; those of the same split do not.
TEST_F(CudaOffload, SplitStepsComputeTheSameBits) {
  RunOptions options = options_of("gpt-tiny", 64);
  options.split = 2;
  expect_same_bits(options);
}

TEST_F(CudaOffload, OffMeansOff) {
  RunOptions options = options_of("resnet18", 64);
  options.offload = false;
  for (const SessionPoint& point : set_up_run(options, Purpose::plan).report.frontier)
    EXPECT_EQ(point.away + point.host_bytes, 0);
}

}  // namespace
}  // namespace pl::offload_test
