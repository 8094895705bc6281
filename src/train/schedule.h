// Learning-rate schedules with Keras's names, defaults and formulas: functions of the number of
// steps before this one, computed on the host, so that no plan changes with them.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace pl {

class LearningRateSchedule {
 public:
  virtual ~LearningRateSchedule() = default;
  virtual double at(int64_t step) const = 0;  // step: from 0
};
using ScheduleRef = std::shared_ptr<const LearningRateSchedule>;

// What optimisers take: a number or a schedule.
struct LearningRate {
  LearningRate(double rate) : value(rate) {}
  LearningRate(ScheduleRef schedule) : schedule(std::move(schedule)) {}
  template <class Schedule>
  requires std::derived_from<Schedule, LearningRateSchedule> LearningRate(
      std::shared_ptr<Schedule> schedule)
      : schedule(std::move(schedule)) {}
  double value = 0;
  ScheduleRef schedule;  // null: `value`
};

struct ExponentialDecayOptions {
  double initial_learning_rate;
  double decay_steps;
  double decay_rate;
  bool staircase = false;
};
ScheduleRef ExponentialDecay(ExponentialDecayOptions options);

// values[i] up to and with step boundaries[i]; the last one from then on.
struct PiecewiseConstantDecayOptions {
  std::vector<int64_t> boundaries;
  std::vector<double> values;
};
ScheduleRef PiecewiseConstantDecay(PiecewiseConstantDecayOptions options);

struct PolynomialDecayOptions {
  double initial_learning_rate;
  double decay_steps;
  double end_learning_rate = 0.0001;
  double power = 1.0;
  bool cycle = false;
};
ScheduleRef PolynomialDecay(PolynomialDecayOptions options);

struct InverseTimeDecayOptions {
  double initial_learning_rate;
  double decay_steps;
  double decay_rate;
  bool staircase = false;
};
ScheduleRef InverseTimeDecay(InverseTimeDecayOptions options);

// With a warmup_target: from the initial rate straight to it in warmup_steps, then the decay.
struct CosineDecayOptions {
  double initial_learning_rate;
  double decay_steps;
  double alpha = 0.0;
  std::optional<double> warmup_target = {};
  double warmup_steps = 0;
};
ScheduleRef CosineDecay(CosineDecayOptions options);

struct CosineDecayRestartsOptions {
  double initial_learning_rate;
  double first_decay_steps;
  double t_mul = 2.0;
  double m_mul = 1.0;
  double alpha = 0.0;
};
ScheduleRef CosineDecayRestarts(CosineDecayRestartsOptions options);

}  // namespace pl
