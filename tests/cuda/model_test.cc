// The C++ face on a GPU: values, tapes, functions and models give the processor's numbers to
// tolerance and the same bits again, within the bytes that were promised.
// src/train/device_model_test.cc has what does not depend on the kernels.
#include <cmath>
#include <cstdlib>

#include "plimsoll.h"
#include "tests/cuda/device_test.h"
#include "tests/eager_runs.h"
#include "tests/patterns.h"

namespace pl::model_test {
namespace {

using test::pattern;
using test::same_bits;

class CudaModelTest : public CudaTest {
 protected:
  void SetUp() override {
    ::setenv("PLIMSOLL_COSTS", "nominal", 1);
    CudaTest::SetUp();
  }
};

void expect_near(const Tensor& a, const Tensor& b, double tolerance) {
  ASSERT_EQ(a.meta(), b.meta());
  double largest = 0, apart = 0;
  for (int64_t i = 0; i < a.meta().elements(); ++i) {
    const double x = a.data_as<float>()[i], y = b.data_as<float>()[i];
    largest = std::max(largest, std::fabs(y));
    apart = std::max(apart, std::fabs(x - y));
  }
  EXPECT_LE(apart, tolerance * largest);
}

Tensor labels(Dim count, int64_t below) {
  Tensor y({Dtype::int32, {count}});
  for (int64_t i = 0; i < count; ++i)
    y.data_as<int32_t>()[i] = static_cast<int32_t>(i * 7919 % below);
  return y;
}

Tensor eager_steps(const char* where, bool traced) {
  Runtime runtime({.threads = 2, .device_memory = "64MiB"});
  const auto scope = device(where);
  const Variable w(pattern({64, 32}, 1), {.name = "w"}), b(fill({32}, 0.1), {.name = "b"});
  const auto adam = Adam({.learning_rate = 0.01});
  auto step = [&](const Tensor& x) {
    GradientTape tape;
    const Tensor loss = reduce_mean(square(tanh(matmul(x, w, {}, b))));
    const Tensors g = tape.gradient(loss, {w, b});
    adam->apply_gradients({{g[0], w}, {g[1], b}});
    return loss;
  };
  auto function = pl::function(step);
  for (int i = 0; i < 6; ++i) {
    const Tensor x = pattern({256, 64}, i);
    const Tensor loss = traced ? function(x) : step(x);
    EXPECT_TRUE(std::isfinite(loss.data_as<float>()[0]));
  }
  const Tensor there = w.value();
  Tensor copy(there.meta());
  std::memcpy(copy.data(), there.data(), static_cast<size_t>(there.meta().bytes()));
  return copy;
}

TEST_F(CudaModelTest, ValuesTapesAndFunctions) {
  const Tensor cpu = eager_steps("cpu", false);
  expect_near(eager_steps("cuda", false), cpu, 1e-3);
  expect_near(eager_steps("cuda", true), cpu, 1e-3);
  EXPECT_TRUE(same_bits(eager_steps("cuda", false), eager_steps("cuda:0", false)));
}

// The second call of a function records it: calls from then on have the bits of those before.
TEST_F(CudaModelTest, RecordedFunctions) {
  auto train = [](bool traced, int calls) {
    Runtime runtime({.threads = 2, .device_memory = "64MiB"});
    const auto scope = device("cuda");
    const Variable w(pattern({64, 64}, 1), {.name = "w"}), b(fill({64}, 0.1), {.name = "b"});
    const auto adam = Adam({.learning_rate = 0.01});
    auto step = [&](const Tensor& x) {
      GradientTape tape;
      const Tensor loss = reduce_mean(square(tanh(matmul(tanh(matmul(x, w, {}, b)), w))));
      const Tensors g = tape.gradient(loss, {w, b});
      adam->apply_gradients({{g[0], w}, {g[1], b}});
      return loss;
    };
    auto function = pl::function(step);
    std::vector<float> losses;
    for (int i = 0; i < calls; ++i) {
      const Tensor x = pattern({256, 64}, i);
      losses.push_back((traced ? function(x) : step(x)).data_as<float>()[0]);
      if (traced) {
        EXPECT_EQ(function.plan().recorded, i > 0) << "call " << i;
      }
    }
    const Bytes recorded = runtime.device_memory().used;
    EXPECT_LE(recorded, 64 * kMiB);
    Tensor copy(w.meta());
    std::memcpy(copy.data(), w.value().data(), static_cast<size_t>(w.meta().bytes()));
    return std::pair{losses, copy};
  };
  const auto [losses, w] = train(true, 8);
  const auto [again, same] = train(true, 8);
  EXPECT_EQ(losses, again);
  EXPECT_TRUE(same_bits(w, same));
  const auto [eager, near] = train(false, 8);
  for (size_t i = 0; i < losses.size(); ++i) EXPECT_NEAR(losses[i], eager[i], 1e-4 * eager[i]);
  expect_near(w, near, 1e-3);
}

// A variable that somebody holds moves with every update: such calls are not launched as recorded.
TEST_F(CudaModelTest, FunctionsWhoseVariablesMove) {
  Runtime runtime({.threads = 1});
  const auto scope = device("cuda");
  const Variable w(fill({1 << 20}, 1.0), {.name = "w"});
  auto step = pl::function([&](const Tensor& x) { w.assign_add(x); });
  const Tensor one = fill({1 << 20}, 1.0);
  Tensors held;
  for (int i = 0; i < 6; ++i) {
    if (i % 2 == 0) held.push_back(w.value());
    step(one);
    EXPECT_EQ(w.value().data_as<float>()[12345], 2 + i);
  }
  for (size_t i = 0; i < held.size(); ++i)
    EXPECT_EQ(held[i].data_as<float>()[77], 1 + 2 * static_cast<float>(i));
}

// Parts of a batch whose rows have odd sizes begin anywhere: no kernel may read 16 bytes at once
// there.
TEST_F(CudaModelTest, PartsOfOddRows) {
  for (const Policy& dtype : {Policy(Dtype::float32), Policy(kMixedBfloat16)}) {
    const Tensor x = pattern({32, 13}, 1), y = labels(32, 5);
    auto train = [&](int64_t split) {
      Sequential model(Shape{13}, {Activation("tanh"), Dense(7, {.activation = "gelu"}), Dense(5)});
      model.compile({.optimizer = Adam(),
                     .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                     .dtype = dtype,
                     .device = "cuda"});
      FitOptions options{.batch_size = 32, .epochs = 3, .verbose = 0};
      options.split = split;
      const History history = model.fit(x, y, options);
      EXPECT_TRUE(std::isfinite(model.predict(x).data_as<float>()[0]));
      return history.history.at("loss").back();
    };
    const double whole = train(1);
    for (int64_t split : {4, 16, 32}) EXPECT_NEAR(train(split), whole, 0.01 * whole) << split;
  }
}

TEST_F(CudaModelTest, StepsOpByOp) {
  for (const test::EagerCase& of : test::eager_cases()) test::expect_eager_is_planned(of, "cuda");
}

TEST_F(CudaModelTest, DevicesThatAreNotThereAreNamed) {
  const int count = cuda_device_count();
  try {
    const auto scope = device("cuda:" + std::to_string(count));
    ADD_FAILURE() << "nothing thrown";
  } catch (const UserError& error) {
    const std::string text = error.what();
    EXPECT_NE(text.find("cuda:0 (NVIDIA"), std::string::npos) << text;
  }
}

TEST_F(CudaModelTest, ValuesHaveAHardLimit) {
  const Bytes free = backend->free();
  {
    Runtime runtime({.device_memory = "64MiB"});
    const auto scope = device("cuda");
    Tensors values;
    EXPECT_THROW(for (int i = 0; i < 20; ++i) values.push_back(fill({1024, 1024}, i)), DoesNotFit);
    EXPECT_EQ(values.size(), 16u);
    EXPECT_EQ(values[3].data_as<float>()[1024 * 1024 - 1], 3);
    values.clear();
    EXPECT_EQ(fill({16, 1024, 1024}, 5).data_as<float>()[7], 5) << "free memory is in one piece";
  }
  EXPECT_GE(backend->free(), free - 64 * kMiB);
}

struct Trained {
  History history;
  Results results;
  Tensor outputs;
  Tensors weights;
};

Trained train(const char* where, Budget memory = {}, Policy dtype = Dtype::float32) {
  Sequential model(Shape{16, 16, 3},
                   {Conv2D(16, 3, {.activation = "relu"}), MaxPooling2D(), BatchNormalization(),
                    Flatten(), Dense(64, {.activation = "relu"}), Dense(10)});
  model.compile({.optimizer = Adam({.learning_rate = 0.002}),
                 .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                 .metrics = {"accuracy"},
                 .dtype = dtype,
                 .device = where});
  const Tensor x = pattern({320, 16, 16, 3}, 1), y = labels(320, 10);
  FitOptions options{.batch_size = 64, .epochs = 2, .verbose = 0, .memory = memory, .threads = 2};
  options.validation_split = 0.2;
  options.callbacks = {EarlyStopping({.patience = 5, .restore_best_weights = true})};
  model.fit(x, y, options);
  options.callbacks = {};
  Trained result;
  result.history = model.fit(x, y, options);
  result.results = model.evaluate(x, y, {.batch_size = 100, .threads = 2});
  result.outputs = model.predict(x, {.batch_size = 100, .threads = 2});
  result.weights = model.get_weights();
  return result;
}

TEST_F(CudaModelTest, FitEvaluatePredict) {
  const Trained gpu = train("cuda"), again = train("cuda"), cpu = train("cpu");
  for (const auto& [name, values] : cpu.history.history) {
    SCOPED_TRACE(name);
    const double tolerance = name.find("accuracy") == std::string::npos ? 0.02 : 0.05;
    for (size_t e = 0; e < values.size(); ++e)
      EXPECT_NEAR(gpu.history.history.at(name)[e], values[e], tolerance * std::fabs(values[e]));
  }
  EXPECT_NEAR(gpu.results.at("loss"), cpu.results.at("loss"), 0.02 * cpu.results.at("loss"));
  expect_near(gpu.outputs, cpu.outputs, 0.05);
  EXPECT_TRUE(same_bits(gpu.outputs, again.outputs));
  for (size_t i = 0; i < gpu.weights.size(); ++i)
    EXPECT_TRUE(same_bits(gpu.weights[i], again.weights[i]));
  EXPECT_EQ(gpu.history.planned_arena, gpu.history.used_arena);
  EXPECT_LE(gpu.history.measured_process, gpu.history.planned_process);
  EXPECT_GE(static_cast<double>(gpu.history.measured_process),
            0.97 * static_cast<double>(gpu.history.planned_process));
}

TEST_F(CudaModelTest, MixedPrecisionWithLossScaling) {
  const Trained gpu = train("cuda", {}, kMixedFloat16);
  EXPECT_LT(gpu.history.history.at("loss").back(), gpu.history.history.at("loss").front());
  EXPECT_TRUE(std::isfinite(gpu.results.at("loss")));
}

TEST_F(CudaModelTest, BudgetsAndMemoryThatGoesBack) {
  const Bytes free = backend->free();
  {
    Sequential model(Shape{256}, {Dense(2048, {.activation = "relu"}),
                                  Dense(2048, {.activation = "relu"}), Dense(8)});
    model.compile({.loss = "mse", .device = "cuda"});
    const Tensor x = pattern({8192, 256}, 1), y = pattern({8192, 8}, 2);
    FitOptions options{.batch_size = 8192, .verbose = 0, .shuffle = false};
    const PlanReport plan = model.plan(x, y, options);
    options.memory = plan.process - 64 * kMiB;
    const History history = model.fit(x, y, options);
    EXPECT_LE(history.measured_process, plan.process - 64 * kMiB);
    EXPECT_EQ(history.planned_arena, history.used_arena);
    options.memory = 64 * kMiB;
    EXPECT_THROW(model.fit(x, y, options), DoesNotFit);
    EXPECT_EQ(model.predict(x, {.batch_size = 1024}).shape(), (Shape{8192, 8}));
  }
  EXPECT_GE(backend->free(), free - 96 * kMiB);  // code and libraries that were loaded stay
}

TEST_F(CudaModelTest, ModelsOnValues) {
  auto run = [](const char* where) {
    Runtime runtime({.threads = 2});
    Sequential model(Shape{16}, {Dense(32, {.activation = "relu"}), Dense(4)});
    model.compile({.optimizer = Adam(), .loss = "mse", .device = where});
    const Tensor x = pattern({64, 16}, 1), y = pattern({64, 4}, 2);
    for (int i = 0; i < 4; ++i) {
      GradientTape tape;
      const Tensor loss = reduce_mean(square(subtract(model(x, true), y)));
      const std::vector<Variable> weights = model.trainable_variables();
      const Tensors g = tape.gradient(loss, weights);
      GradientsAndVariables list;
      for (size_t w = 0; w < g.size(); ++w) list.emplace_back(g[w], weights[w]);
      model.optimizer().apply_gradients(list);
    }
    model.fit(x, y, {.batch_size = 16, .verbose = 0});
    return model.predict(x);
  };
  expect_near(run("cuda"), run("cpu"), 1e-2);
}

}  // namespace
}  // namespace pl::model_test
