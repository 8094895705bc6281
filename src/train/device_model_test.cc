// Models on a device that is not the host.
#include <gtest/gtest.h>

#include <cstring>
#include <filesystem>

#include "tests/eager_runs.h"
#include "tests/on_device.h"
#include "tests/patterns.h"
#include "train/variables.h"

namespace pl::test::device_model_test {
namespace {

Sequential small_net() {
  return Sequential(Shape{6, 6, 1}, {Conv2D(4, 3, {.activation = "relu"}), BatchNormalization(),
                                     Flatten(), Dropout(0.2), Dense(5, {.activation = "softmax"})});
}

struct Trained {
  History history;
  Results results;
  Tensor outputs;
  Tensors weights;
  int64_t iterations = 0;
};

Trained train(Model model, const std::string& where, Budget memory = {}) {
  model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                 .loss = "sparse_categorical_crossentropy",
                 .metrics = {"accuracy"},
                 .device = where});
  const Tensor x = pattern({40, 6, 6, 1}, 1), y = spread_labels(40, 5);
  FitOptions options{.batch_size = 8, .epochs = 2, .verbose = 0, .memory = memory, .threads = 1};
  options.validation_split = 0.2;
  model.fit(x, y, options);
  options.epochs = 1;
  Trained result;
  result.history = model.fit(x, y, options);
  result.results = model.evaluate(x, y, {.batch_size = 16, .threads = 1});
  result.outputs = model.predict(x, {.batch_size = 16, .threads = 1});
  result.weights = model.get_weights();
  result.iterations = model.iterations();
  return result;
}

void expect_equal(const Trained& a, const Trained& b) {
  EXPECT_EQ(a.history.history, b.history.history);
  EXPECT_EQ(a.results, b.results);
  EXPECT_TRUE(same_bits(a.outputs, b.outputs));
  for (size_t i = 0; i < a.weights.size(); ++i) EXPECT_TRUE(same_bits(a.weights[i], b.weights[i]));
  EXPECT_EQ(a.iterations, b.iterations);
}

TEST_F(OnDevice, ModelsTrainThere) {
  const Bytes before = held();
  const Trained there = train(small_net(), kName);
  EXPECT_EQ(held(), before) << "the memory of a model that is gone";
  expect_equal(train(small_net(), ""), there);
  EXPECT_EQ(there.history.planned_arena, there.history.used_arena);
  EXPECT_LE(there.history.measured_process, there.history.planned_process);
}

TEST_F(OnDevice, CompileTakesTheDeviceInScope) {
  Sequential model = small_net();
  {
    const auto scope = device(kName);
    model.compile({.loss = "sparse_categorical_crossentropy"});
  }
  const PlanReport plan = model.plan({.batch_size = 8});
  EXPECT_EQ(plan.device, kName);
  EXPECT_GE(plan.process, test::FakeDevice::kContext);
  model.compile({.loss = "sparse_categorical_crossentropy"});
  EXPECT_EQ(model.plan({.batch_size = 8}).device, "cpu");
}

// Whichever kernels a model is compiled for, its weights are on the one device of that name: ops,
// tapes and functions take them where they are.
TEST_F(OnDevice, FasterKernelsAreOfTheSameDevice) {
  auto& fake = static_cast<test::FakeDevice&>(space_->backend());
  Runtime runtime({.threads = 1});
  Sequential model({Dense(4, {.activation = "tanh"}), Dense(3)});
  model.build({6});
  model.compile({.loss = "mse", .device = kName, .deterministic = false});
  const Tensor x = pattern({8, 6}, 1), y = pattern({8, 3}, 2);
  model.fit(x, y, {.batch_size = 8, .verbose = 0, .threads = 1});
  EXPECT_EQ(fake.chosen, 1);
  const auto scope = device(kName);
  const std::vector<Variable> weights = model.variables();
  for (const Variable& weight : weights) EXPECT_EQ(weight.value().buffer()->space(), space_);
  const Tensor eager = matmul(x, weights[0]);
  auto function = pl::function([&](const Tensor& in) { return matmul(in, weights[0]); });
  EXPECT_TRUE(same_bits(function(x), eager));
  EXPECT_TRUE(same_bits(function(x), eager));
  const Tensor before = model.predict(x, {.threads = 1});
  model.compile({.loss = "mse", .device = kName});
  EXPECT_EQ(model.variables()[0].value().buffer()->space(), space_);
  EXPECT_TRUE(same_bits(model.predict(x, {.threads = 1}), before));
}

TEST_F(OnDevice, TheBudgetIsOfTheDevice) {
  Sequential model(Shape{64}, {Dense(512, {.activation = "relu"}), Dense(512), Dense(4)});
  model.compile({.loss = "mse", .device = kName});
  const Tensor x = pattern({1024, 64}, 1), y = pattern({1024, 4}, 2);
  const FitOptions free{.batch_size = 1024, .verbose = 0, .shuffle = false};
  const PlanReport plan = model.plan(x, y, free);
  const Tensors start = model.get_weights();
  const History wide = model.fit(x, y, free);
  model.set_weights(start);
  model.compile({.loss = "mse", .device = kName});
  FitOptions tight = free;
  tight.memory = plan.process - kMiB;
  const History narrow = model.fit(x, y, tight);
  EXPECT_LE(narrow.planned_process, plan.process - kMiB);
  EXPECT_LE(narrow.measured_process, narrow.planned_process);
  EXPECT_NEAR(narrow.history.at("loss")[0], wide.history.at("loss")[0], 1e-4);
  tight.memory = test::FakeDevice::kContext;
  EXPECT_THROW(model.fit(x, y, tight), DoesNotFit);
}

TEST_F(OnDevice, WeightsMoveWithCompileAndSurviveFiles) {
  char folder[] = "/tmp/plimsoll-device-XXXXXX";
  ASSERT_NE(::mkdtemp(folder), nullptr);
  const std::string file = std::string(folder) + "/w.safetensors";
  const Tensor x = pattern({16, 6, 6, 1}, 1), y = spread_labels(16, 5);
  auto compile = [](Model& model, const char* where) {
    model.compile(
        {.optimizer = Adam(), .loss = "sparse_categorical_crossentropy", .device = where});
  };
  Sequential model = small_net();
  compile(model, "");
  model.fit(x, y, {.batch_size = 8, .verbose = 0, .threads = 1});
  const Tensor host = model.predict(x, {.threads = 1});
  compile(model, kName);
  EXPECT_TRUE(same_bits(host, model.predict(x, {.threads = 1})));
  model.fit(x, y, {.batch_size = 8, .verbose = 0});
  const Tensor after = model.predict(x);
  model.save_weights(file);
  model.save_checkpoint(std::string(folder) + "/all");
  model.fit(x, y, {.batch_size = 8, .verbose = 0});
  const Tensor later = model.predict(x);
  EXPECT_FALSE(same_bits(after, later));
  model.load_checkpoint(std::string(folder) + "/all");
  EXPECT_TRUE(same_bits(after, model.predict(x)));
  model.fit(x, y, {.batch_size = 8, .verbose = 0});
  EXPECT_TRUE(same_bits(later, model.predict(x))) << "slots came back too";
  Sequential other = small_net();
  other.load_weights(file);
  EXPECT_TRUE(same_bits(after, other.predict(x, {.threads = 1})));
  std::filesystem::remove_all(folder);
}

TEST_F(OnDevice, CallbacksReadAndWriteWeights) {
  struct Watch : Callback {
    void on_train_batch_end(int64_t, const Logs&) override {
      const auto& entries = model->variables().layout().entries;
      const float now = *static_cast<const float*>(model->variables().at(0));
      EXPECT_EQ(entries[0].path, "dense/kernel");
      moved = moved || (seen && now != last);
      seen = true;
      last = now;
    }
    bool seen = false, moved = false;
    float last = 0;
  };
  auto run = [&](const char* where) {
    Sequential model(Shape{4}, {Dense(3)});
    model.compile({.optimizer = SGD({.learning_rate = 2.0}), .loss = "mse", .device = where});
    const auto watch = std::make_shared<Watch>();
    const Tensor x = pattern({16, 4}, 1), y = pattern({16, 3}, 2);
    model.fit(x, y,
              {.batch_size = 4,
               .epochs = 6,
               .verbose = 0,
               .callbacks = {watch, EarlyStopping({.patience = 1, .restore_best_weights = true})},
               .validation_split = 0.25,
               .threads = 1});
    EXPECT_TRUE(watch->moved);
    return model.get_weights();
  };
  const Tensors cpu = run(""), there = run(kName);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(same_bits(cpu[i], there[i]));
}

TEST_F(OnDevice, ModelsRunOnValuesThere) {
  auto run = [&](const char* where) {
    Runtime runtime({.threads = 1});
    Sequential model = small_net();
    model.compile({.optimizer = Adam({.learning_rate = 0.01}),
                   .loss = "sparse_categorical_crossentropy",
                   .device = where});
    const Tensor x = pattern({8, 6, 6, 1}, 1), y = spread_labels(8, 5);
    for (int step = 0; step < 3; ++step) {
      GradientTape tape;
      const Tensor p = model(x, true);
      const Tensor loss = reduce_mean(sparse_softmax_cross_entropy(p, y).loss);
      const std::vector<Variable> weights = model.trainable_variables();
      const Tensors g = tape.gradient(loss, weights);
      GradientsAndVariables list;
      for (size_t i = 0; i < g.size(); ++i) list.emplace_back(g[i], weights[i]);
      model.optimizer().apply_gradients(list);
      EXPECT_EQ(loss.buffer()->space() != nullptr, std::string(where) != "");
    }
    model.fit(x, y, {.batch_size = 4, .verbose = 0, .threads = 1});
    return model.get_weights();
  };
  const Tensors cpu = run(""), there = run(kName);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(same_bits(cpu[i], there[i])) << i;
}

TEST_F(OnDevice, CallsForOneBatchKeepTheirSession) {
  const Tensor x = pattern({8, 6, 6, 1}, 1), y = spread_labels(8, 5);
  auto run = [&](const char* where) {
    Sequential model = small_net();
    model.compile(
        {.optimizer = Adam(), .loss = "sparse_categorical_crossentropy", .device = where});
    const Bytes before = held();
    std::vector<double> losses;
    for (int i = 0; i < 3; ++i) losses.push_back(model.train_on_batch(x, y).at("loss"));
    EXPECT_EQ(held() > before, std::string(where) != "");
    losses.push_back(model.test_on_batch(x, y).at("loss"));
    model.set_weights(model.get_weights());
    losses.push_back(model.test_on_batch(x, y).at("loss"));
    losses.push_back(model.train_on_batch(x, y).at("loss"));
    losses.push_back(model.predict_on_batch(x).data_as<float>()[3]);
    EXPECT_EQ(model.iterations(), 4);
    return losses;
  };
  const Bytes before = held();
  EXPECT_EQ(run(""), run(kName));
  EXPECT_EQ(held(), before);
}

}  // namespace
}  // namespace pl::test::device_model_test
