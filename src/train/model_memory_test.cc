// What a model says about memory, and what it does with it.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/host_memory.h"
#include "base/error.h"
#include "model/layers.h"
#include "tests/own_process.h"
#include "train/model.h"

namespace pl::model_memory_test {
namespace {

// The table at batch size 32, up to the lines that depend on the machine's kernels.
constexpr const char* kSummary = R"(Model: "sequential"
┏━━━━━━━━━━━━━━━━━┳━━━━━━━━━━━━━━┳━━━━━━━━━┳━━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━┳━━━━━━━━━━━━━┓
┃ Layer (type)    ┃ Output Shape ┃ Param # ┃ Parameters ┃ Gradients ┃ Optimizer ┃ Activations ┃
┡━━━━━━━━━━━━━━━━━╇━━━━━━━━━━━━━━╇━━━━━━━━━╇━━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━╇━━━━━━━━━━━━━┩
│ input (Input)   │ (None, 8)    │       0 │        0 B │       0 B │       0 B │    1.12 KiB │
│ dense (Dense)   │ (None, 16)   │     144 │      576 B │     576 B │  1.12 KiB │    2.00 KiB │
│ dense_1 (Dense) │ (None, 4)    │      68 │      320 B │     320 B │     640 B │       512 B │
│ total           │              │     212 │      896 B │     896 B │  1.75 KiB │    3.62 KiB │
└─────────────────┴──────────────┴─────────┴────────────┴───────────┴───────────┴─────────────┘
 Total params: 212 (848 B)
 Trainable params: 212 (848 B)
 Non-trainable params: 0 (0 B)
 Optimizer params: 424 (1.66 KiB)
)";

Tensor zeros(const Meta& meta) {
  Tensor tensor(meta);
  std::memset(tensor.data(), 0, static_cast<size_t>(meta.bytes()));
  return tensor;
}

Sequential wide(int64_t units) {
  Sequential model(Shape{256}, {Dense(units, {.activation = "relu"}), Dense(10)});
  model.compile({.optimizer = Adam(), .loss = Loss{"sparse_categorical_crossentropy", true}});
  return model;
}

TEST(ModelMemory, ABudgetTooSmallNamesWhatFits) {
  Sequential model = wide(2048);
  const Tensor x = zeros({Dtype::float32, {4096, 256}}), y = zeros({Dtype::int32, {4096}});
  FitOptions options{
      .batch_size = 4096, .verbose = 0, .recompute = false, .split = 1, .threads = 1};
  const Bytes needed = model.plan(x, y, options).process;
  const Tensors before = model.get_weights();
  const Bytes budget = needed - 24 * kMiB;
  options.memory = budget;
  std::string message;
  try {
    model.fit(x, y, options);
    FAIL() << "it must not fit";
  } catch (const DoesNotFit& error) {
    message = error.what();
  }
  EXPECT_NE(message.find("memory = " + std::to_string(needed)), std::string::npos) << message;
  EXPECT_NE(message.find("no plan can need less than"), std::string::npos) << message;
  EXPECT_NE(message.find("dense"), std::string::npos) << message;
  EXPECT_EQ(model.iterations(), 0);
  EXPECT_EQ(std::memcmp(before[0].data(), model.get_weights()[0].data(),
                        static_cast<size_t>(before[0].meta().bytes())),
            0);
  const std::string word = "batch_size = ";
  const size_t at = message.rfind(word);
  ASSERT_NE(at, std::string::npos) << message;
  const int64_t batch = std::stoll(message.substr(at + word.size()));
  EXPECT_LT(batch, 4096);
  EXPECT_GT(batch, 1024);
  EXPECT_TRUE(model.plan(x, y, {.batch_size = batch, .memory = budget}).fits);
  // A test runner holds more than a plain program does; it gets that much more.
  const Bytes memory = budget + process_resident();
  const History history = model.fit(x, y, {.batch_size = batch, .verbose = 0, .memory = memory});
  EXPECT_LE(history.planned_process, budget);
}

TEST(ModelMemory, PlanIsWhatFitUses) {
  Sequential model = wide(64);
  const Tensor x = zeros({Dtype::float32, {100, 256}}), y = zeros({Dtype::int32, {100}});
  const FitOptions options{.verbose = 0, .validation_split = 0.2, .threads = 1};
  const PlanReport report = model.plan(x, y, options);
  EXPECT_TRUE(report.fits);
  EXPECT_EQ(report.model, "sequential");
  const History history = model.fit(x, y, options);
  EXPECT_EQ(report.process, history.planned_process);
  EXPECT_EQ(report.arena, history.planned_arena);
  EXPECT_EQ(report.arena, history.used_arena);
  EXPECT_EQ(model.plan(x, y, options).process, report.process);  // warm as cold
  EXPECT_GT(*model.plan({.memory = "256MiB"}).max_batch, 32);
}

// The smallest budget that a refusal names.
Bytes smallest_named(const std::string& message) {
  const std::string words = "smallest budget that fits: memory = ";
  const size_t at = message.find(words);
  if (at == std::string::npos) throw std::runtime_error(message);
  return std::stoll(message.substr(at + words.size()));
}

template <class Call>
std::string refusal(const Call& call) {
  try {
    call();
  } catch (const DoesNotFit& error) {
    return error.what();
  }
  return "it fits";
}

TEST(ModelMemory, EvaluateAndPredictKeepWithinTheBudget) {
  if (test::ran_in_own_process()) return;
  Sequential model = wide(4096);
  Tensor x({Dtype::float32, {2048, 256}}), y = zeros({Dtype::int32, {2048}});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<float>()[i] = static_cast<float>(i * 7919 % 1024) / 1024.f;
  EvaluateOptions options{.batch_size = 2048, .threads = 1};
  const double loss = model.evaluate(x, y, options).at("loss");
  const Tensor predicted = model.predict(x, options);
  // As one batch each takes 32 MiB for the hidden layer; in parts far less.
  options.memory = kMiB;
  const Bytes evaluating = smallest_named(refusal([&] { model.evaluate(x, y, options); }));
  // What this process holds besides is not on the bill.
  constexpr Bytes kOthers = 18 * kMiB;
  options.memory = evaluating + kOthers;
  EXPECT_NEAR(model.evaluate(x, y, options).at("loss"), loss, 1e-5);
  options.memory = evaluating - 1;
  EXPECT_NE(refusal([&] { model.evaluate(x, y, options); }), "it fits");
  options.memory = kMiB;
  const Bytes predicting = smallest_named(refusal([&] { model.predict(x, options); }));
  options.memory = predicting + kOthers;
  const Tensor again = model.predict(x, options);
  for (int64_t i = 0; i < again.meta().elements(); ++i)
    ASSERT_NEAR(again.data_as<float>()[i], predicted.data_as<float>()[i], 1e-4);
  options.memory = predicting + 32 * kMiB + kOthers;  // more than the unsplit one takes
  EXPECT_EQ(refusal([&] { model.predict(x, options); }), "it fits");
  EXPECT_LT(evaluating, 40 * kMiB);
}

TEST(ModelMemory, TransientMemoryGoesBackAfterFit) {
  Sequential model = wide(4096);
  const Tensor x = zeros({Dtype::float32, {4096, 256}}), y = zeros({Dtype::int32, {4096}});
  const Bytes start = process_resident();
  const PlanReport report = model.plan(x, y, {.batch_size = 4096, .threads = 1});
  const Bytes transient = report.arena - report.persistent;
  ASSERT_GT(transient, 60 * kMiB);
  const History history = model.fit(x, y, {.batch_size = 4096, .verbose = 0, .threads = 1});
  const Bytes after = process_resident();
  EXPECT_GT(history.measured_process - after, transient * 9 / 10);
  EXPECT_LT(after - start, report.persistent + 16 * kMiB);  // variables and kernels stay
}

TEST(ModelMemory, GoesBackWithTheModel) {
  const Tensor x = zeros({Dtype::float32, {2048, 256}}), y = zeros({Dtype::int32, {2048}});
  const auto train = [&](int64_t units) {
    Sequential model = wide(units);
    model.fit(x, y, {.batch_size = 2048, .verbose = 0, .threads = 1});
    return process_resident();
  };
  train(64);  // libraries load their code
  const Bytes before = process_resident();
  const Bytes within = train(4096);
  // There is something to give back: 12 MiB of weights and Adam's slots, less what of `before` was
  // free heap that they took.
  EXPECT_GT(within - before, 11 * kMiB);
  EXPECT_LT(process_resident() - before, 4 * kMiB);
}

TEST(ModelMemory, SteadyTrainingDoesNotGrow) {
  const Tensor x = zeros({Dtype::float32, {640, 256}}), y = zeros({Dtype::int32, {640}});
  Sequential model(Shape{256}, {Dense(32, {.activation = "relu"}), BatchNormalization(),
                                Dropout(0.2), Dense(10)});
  model.compile({.optimizer = Adam(),
                 .loss = Loss{"sparse_categorical_crossentropy", true},
                 .metrics = {"accuracy"}});
  Bytes early = 0, late = 0;
  const auto watch = LambdaCallback({.on_epoch_end = [&](int64_t epoch, Logs&) {
    (epoch == 4 ? early : late) = process_resident();
  }});
  model.fit(
      x, y,
      {.epochs = 200, .verbose = 0, .callbacks = {watch}, .validation_split = 0.2, .threads = 1});
  ASSERT_GT(early, 0);
  EXPECT_LT(late - early, kMiB);
}

TEST(ModelMemory, SummaryShowsBytesPerLayer) {
  Sequential model(Shape{8},
                   {Dense(16, {.activation = "relu"}), Dense(4, {.activation = "softmax"})});
  EXPECT_NE(model.summary().find("compile() first"), std::string::npos);
  model.compile({.optimizer = Adam(), .loss = "sparse_categorical_crossentropy"});
  const std::string text = model.summary({.batch_size = 32, .threads = 1});
  const size_t end = text.find(" Training with");
  ASSERT_NE(end, std::string::npos);
  EXPECT_EQ(text.substr(0, end), kSummary);
  const PlanReport report = model.plan({.batch_size = 32});
  EXPECT_NE(text.find("batch size 32 in float32"), std::string::npos) << text;
  EXPECT_NE(text.find("planned (arena): " + format_bytes(report.arena)), std::string::npos) << text;
  EXPECT_NE(text.find("process: " + format_bytes(report.process)), std::string::npos) << text;
}

}  // namespace
}  // namespace pl::model_memory_test
