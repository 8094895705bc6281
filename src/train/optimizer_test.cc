// Optimisers and schedules against stored answers of Keras (tests/golden/keras_optimizers.py), run
// on values; and what they promise in a planned step.
#include "train/optimizers.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <map>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "base/file.h"
#include "base/json.h"
#include "op/scale.h"
#include "tests/counter_hash.h"
#include "tests/places.h"

namespace pl::optimizer_test {
namespace {

struct Case {
  const char* name;
  std::function<OptimizerRef()> make;
  bool by_norm = false;  // compared as vectors: what is near zero has the errors of what is not
};

OptimizerRef adamw_without_biases() {
  OptimizerRef optimizer = AdamW({.learning_rate = 0.05, .weight_decay = 0.5});
  optimizer->exclude_from_weight_decay({"bias"});
  return optimizer;
}

// As CASES in the script.
const std::vector<Case>& cases() {
  static const std::vector<Case> list = {
      {"sgd", [] { return SGD(); }},
      {"sgd_momentum", [] { return SGD({.learning_rate = 0.1, .momentum = 0.9}); }},
      {"sgd_nesterov",
       [] {
         return SGD(
             {.learning_rate = 0.1, .momentum = 0.8, .nesterov = true, .weight_decay = 0.0078125});
       }},
      {"rmsprop", [] { return RMSprop(); }},
      {"rmsprop_momentum",
       [] { return RMSprop({.learning_rate = 0.01, .rho = 0.8, .momentum = 0.5}); }},
      {"rmsprop_centered",
       [] {
         return RMSprop(
             {.learning_rate = 0.01, .momentum = 0.5, .epsilon = 1e-3, .centered = true});
       }},
      {"adam", [] { return Adam(); }},
      {"adam_amsgrad",
       [] {
         return Adam({.learning_rate = 0.01, .beta_1 = 0.8, .beta_2 = 0.95, .amsgrad = true});
       }},
      {"adamw", [] { return AdamW({.learning_rate = 0.01}); }},
      {"adamw_excluded", adamw_without_biases},
      {"adamax", [] { return Adamax({.learning_rate = 0.01}); }},
      {"nadam", [] { return Nadam({.learning_rate = 0.01}); }},
      {"adagrad", [] { return Adagrad({.learning_rate = 0.05}); }},
      {"adadelta", [] { return Adadelta({.learning_rate = 1.0}); }},
      {"adafactor", [] { return Adafactor(); }},
      {"adafactor_options",
       [] {
         return Adafactor({.learning_rate = 0.1,
                           .beta_2_decay = -0.6,
                           .clip_threshold = 0.5,
                           .weight_decay = 0.0078125,
                           .clipvalue = 0.2});
       }},
      {"lion", [] { return Lion(); }},
      {"lion_options",
       [] {
         return Lion({.learning_rate = 0.01, .beta_1 = 0.7, .beta_2 = 0.9, .weight_decay = 0.125});
       }},
      {"lamb", [] { return Lamb({.learning_rate = 0.01}); }, true},
      {"lamb_options",
       [] { return Lamb({.learning_rate = 0.05, .weight_decay = 0.125, .clipnorm = 0.3}); }, true},
      {"muon", [] { return Muon({.learning_rate = 0.01}); }, true},
      {"muon_options",
       [] {
         return Muon({.learning_rate = 0.02,
                      .exclude_layers = {"tall"},
                      .exclude_embeddings = false,
                      .adam_lr_ratio = 0.5,
                      .ns_steps = 3,
                      .nesterov = false,
                      .rms_rate = {},
                      .weight_decay = {}});
       },
       true},
      {"ftrl", [] { return Ftrl({.learning_rate = 0.1}); }},
      {"ftrl_options",
       [] {
         return Ftrl({.learning_rate = 0.1,
                      .learning_rate_power = -0.7,
                      .l1_regularization_strength = 0.01,
                      .l2_regularization_strength = 0.1,
                      .l2_shrinkage_regularization_strength = 0.05,
                      .beta = 0.2});
       }},
      {"clipnorm", [] { return SGD({.learning_rate = 0.1, .momentum = 0.9, .clipnorm = 0.4}); }},
      {"clipvalue", [] { return RMSprop({.learning_rate = 0.01, .clipvalue = 0.1}); }},
      {"global_clipnorm", [] { return Adam({.learning_rate = 0.01, .global_clipnorm = 0.5}); }},
      {"global_clipnorm_large",
       [] { return SGD({.learning_rate = 0.1, .global_clipnorm = 100.0}); }},
      {"ema", [] { return Adam({.learning_rate = 0.05, .use_ema = true, .ema_momentum = 0.7}); }},
      {"ema_overwrite",
       [] {
         return SGD({.learning_rate = 0.1,
                     .use_ema = true,
                     .ema_momentum = 0.7,
                     .ema_overwrite_frequency = 3});
       }},
      {"accumulation",
       [] { return Adam({.learning_rate = 0.05, .gradient_accumulation_steps = 3}); }},
      {"accumulation_clip",
       [] {
         return Nadam({.learning_rate = 0.05,
                       .weight_decay = 0.125,
                       .global_clipnorm = 0.3,
                       .gradient_accumulation_steps = 3});
       }},
      {"accumulation_ema",
       [] {
         return SGD({.learning_rate = 0.1,
                     .momentum = 0.9,
                     .clipnorm = 0.2,
                     .use_ema = true,
                     .ema_momentum = 0.7,
                     .ema_overwrite_frequency = 2,
                     .gradient_accumulation_steps = 4});
       }},
      {"accumulation_muon",
       [] { return Muon({.learning_rate = 0.05, .gradient_accumulation_steps = 2}); }, true},
      {"accumulation_adafactor",
       [] {
         return Adafactor(
             {.learning_rate = 0.1, .global_clipnorm = 0.5, .gradient_accumulation_steps = 2});
       }},
      {"loss_scale_factor",
       [] { return Adagrad({.learning_rate = 0.1, .loss_scale_factor = 3.0}); }},
      {"schedule",
       [] {
         return Adam({.learning_rate = CosineDecay({.initial_learning_rate = 0.001,
                                                    .decay_steps = 10,
                                                    .alpha = 0.1,
                                                    .warmup_target = 0.05,
                                                    .warmup_steps = 6}),
                      .weight_decay = 0.125});
       }},
      {"accumulation_schedule",
       [] {
         return SGD({.learning_rate = ExponentialDecay(
                         {.initial_learning_rate = 0.1, .decay_steps = 5, .decay_rate = 0.5}),
                     .gradient_accumulation_steps = 2});
       }},
  };
  return list;
}

struct Weight {
  const char* path;
  Shape shape;
};
// As WEIGHTS in the script.
const std::vector<Weight>& weights() {
  static const std::vector<Weight> list = {{"dense/bias", {5}},
                                           {"dense/kernel", {3, 4}},
                                           {"tall/kernel", {5, 3}},
                                           {"conv/kernel", {2, 3, 2, 3}},
                                           {"embedding/embeddings", {4, 2}}};
  return list;
}

const Json& answers() {
  static const Json json = parse_json(
      read_text_file(::pl::test::golden("keras_optimizers.json"), kMiB), "keras_optimizers.json");
  return json;
}

OptimizerState state_of(const Optimizer& optimizer, Dtype dtype) {
  std::vector<Trained> list;
  for (size_t w = 0; w < weights().size(); ++w)
    list.push_back({weights()[w].path,
                    test::hashed_reals(static_cast<uint32_t>(w), {dtype, weights()[w].shape}, 0),
                    {}});
  return initial_state(optimizer, std::move(list));
}

Tensors gradients_at(int64_t step, Dtype dtype) {
  Tensors list;
  for (size_t w = 0; w < weights().size(); ++w)
    list.push_back(test::hashed_reals(static_cast<uint32_t>(100 * step) + static_cast<uint32_t>(w),
                                      {dtype, weights()[w].shape}, -2));
  return list;
}

double number_at(const Tensor& tensor, int64_t i) {
  return tensor.dtype() == Dtype::float64 ? tensor.data_as<double>()[i]
                                          : static_cast<double>(tensor.data_as<float>()[i]);
}

// Of each weight the differences are held against its largest elements, or as a whole.
void expect_close(const OptimizerState& state, const Json& answer, double tolerance, bool by_norm) {
  const Json::Array& values = answer.as_array("weights");
  size_t at = 0;
  for (const Trained& trained : state.weights) {
    const int64_t count = trained.weight.meta().elements();
    double squares = 0, error = 0;
    for (int64_t i = 0; i < count; ++i) {
      const double b = values.at(at + static_cast<size_t>(i)).as_real("weight");
      squares += b * b;
      error += std::pow(number_at(trained.weight, i) - b, 2);
    }
    const double rms = std::sqrt(squares / static_cast<double>(count));
    if (by_norm) {
      EXPECT_LE(std::sqrt(error), tolerance * std::sqrt(squares)) << trained.path;
    } else {
      for (int64_t i = 0; i < count; ++i) {
        const double b = values[at + static_cast<size_t>(i)].as_real("weight");
        EXPECT_NEAR(number_at(trained.weight, i), b, tolerance * std::max(std::fabs(b), rms))
            << trained.path << "[" << i << "]";
      }
    }
    at += static_cast<size_t>(count);
  }
  EXPECT_EQ(at, values.size());
}

class KerasOptimizer : public ::testing::TestWithParam<Case> {
 protected:
  CpuBackend backend_{2};
  BackendScope scope_{backend_};
};

TEST_P(KerasOptimizer, TwentyStepsAgree) {
  const Json& answer = answers().at("cases", "answers").at(GetParam().name, "case");
  for (Dtype dtype : {Dtype::float64, Dtype::float32}) {
    SCOPED_TRACE(name_of(dtype));
    const OptimizerRef optimizer = GetParam().make();
    OptimizerState state = state_of(*optimizer, dtype);
    for (int64_t i = 0; i < 20; ++i)
      apply_gradients(*optimizer, state, gradients_at(i + 1, dtype), i);
    if (std::string(GetParam().name) == "ema")
      for (Trained& trained : state.weights) trained.weight = trained.slots.back();
    expect_close(state, answer.at(name_of(dtype), "dtype"), dtype == Dtype::float64 ? 1e-10 : 1e-5,
                 GetParam().by_norm);
  }
}

INSTANTIATE_TEST_SUITE_P(Cases, KerasOptimizer, ::testing::ValuesIn(cases()),
                         [](const auto& info) { return std::string(info.param.name); });

TEST(LossScale, SkipsHalvesAndRecoversAsKeras) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  const Json& answer = answers().at("overflow", "answers");
  for (Dtype dtype : {Dtype::float64, Dtype::float32}) {
    const OptimizerRef optimizer = LossScaleOptimizer(
        Adam({.learning_rate = ExponentialDecay(
                  {.initial_learning_rate = 0.1, .decay_steps = 5, .decay_rate = 0.5})}),
        {.initial_scale = 64, .dynamic_growth_steps = 4});
    OptimizerState state = state_of(*optimizer, dtype);
    for (int64_t step = 1; step <= 20; ++step) {
      const double scale = number_at(state.shared[0], 0);
      EXPECT_EQ(number_at(optimizer->seed(state, dtype), 0), scale);
      Tensors gradients = gradients_at(step, dtype);
      const std::vector<Trained> before = state.weights;
      for (size_t w = 0; w < gradients.size(); ++w) {
        const bool bad =
            (step == 3 || step == 4 || step == 13) && w == static_cast<size_t>(step) % 5;
        const double factor = scale * (bad ? std::numeric_limits<double>::infinity() : 1.0);
        gradients[w] = pl::scale(gradients[w], factor);
      }
      apply_gradients(*optimizer, state, gradients, step - 1);
      EXPECT_EQ(number_at(state.shared[0], 0),
                answer.at("scales", "overflow")
                    .as_array("scales")[static_cast<size_t>(step) - 1]
                    .as_real("scale"))
          << "step " << step;
      for (size_t w = 0; step == 3 && w < before.size(); ++w)
        for (size_t s = 0; s < before[w].slots.size(); ++s)
          EXPECT_EQ(std::memcmp(before[w].slots[s].data(), state.weights[w].slots[s].data(),
                                static_cast<size_t>(before[w].slots[s].meta().bytes())),
                    0)
              << "a skipped step leaves every bit";
    }
    expect_close(state, answer.at(name_of(dtype), "overflow"),
                 dtype == Dtype::float64 ? 1e-10 : 1e-5, false);
  }
}

TEST(Schedule, AgreesWithKeras) {
  const std::map<std::string, ScheduleRef> schedules{
      {"exponential", ExponentialDecay({0.1, 7, 0.9})},
      {"exponential_staircase", ExponentialDecay({0.1, 7, 0.9, true})},
      {"piecewise", PiecewiseConstantDecay({{5, 11}, {1.0, 0.5, 0.1}})},
      {"polynomial", PolynomialDecay({0.1, 20, 0.01, 0.5})},
      {"polynomial_cycle",
       PolynomialDecay(
           {.initial_learning_rate = 0.1, .decay_steps = 7, .power = 2.0, .cycle = true})},
      {"inverse_time", InverseTimeDecay({0.1, 7, 0.5})},
      {"inverse_time_staircase", InverseTimeDecay({0.1, 7, 0.5, true})},
      {"cosine", CosineDecay({0.1, 20, 0.05})},
      {"cosine_warmup", CosineDecay({.initial_learning_rate = 0.0,
                                     .decay_steps = 20,
                                     .warmup_target = 0.1,
                                     .warmup_steps = 8})},
      {"restarts", CosineDecayRestarts({0.1, 7, 1.5, 0.8, 0.01})},
      {"restarts_equal", CosineDecayRestarts({0.1, 9, 1.0, 0.9})}};
  const Json& answer = answers().at("schedules", "answers");
  ASSERT_EQ(answer.as_object("schedules").size(), schedules.size());
  for (const auto& [name, schedule] : schedules) {
    const Json::Array& values = answer.at(name, "schedule").as_array(name);
    for (size_t step = 0; step < values.size(); ++step)
      EXPECT_NEAR(schedule->at(static_cast<int64_t>(step)), values[step].as_real(name), 1e-12)
          << name << " at step " << step;
  }
}

// Keras's own weights become NaN here.
TEST(Adafactor, TakesGradientsWithDeadRowsAndColumns) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  Tensor gradient({Dtype::float32, {3, 4}});
  for (int64_t i = 0; i < 12; ++i)
    gradient.data_as<float>()[i] = i / 4 == 1 || i % 4 == 2 ? 0.0f : 1e-3f;
  const OptimizerRef optimizer = Adafactor();
  OptimizerState state =
      initial_state(*optimizer, {{"w", test::hashed_reals(1, {Dtype::float32, {3, 4}}, 0), {}}});
  const Tensor before = state.weights[0].weight;
  apply_gradients(*optimizer, state, {gradient}, 0);
  for (int64_t i = 0; i < 12; ++i) {
    EXPECT_TRUE(std::isfinite(number_at(state.weights[0].weight, i))) << i;
    EXPECT_EQ(number_at(state.weights[0].weight, i) == number_at(before, i),
              number_at(gradient, i) == 0)
        << i;
  }
}

template <class F>
std::string message_of(const F& body) {
  try {
    body();
  } catch (const UserError& error) {
    return error.what();
  }
  return "no error";
}

TEST(Optimizer, RefusesOptionsThatContradict) {
  EXPECT_EQ(message_of([] { Adam({.clipnorm = 1.0, .global_clipnorm = 1.0}); }),
            "[compile] adam: expected one of clipnorm, clipvalue and global_clipnorm at most, "
            "received 2");
  EXPECT_EQ(message_of([] { SGD({.gradient_accumulation_steps = 1}); }),
            "[compile] sgd gradient_accumulation_steps: expected 2 or more, or none, received 1");
  EXPECT_EQ(message_of([] { AdamW({.weight_decay = {}}); }),
            "[compile] AdamW weight_decay: expected a number, received none");
  EXPECT_NE(
      message_of([] { optimizer_from_name("nosuch"); }).find("rmsprop, sgd, received 'nosuch'"),
      std::string::npos);
  EXPECT_NE(message_of([] {
              PiecewiseConstantDecay({{1}, {0.5}});
            }).find("expected one value more than boundaries, received 1 and 1"),
            std::string::npos);
}

}  // namespace
}  // namespace pl::optimizer_test
