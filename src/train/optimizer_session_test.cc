// Optimisers in planned steps: the same bits at every budget, the arena as planned, gradients that
// add up, loss scaling.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "model/layers.h"
#include "tensor/float16.h"
#include "tests/counter_hash.h"
#include "train/model.h"
#include "train/session.h"

namespace pl::optimizer_session_test {
namespace {

constexpr int64_t kBatch = 40960;  // activations are most of the arena
constexpr int kSteps = 4;

struct Case {
  const char* name;
  OptimizerRef (*make)();
  Policy dtype = Dtype::float32;
};
void PrintTo(const Case& c, std::ostream* out) { *out << c.name; }

const Case kCases[] = {
    {"SGD", [] { return SGD({.momentum = 0.9, .nesterov = true}); }},
    {"RMSprop", [] { return RMSprop({.momentum = 0.5, .centered = true}); }},
    {"Adam", [] { return Adam(); }},
    {"Amsgrad", [] { return Adam({.amsgrad = true}); }},
    {"AdamW", [] { return AdamW(); }},
    {"Adamax", [] { return Adamax(); }},
    {"Nadam", [] { return Nadam(); }},
    {"Adagrad", [] { return Adagrad(); }},
    {"Adadelta", [] { return Adadelta(); }},
    {"Adafactor", [] { return Adafactor(); }},
    {"Ftrl", [] { return Ftrl(); }},
    {"Lion", [] { return Lion(); }},
    {"Lamb", [] { return Lamb(); }},
    {"Muon", [] { return Muon(); }},
    {"Clipnorm", [] { return SGD({.clipnorm = 0.01}); }},
    {"GlobalClipnorm", [] { return Lamb({.global_clipnorm = 0.1}); }},
    {"Ema", [] { return Adam({.use_ema = true, .ema_overwrite_frequency = 2}); }},
    {"Accumulation",
     [] { return Muon({.clipnorm = 0.1, .use_ema = true, .gradient_accumulation_steps = 2}); }},
    {"LossScale", [] { return LossScaleOptimizer(Nadam(), {.dynamic_growth_steps = 2}); }},
    {"MixedFloat16", [] { return LossScaleOptimizer(Adam({.gradient_accumulation_steps = 2})); },
     kMixedFloat16},
};

Network deep() {
  std::vector<LayerRef> layers;
  for (int i = 0; i < 6; ++i) layers.push_back(Dense(16, {.activation = "tanh"}));
  layers.push_back(Dense(5, {.activation = "softmax"}));
  return chain(Shape{8}, layers);
}

struct Outcome {
  uint64_t hash;
  Bytes arena, used;
  double loss;
  int64_t recomputed;
};

class OptimizerSession : public ::testing::TestWithParam<Case> {
 protected:
  SessionPlan plan(std::optional<Bytes> budget) {
    const Compiled compiled{
        GetParam().make(), loss_from_name("sparse_categorical_crossentropy"), {}, GetParam().dtype};
    std::vector<Signature> signatures{{StepKind::train, kBatch}};
    if (accumulation_of(compiled) > 0) signatures.push_back({StepKind::train, kBatch, true});
    return plan_session(
        network_, compiled, backend_, signatures,
        {.x = {{Dtype::float32, Shape{8}}}, .y = {{Dtype::int32, Shape{}}}}, 0, nullptr,
        {.budget = budget, .switches = {.split = 1}, .all = !budget, .memory = memory_});
  }

  Outcome run(SessionPlan plan) {
    Outcome outcome{.hash = 0,
                    .arena = plan.arena,
                    .used = 0,
                    .loss = 0,
                    .recomputed = plan.prepared[0].plan.recomputed.values};
    Session session(std::move(plan), network_, 3);
    for (int step = 0; step < kSteps; ++step) {
      const UpdateMoment moment = update_moment(session, step);
      const size_t signature = moment.accumulate ? 1 : 0;
      const auto salt = static_cast<uint32_t>(step);
      const Tensor x = test::hashed_reals(salt, {Dtype::float32, {kBatch, 8}}, 0);
      const Tensor y = test::hashed_integers(salt + 50, {kBatch}, 5);
      std::memcpy(session.input(signature, 0), x.data(), static_cast<size_t>(x.meta().bytes()));
      std::memcpy(session.input(signature, 1), y.data(), static_cast<size_t>(y.meta().bytes()));
      StepParams params{.step = step + 1,
                        .seed = 3,
                        .learning_rate = moment.learning_rate,
                        .update = moment.update,
                        .rows = kBatch};
      session.run(signature, params);
      outcome.loss = kept_scalar(session, signature, 0);
    }
    EXPECT_EQ(session.variables().first_non_finite(), "");
    outcome.hash = session.variables().hash(false);
    outcome.used = session.used_bytes();
    return outcome;
  }

  CpuBackend backend_{2};
  BackendScope scope_{backend_};
  Network network_ = deep();
  std::shared_ptr<PlanMemory> memory_ = std::make_shared<PlanMemory>(backend_);
};

TEST_P(OptimizerSession, GivesTheSameBitsAtEveryBudget) {
  const SessionPlan all = plan(std::nullopt);
  const Bytes most = all.unlimited.process(), least = all.frontier.back().process();
  ASSERT_LT(least, most);
  const Outcome whole = run(plan(most));
  EXPECT_EQ(whole.recomputed, 0);
  EXPECT_EQ(whole.used, whole.arena);
  EXPECT_TRUE(std::isfinite(whole.loss));
  for (Bytes budget : {least, (least + most) / 2}) {
    const Outcome outcome = run(plan(budget));
    EXPECT_GT(outcome.recomputed, 0);
    EXPECT_EQ(outcome.hash, whole.hash);
    EXPECT_EQ(outcome.used, outcome.arena);
  }
}

INSTANTIATE_TEST_SUITE_P(Optimizers, OptimizerSession, ::testing::ValuesIn(kCases),
                         [](const auto& info) { return std::string(info.param.name); });

Sequential wide(const OptimizerRef& optimizer, Policy dtype = Dtype::float32) {
  Sequential model(Shape{64}, {Dense(256, {.activation = "relu"}), Dense(256), Dense(8)});
  model.compile({.optimizer = optimizer,
                 .loss = Loss{"sparse_categorical_crossentropy", true},
                 .dtype = dtype});
  return model;
}

// What clipping by the norm of all gradients costs: none dies before the last is known.
TEST(OptimizerPlan, ShowsThatAGlobalNormHoldsAllGradients) {
  constexpr Bytes kOne = Bytes{4} * 256 * 256;
  auto arena = [&](const OptimizerRef& optimizer) {
    std::vector<LayerRef> layers;
    for (int i = 0; i < 6; ++i) layers.push_back(Dense(256));
    Sequential model(Shape{256}, layers);
    model.compile({.optimizer = optimizer, .loss = "mse"});
    return model.plan(FitOptions{.batch_size = 4, .split = 1, .threads = 1}).arena;
  };
  const Bytes plain = arena(Lion()), each = arena(Lion({.clipnorm = 1.0}));
  EXPECT_LE(each, plain + 16 * kKiB);
  EXPECT_GE(arena(Lion({.global_clipnorm = 1.0})), plain + 4 * kOne);
  EXPECT_LE(arena(Lamb()), arena(Adam()) + 16 * kKiB) << "no temporaries for its norms";
}

TEST(OptimizerPlan, HasTheSlotsOnItsBill) {
  auto persistent = [&](const OptimizerRef& optimizer) {
    return wide(optimizer).plan(FitOptions{.batch_size = 4, .threads = 1}).persistent;
  };
  const Bytes plain = persistent(SGD());
  const Bytes once = Bytes{4} * (64 * 256 + 256 + 256 * 256 + 256 + 256 * 8 + 8);
  EXPECT_GE(persistent(SGD({.gradient_accumulation_steps = 4})), plain + once);
  EXPECT_GE(persistent(SGD({.use_ema = true})), plain + once);
  EXPECT_LT(persistent(SGD({.use_ema = true})), plain + once + 4 * kKiB);
}

struct Samples {
  Tensor x = test::hashed_reals(1, {Dtype::float32, {40, 64}}, 0);
  Tensor y = test::hashed_integers(2, {40}, 8);
};

void expect_near(const Tensors& a, const Tensors& b, float tolerance) {
  ASSERT_EQ(a.size(), b.size());
  for (size_t w = 0; w < a.size(); ++w)
    for (int64_t i = 0; i < a[w].meta().elements(); ++i)
      ASSERT_NEAR(a[w].data_as<float>()[i], b[w].data_as<float>()[i], tolerance)
          << "weight " << w << "[" << i << "]";
}

// The sum that is thrown away in every step is the classic mistake.
TEST(GradientAccumulation, EqualsTheBigBatch) {
  const Samples data;
  Sequential small = wide(Adam({.learning_rate = 0.01, .gradient_accumulation_steps = 4}));
  Sequential big = wide(Adam({.learning_rate = 0.01}));
  const History history =
      small.fit(data.x, data.y, {.batch_size = 5, .epochs = 3, .verbose = 0, .shuffle = false});
  big.fit(data.x, data.y, {.batch_size = 20, .epochs = 3, .verbose = 0, .shuffle = false});
  EXPECT_EQ(history.used_arena, history.planned_arena);
  EXPECT_EQ(small.iterations(), 6);  // updates, as Keras counts them
  expect_near(small.get_weights(), big.get_weights(), 2e-5f);
}

TEST(GradientAccumulation, GoesOnInTheNextFit) {
  const Samples data;
  const OptimizerRef optimizer = SGD({.learning_rate = 0.1, .gradient_accumulation_steps = 3});
  Sequential one = wide(optimizer), two = wide(optimizer);
  const FitOptions options{.batch_size = 8, .epochs = 1, .verbose = 0, .shuffle = false};
  FitOptions both = options;
  both.epochs = 2;
  one.fit(data.x, data.y, both);  // 10 steps: the fifth and the tenth are in the middle
  two.fit(data.x, data.y, options);
  two.fit(data.x, data.y, options);
  expect_near(one.get_weights(), two.get_weights(), 0);
}

TEST(MovingAverage, TakesTheWeightsPlaceAfterFit) {
  const Samples data;
  const FitOptions options{.batch_size = 40, .epochs = 3, .verbose = 0, .shuffle = false};
  // Of momentum 0 the average is the weight itself; of 1, the first step's.
  Sequential plain = wide(SGD({.learning_rate = 0.1})), none = wide(SGD({.learning_rate = 0.1}));
  Sequential same = wide(SGD({.learning_rate = 0.1, .use_ema = true, .ema_momentum = 0}));
  Sequential first = wide(SGD({.learning_rate = 0.1, .use_ema = true, .ema_momentum = 1}));
  plain.fit(data.x, data.y, options);
  same.fit(data.x, data.y, options);
  first.fit(data.x, data.y, options);
  FitOptions once = options;
  once.epochs = 1;
  none.fit(data.x, data.y, once);
  expect_near(same.get_weights(), plain.get_weights(), 0);
  expect_near(first.get_weights(), none.get_weights(), 0);
}

TEST(MixedFloat16, RecoversFromAScaleThatOverflows) {
  const Samples data;
  const OptimizerRef optimizer = LossScaleOptimizer(Adam(), {.initial_scale = 0x1p40});
  Sequential model = wide(optimizer, kMixedFloat16);
  const Tensors before = model.get_weights();
  const FitOptions options{.batch_size = 40, .epochs = 1, .verbose = 0, .shuffle = false};
  model.fit(data.x, data.y, options);
  expect_near(model.get_weights(), before, 0);  // skipped
  FitOptions more = options;
  more.epochs = 60;
  const History history = model.fit(data.x, data.y, more);
  const std::vector<double>& losses = history.history.at("loss");
  EXPECT_EQ(losses[1], losses[0]) << "skipped as well";
  EXPECT_LT(losses.back(), 0.5 * losses.front());
}

TEST(MixedFloat16, TrainsNearlyAsFloat32) {
  const Samples data;
  const FitOptions options{.batch_size = 10, .epochs = 5, .verbose = 0};
  Sequential narrow = wide(Adam(), kMixedFloat16), full = wide(Adam());
  const History a = narrow.fit(data.x, data.y, options), b = full.fit(data.x, data.y, options);
  EXPECT_EQ(a.used_arena, a.planned_arena);
  for (size_t e = 0; e < 5; ++e)
    EXPECT_NEAR(a.history.at("loss")[e] / b.history.at("loss")[e], 1, 0.01);
}

}  // namespace
}  // namespace pl::optimizer_session_test
