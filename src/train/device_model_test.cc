// Eager values, tapes, functions and models on a device that is not the host: the bits are the
// processor's, since the device of these tests runs its kernels.
#include <gtest/gtest.h>

#include <cstdlib>
#include <cstring>
#include <filesystem>

#include "backend/devices.h"
#include "plimsoll.h"
#include "tests/eager_runs.h"
#include "tests/fake_device.h"
#include "tests/patterns.h"

namespace pl::device_model_test {
namespace {

using test::pattern;
using test::same_bits;

constexpr const char* kName = "cuda:40";

class OnDevice : public ::testing::Test {
 protected:
  OnDevice()
      : space_(Devices::current()->share(device_from_name(kName),
                                         std::make_shared<test::FakeDevice>())) {
    ::setenv("PLIMSOLL_COSTS", "nominal", 1);
  }
  Bytes held() const { return space_->backend().held(); }
  std::shared_ptr<DeviceSpace> space_;
};

Tensor labels(Dim count, int64_t below) {
  Tensor y({Dtype::int32, {count}});
  for (int64_t i = 0; i < count; ++i)
    y.data_as<int32_t>()[i] = static_cast<int32_t>(i * 7919 % below);
  return y;
}

TEST_F(OnDevice, ValuesStayThereUntilTheyAreRead) {
  Runtime runtime({.threads = 1});
  const Tensor x = pattern({64, 32}, 1), w = pattern({32, 16}, 2);
  const Tensor here = tanh(matmul(x, w));
  Tensor there;
  {
    const auto scope = device(kName);
    there = tanh(matmul(x, w));
  }
  EXPECT_EQ(there.buffer()->space(), space_);
  EXPECT_TRUE(same_bits(here, there));
  EXPECT_EQ(there.data(), there.data()) << "one copy";
  // Without a scope an op runs where its operands are, in one for the processor there.
  EXPECT_EQ(square(there).buffer()->space(), space_);
  const auto scope = device("cpu");
  EXPECT_EQ(square(there).buffer()->space(), nullptr);
  EXPECT_TRUE(same_bits(square(there), square(here)));
}

TEST_F(OnDevice, MemoryIsHardAndGoesBack) {
  const Bytes before = held();
  {
    Runtime runtime({.threads = 1, .device_memory = "16MiB"});
    const auto scope = device(kName);
    Tensors values;
    for (int i = 0; i < 3; ++i) values.push_back(fill({1024, 1024}, i));  // 4 MiB each
    std::vector<Tensor> small;
    for (int i = 0; i < 100; ++i) small.push_back(fill({7}, i));
    for (int i = 0; i < 100; ++i) EXPECT_EQ(small[static_cast<size_t>(i)].data_as<float>()[6], i);
    EXPECT_LE(held() - before, 16 * kMiB + 32 * kKiB);
    EXPECT_EQ(runtime.device_memory().used, 14 * kMiB);
    try {
      fill({1024, 1024}, 9);
      ADD_FAILURE() << "nothing thrown";
    } catch (const DoesNotFit& error) {
      EXPECT_NE(std::string(error.what()).find("device_memory = 16.0 MiB"), std::string::npos)
          << error.what();
    }
    values.pop_back();
    EXPECT_EQ(fill({1024, 1024}, 9).data_as<float>()[5], 9);
  }
  EXPECT_EQ(held(), before);
}

TEST_F(OnDevice, TapesAndOptimisersHaveTheBitsOfTheProcessor) {
  auto train = [&](const char* where) {
    Runtime runtime({.threads = 1});
    const auto scope = device(where);
    const Variable w(pattern({8, 4}, 1), {.name = "w"}), b(fill({4}, 0.1), {.name = "b"});
    const auto adam = Adam({.learning_rate = 0.01});
    const Tensor x = pattern({16, 8}, 2), kept = w.value();
    for (int step = 0; step < 5; ++step) {
      GradientTape tape;
      const Tensor loss = reduce_mean(square(tanh(matmul(x, w, {}, b))));
      const Tensors g = tape.gradient(loss, {w, b});
      adam->apply_gradients({{g[0], w}, {g[1], b}});
      w.assign_add(scale(g[0], 0.5));
    }
    EXPECT_TRUE(same_bits(kept, pattern({8, 4}, 1))) << "what was read stays as it was";
    EXPECT_EQ(w.value().buffer()->space() != nullptr, std::string(where) != "cpu");
    Tensor copy(w.meta());
    std::memcpy(copy.data(), w.value().data(), static_cast<size_t>(w.meta().bytes()));
    EXPECT_EQ(adam->iterations(), 5);
    return copy;
  };
  EXPECT_TRUE(same_bits(train("cpu"), train(kName)));
}

TEST_F(OnDevice, FunctionsRunThere) {
  auto train = [&](const char* where) {
    Runtime runtime({.threads = 1});
    const auto scope = device(where);
    const Variable w(pattern({8, 4}, 1), {.name = "w"});
    const Tensor constant = pattern({16, 4}, 3);
    const auto adam = Adam({.learning_rate = 0.01});
    auto step = pl::function([&](const Tensor& x) {
      GradientTape tape;
      const Tensor loss = reduce_mean(square(subtract(tanh(matmul(x, w)), constant)));
      adam->apply_gradients({{tape.gradient(loss, {w})[0], w}});
      return Tensors{loss, w.value()};
    });
    Tensors last;
    for (int i = 0; i < 4; ++i) last = step(pattern({16, 8}, i));
    EXPECT_EQ(last[0].buffer()->space() != nullptr, std::string(where) != "cpu");
    Tensors copies;
    for (const Tensor& value : last)
      std::memcpy(copies.emplace_back(value.meta()).data(), value.data(),
                  static_cast<size_t>(value.meta().bytes()));
    EXPECT_EQ(step.traces(), 1);
    return copies;
  };
  const Tensors cpu = train("cpu"), there = train(kName);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(same_bits(cpu[i], there[i]));

  Runtime runtime({.threads = 1});
  const Variable host(pattern({8, 4}, 1), {.name = "host"});
  auto wrong = pl::function([&](const Tensor& x) { return matmul(x, host); });
  const auto scope = device(kName);
  EXPECT_THROW(wrong(pattern({16, 8}, 1)), UserError);
}

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
  const Tensor x = pattern({40, 6, 6, 1}, 1), y = labels(40, 5);
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
  const Tensor x = pattern({16, 6, 6, 1}, 1), y = labels(16, 5);
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
    const Tensor x = pattern({8, 6, 6, 1}, 1), y = labels(8, 5);
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
  const Tensor x = pattern({8, 6, 6, 1}, 1), y = labels(8, 5);
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

TEST_F(OnDevice, ActivationsLeaveForTheHostWhereTheBudgetAsksForIt) {
  const Tensor x = pattern({64, 32, 32, 3}, 1), y = labels(64, 10);
  auto model_of = [&] {
    std::vector<LayerRef> layers;
    for (int i = 0; i < 6; ++i) layers.push_back(Conv2D(16, {3, 3}, {.activation = "tanh"}));
    layers.insert(layers.end(), {Flatten(), Dense(10, {.activation = "softmax"})});
    Sequential model(Shape{32, 32, 3}, layers);
    model.compile({.optimizer = SGD(), .loss = "sparse_categorical_crossentropy", .device = kName});
    return model;
  };
  FitOptions options{.batch_size = 64, .epochs = 2, .verbose = 0};
  options.recompute = false;
  options.split = 1;
  options.threads = 1;
  Sequential whole = model_of();
  const PlanReport unlimited = whole.plan(x, y, options);
  EXPECT_EQ(unlimited.away, 0);
  whole.fit(x, y, options);
  options.memory = unlimited.process - kMiB;
  options.offload = false;
  EXPECT_THROW(model_of().fit(x, y, options), DoesNotFit);
  options.offload = true;
  Sequential some = model_of();
  const PlanReport plan = some.plan(x, y, options);
  EXPECT_LE(plan.process, unlimited.process - kMiB);
  EXPECT_GT(plan.away, kMiB);
  some.fit(x, y, options);
  const Tensors a = whole.get_weights(), b = some.get_weights();
  for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i]));
  options.host_memory = "1MiB";
  EXPECT_THROW(model_of().fit(x, y, options), DoesNotFit);
}

TEST_F(OnDevice, OptimiserStateLiesOnTheHostWhereTheBudgetAsksForIt) {
  const Tensor x = pattern({64, 256}, 1), y = labels(64, 10);
  auto model_of = [&] {
    Sequential model(Shape{256},
                     {Dense(1024, {.activation = "relu"}), Dense(10, {.activation = "softmax"})});
    model.compile(
        {.optimizer = Adam(), .loss = "sparse_categorical_crossentropy", .device = kName});
    return model;
  };
  FitOptions options{.batch_size = 32, .epochs = 2, .verbose = 0};
  options.split = 1;
  options.threads = 1;
  Sequential all = model_of(), some = model_of();
  options.recompute = false;
  options.offload = false;
  all.fit(x, y, options);
  const FitOptions free = options;
  const Bytes least = some.plan(x, y, options).process;
  options.memory = least - kMiB;
  EXPECT_THROW(model_of().fit(x, y, options), DoesNotFit);
  options.offload = true;
  const PlanReport plan = some.plan(x, y, options);
  EXPECT_LE(plan.process, least - kMiB);
  EXPECT_GE(plan.host, kMiB);
  const Bytes before = held();
  some.fit(x, y, options);
  EXPECT_LE(held() - before, plan.arena - plan.host);
  auto same = [&] {
    const Tensors a = all.get_weights(), b = some.get_weights();
    for (size_t i = 0; i < a.size(); ++i) EXPECT_TRUE(same_bits(a[i], b[i])) << i;
  };
  same();
  // The state stays there for other calls, and goes where the next training wants it.
  EXPECT_EQ(some.evaluate(x, y), all.evaluate(x, y));
  EXPECT_TRUE(same_bits(some.predict(x), all.predict(x)));
  EXPECT_EQ(some.plan(x, y, free).host, 0);
  some.fit(x, y, free);
  all.fit(x, y, free);
  same();
  some.fit(x, y, options);
  all.fit(x, y, free);
  same();
}

TEST_F(OnDevice, WeightsOutliveADeviceThatHasNoRoomForThem) {
  const Tensor x = pattern({32, 16}, 1), y = labels(32, 4);
  Sequential model(Shape{16}, {Dense(8, {.activation = "relu"}), Dense(4)});
  const auto loss = losses::SparseCategoricalCrossentropy({.from_logits = true});
  model.compile({.optimizer = SGD(), .loss = loss, .device = kName});
  model.fit(x, y, {.epochs = 1, .verbose = 0});
  const Tensors before = model.get_weights();
  model.compile({.optimizer = Adam(), .loss = loss, .device = kName});
  // Neither the larger layout nor the old one again: somebody else was quicker.
  static_cast<test::FakeDevice&>(space_->backend()).refusals = 2;
  EXPECT_THROW(model.fit(x, y, {.epochs = 1, .verbose = 0}), DoesNotFit);
  const Tensors after = model.get_weights();
  for (size_t i = 0; i < before.size(); ++i) EXPECT_TRUE(same_bits(before[i], after[i])) << i;
  EXPECT_TRUE(std::isfinite(model.evaluate(x, y)["loss"]));
  model.fit(x, y, {.epochs = 1, .verbose = 0});
}

TEST_F(OnDevice, KeptPlansMakeRoomForModelsThatCameSince) {
  const Tensor x = pattern({64, 64}, 1), y = labels(64, 4);
  auto model_of = [&](int64_t units) {
    Sequential model(Shape{64}, {Dense(units, {.activation = "tanh"}), Dense(4)});
    model.compile({.optimizer = SGD(),
                   .loss = losses::SparseCategoricalCrossentropy({.from_logits = true}),
                   .device = kName});
    return model;
  };
  Sequential model = model_of(512), other = model_of(1 << 16);
  FitOptions options{.batch_size = 64, .epochs = 1, .verbose = 0};
  options.memory = model.plan(x, y, options).process + 8 * kMiB;
  model.fit(x, y, options);
  other.fit(x, y, {.batch_size = 64, .epochs = 1, .verbose = 0});
  EXPECT_GT(held(), *options.memory.bytes()) << "of the other one's weights";
  EXPECT_THROW(model.fit(x, y, options), DoesNotFit);
  options.memory = held() + 8 * kMiB;
  model.fit(x, y, options);
}

class Penalised : public Sequential {
 public:
  Penalised() : Sequential(Shape{4}, {Dense(8, {.activation = "tanh"}), Dense(1)}) {}
  TensorLogs train_step(const StepData& data) override {
    const std::vector<Variable> weights = trainable_variables();
    GradientTape tape;
    const Tensor loss = pl::add(compute_loss(data, (*this)(data.x(), true)),
                                scale(reduce_sum(square(weights[0])), 0.01));
    const Tensors g = tape.gradient(loss, weights);
    GradientsAndVariables list;
    for (size_t i = 0; i < g.size(); ++i) list.emplace_back(g[i], weights[i]);
    optimizer().apply_gradients(list);
    return {{"loss", loss}};
  }
};

TEST_F(OnDevice, StepsOfOnesOwn) {
  auto run = [&](const char* where) {
    Penalised model;
    model.compile({.optimizer = Adam(), .loss = "mse", .device = where});
    model.fit(pattern({16, 4}, 1), pattern({16, 1}, 2),
              {.batch_size = 8, .epochs = 2, .verbose = 0, .threads = 1});
    return model.get_weights();
  };
  const Tensors cpu = run(""), there = run(kName);
  for (size_t i = 0; i < cpu.size(); ++i) EXPECT_TRUE(same_bits(cpu[i], there[i]));
}

TEST_F(OnDevice, StepsOpByOp) {
  const Bytes before = held();
  for (const test::EagerCase& of : test::eager_cases()) {
    test::expect_eager_is_planned(of, kName);
    SCOPED_TRACE(of.name);
    CompileOptions compile = of.compile;
    const test::EagerRun here = test::run_steps(of.make(), compile, of.x, of.y, true);
    compile.device = kName;
    const test::EagerRun there = test::run_steps(of.make(), compile, of.x, of.y, true);
    EXPECT_EQ(here.history.history, there.history.history);
    test::expect_same_bits(here.weights, there.weights);
  }
  EXPECT_EQ(held(), before);
}

TEST_F(OnDevice, StepsOpByOpStayWithinTheBudget) {
  auto make = [] {
    Sequential model(Shape{256}, {Dense(1024, {.activation = "gelu"}),
                                  Dense(1024, {.activation = "gelu"}), Dense(3)});
    model.compile({.optimizer = SGD(), .loss = "mse", .run_eagerly = true, .device = kName});
    return model;
  };
  const Tensor x = pattern({2048, 256}, 1), y = pattern({2048, 3}, 2);
  FitOptions options{.batch_size = 2048, .verbose = 0, .threads = 1};
  const History free = make().fit(x, y, options);
  EXPECT_LE(free.used_arena, free.planned_arena);
  const Bytes fixed = free.planned_process - free.planned_arena;
  options.memory = fixed + free.used_arena + 8 * kMiB;
  const History tight = make().fit(x, y, options);
  EXPECT_LE(tight.planned_process, *options.memory.bytes());
  EXPECT_LE(tight.measured_process, tight.planned_process);
  EXPECT_EQ(tight.history, free.history);
  options.memory = fixed + free.used_arena - 8 * kMiB;
  EXPECT_THROW(make().fit(x, y, options), DoesNotFit);
}

// Those who were made on their own find the same device by its name, while one of them lives.
TEST_F(OnDevice, OfOneNameIsOpenOnce) {
  const Device one = device_from_name(kName);
  EXPECT_EQ(Devices::current()->open(one), space_);
  Runtime runtime({.threads = 1});
  EXPECT_EQ(device(kName).space(), space_);
  const auto others = std::make_shared<Devices>();
  const auto same_name = others->share(one, std::make_shared<test::FakeDevice>());
  EXPECT_EQ(others->open(one), same_name);
  EXPECT_EQ(Devices::current()->open(one), space_);
}

TEST(NoDevice, IsSaidWithARemedy) {
  Sequential model(Shape{4}, {Dense(3)});
  try {
    model.compile({.loss = "mse", .device = "cuda:63"});
    ADD_FAILURE() << "nothing thrown";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("compile({.device = \"cpu\"})"), std::string::npos)
        << error.what();
  }
}

}  // namespace
}  // namespace pl::device_model_test
