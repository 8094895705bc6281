// Inputs that come while a step runs: the same bits sooner. Prints times, and so is run with
// --gtest_also_run_disabled_tests.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "plimsoll.h"
#include "tests/cuda/device_test.h"

namespace pl::inputs_test {
namespace {

class DISABLED_CudaInputs : public CudaTest {};

// Steps of fit() on images in host memory, with room for the next batch beside the step and
// without.
TEST_F(DISABLED_CudaInputs, Ahead) {
  ::setenv("PLIMSOLL_COSTS", "nominal", 1);
  constexpr Dim kBatch = 2048, kSamples = 8 * kBatch;
  Tensor x({Dtype::uint8, {kSamples, 64, 64, 3}}), y({Dtype::int32, {kSamples}});
  for (int64_t i = 0; i < x.meta().bytes(); ++i)
    x.data_as<uint8_t>()[i] = static_cast<uint8_t>(i * 131 >> 3);
  for (int64_t i = 0; i < kSamples; ++i) y.data_as<int32_t>()[i] = static_cast<int32_t>(i % 10);
  std::vector<Tensors> weights;
  for (const bool ahead : {false, true}) {
    Sequential model(Shape{64, 64, 3},
                     {Conv2D(32, 3, {.activation = "relu"}), MaxPooling2D(),
                      Conv2D(64, 3, {.activation = "relu"}), MaxPooling2D(), Flatten(),
                      Dense(128, {.activation = "relu"}), Dense(10, {.activation = "softmax"})});
    model.compile({.optimizer = Adam(),
                   .loss = "sparse_categorical_crossentropy",
                   .dtype = kMixedBfloat16,
                   .device = "cuda"});
    FitOptions options{.batch_size = kBatch, .epochs = 3, .verbose = 0, .shuffle = false};
    options.x_scale = 1.0 / 255;
    const PlanReport plan = model.plan(x, y, options);
    if (!ahead) options.memory = plan.process - 2 * kMiB;
    const PlanReport used = model.plan(x, y, options);
    const History history = model.fit(x, y, options);
    std::printf("inputs ahead %s: step %.2f ms median, loss %.6f, planned %lld, measured %lld\n",
                format_bytes(used.ahead).c_str(), history.step_ms,
                history.history.at("loss").back(), static_cast<long long>(history.planned_process),
                static_cast<long long>(history.measured_process));
    weights.push_back(model.get_weights());
  }
  for (size_t i = 0; i < weights[0].size(); ++i)
    EXPECT_EQ(std::memcmp(weights[0][i].data(), weights[1][i].data(),
                          static_cast<size_t>(weights[0][i].meta().bytes())),
              0);
}

}  // namespace
}  // namespace pl::inputs_test
