#include "train/schedule.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>

#include "base/error.h"
#include "base/number_text.h"

namespace pl {
namespace {

// A schedule that is a plain function of the step.
template <class F>
class FunctionSchedule final : public LearningRateSchedule {
 public:
  explicit FunctionSchedule(F function) : function_(std::move(function)) {}
  double at(int64_t step) const override { return function_(static_cast<double>(step)); }

 private:
  F function_;
};

template <class F>
ScheduleRef schedule(F function) {
  return std::make_shared<FunctionSchedule<F>>(std::move(function));
}

void expect_positive(const char* what, double value) {
  if (!(value > 0))
    throw UserError("[compile] " + std::string(what) + ": expected a number above 0, received " +
                    number_text(value));
}

double cosine(double fraction) { return 0.5 * (1 + std::cos(std::numbers::pi * fraction)); }

}  // namespace

ScheduleRef ExponentialDecay(ExponentialDecayOptions o) {
  expect_positive("ExponentialDecay decay_steps", o.decay_steps);
  return schedule([o](double step) {
    const double p = step / o.decay_steps;
    return o.initial_learning_rate * std::pow(o.decay_rate, o.staircase ? std::floor(p) : p);
  });
}

ScheduleRef PiecewiseConstantDecay(PiecewiseConstantDecayOptions o) {
  if (o.boundaries.size() + 1 != o.values.size())
    throw UserError(
        "[compile] PiecewiseConstantDecay: expected one value more than boundaries, received " +
        std::to_string(o.values.size()) + " and " + std::to_string(o.boundaries.size()));
  return schedule([o = std::move(o)](double step) {
    size_t i = 0;
    while (i < o.boundaries.size() && step > static_cast<double>(o.boundaries[i])) ++i;
    return o.values[i];
  });
}

ScheduleRef PolynomialDecay(PolynomialDecayOptions o) {
  expect_positive("PolynomialDecay decay_steps", o.decay_steps);
  return schedule([o](double step) {
    double steps = o.decay_steps;
    if (o.cycle)
      steps *= step == 0 ? 1 : std::ceil(step / o.decay_steps);
    else
      step = std::min(step, steps);
    return (o.initial_learning_rate - o.end_learning_rate) * std::pow(1 - step / steps, o.power) +
           o.end_learning_rate;
  });
}

ScheduleRef InverseTimeDecay(InverseTimeDecayOptions o) {
  expect_positive("InverseTimeDecay decay_steps", o.decay_steps);
  return schedule([o](double step) {
    const double p = step / o.decay_steps;
    return o.initial_learning_rate / (1 + o.decay_rate * (o.staircase ? std::floor(p) : p));
  });
}

ScheduleRef CosineDecay(CosineDecayOptions o) {
  expect_positive("CosineDecay decay_steps", o.decay_steps);
  return schedule([o](double step) {
    const double warmup = o.warmup_target ? o.warmup_steps : 0;
    const double from = o.warmup_target.value_or(o.initial_learning_rate);
    if (step < warmup)
      return (from - o.initial_learning_rate) * (step / warmup) + o.initial_learning_rate;
    const double fraction = std::min(step - warmup, o.decay_steps) / o.decay_steps;
    return from * ((1 - o.alpha) * cosine(fraction) + o.alpha);
  });
}

ScheduleRef CosineDecayRestarts(CosineDecayRestartsOptions o) {
  expect_positive("CosineDecayRestarts first_decay_steps", o.first_decay_steps);
  return schedule([o](double step) {
    double fraction = step / o.first_decay_steps, restarts;
    if (o.t_mul == 1) {
      restarts = std::floor(fraction);
      fraction -= restarts;
    } else {
      // A hair is added so that the first step of a period is not taken for the last of another.
      restarts = std::floor(std::log(1 - fraction * (1 - o.t_mul)) / std::log(o.t_mul) + 1e-9);
      const double scale = std::pow(o.t_mul, restarts);
      fraction = (fraction - (1 - scale) / (1 - o.t_mul)) / scale;
    }
    const double decayed = std::pow(o.m_mul, restarts) * cosine(fraction);
    return o.initial_learning_rate * ((1 - o.alpha) * decayed + o.alpha);
  });
}

}  // namespace pl
