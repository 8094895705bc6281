// Optimisers with Keras's names, defaults and formulas. An optimiser says which variables it keeps
// for a weight (slots) and appends its updates to the trace, or runs them on values; state lives in
// the arena.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "op/formula.h"
#include "trace/variable.h"
#include "train/schedule.h"

namespace pl {

// What all optimisers take besides their own numbers.
struct UpdateOptions {
  std::optional<double> weight_decay;  // decoupled: w -= w * weight_decay * learning_rate, first
  // One of these at most. clipnorm: of each gradient; global_clipnorm: of all together, so that
  // none dies before the last one is known.
  std::optional<double> clipnorm, clipvalue, global_clipnorm;
  bool use_ema = false;  // an average of each weight, which takes its place at the end of fit()
  double ema_momentum = 0.99;
  std::optional<int64_t> ema_overwrite_frequency;  // or every so many steps
  std::optional<double> loss_scale_factor;
  std::optional<int64_t> gradient_accumulation_steps;  // 2 or more
};

// A variable that an optimiser keeps.
struct Slot {
  std::string name;  // "momentum"
  Meta meta;
  double initial = 0;
};

// A weight with its slots, in the order of Optimizer::slots().
struct Trained {
  std::string path;
  Tensor weight;
  Tensors slots;
};

// Symbols of a traced step, or values.
struct OptimizerState {
  Tensors shared;  // as Optimizer::shared_slots()
  std::vector<Trained> weights;
};

struct ApplyOptions {
  bool accumulate = false;  // a step that only adds up gradients (gradient_accumulation_steps)
  Tensor scale = {};        // {}: gradients are divided by it
  Tensor finite = {};       // {}: nothing is written where it is zero
};

class UpdateCall;
struct SlotVariables;
using GradientsAndVariables = std::vector<std::pair<Tensor, Variable>>;
// As Python's: pairs, as many as the shorter list has.
GradientsAndVariables zip(const Tensors& gradients, const std::vector<Variable>& variables);

class Optimizer {
 public:
  Optimizer(const char* name, const LearningRate& rate, UpdateOptions update);
  virtual ~Optimizer() = default;
  virtual const char* name() const { return name_; }  // "adam"
  virtual const UpdateOptions& update_options() const { return update_; }
  // The learning rate after so many steps; the schedule's, where there is one.
  virtual double rate_at(int64_t iterations) const;
  // Weights whose name, the last part of the path, matches one of these expressions do not decay.
  void exclude_from_weight_decay(std::vector<std::string> names) { no_decay_ = std::move(names); }

  // What it keeps for a weight, and once for all.
  virtual std::vector<Slot> slots(const std::string& path, const Meta& weight) const;
  virtual std::vector<Slot> shared_slots(Dtype) const { return {}; }
  // The gradient of the loss itself, {}: 1, or by what it is scaled.
  virtual Tensor seed(const OptimizerState& state, Dtype dtype) const;

  // Updates weights and slots by their gradients (undefined ones are left out); `state` has the
  // next versions then. All of one dtype, float32 or float64.
  virtual void apply(OptimizerState& state, const Tensors& gradients, const Tensor& step_params,
                     const ApplyOptions& options = {}) const;

  // The number of steps whose gradients were used, if the optimiser counts them itself in a shared
  // slot (float64, {}); else -1: all were.
  virtual int iterations_slot() const { return -1; }
  // The optimiser whose learning_rate counts: that inside of a LossScaleOptimizer.
  virtual Optimizer& inner() { return *this; }

  // Keras's: one update of these variables, on values or in a pl::function. Slots are Variables of
  // the optimiser's own, apart from those of fit(). apply_gradients.cc
  void apply_gradients(const GradientsAndVariables& list);
  // The loss as it is to be differentiated where gradients are divided again (Keras's scale_loss).
  Tensor scale_loss(const Tensor& loss);
  // Keras's: updates that apply_gradients() and the last compiled model's fit() made. As many calls
  // as gradient_accumulation_steps says are one; what loss scaling left out is none.
  int64_t iterations() const;
  int64_t fitted = 0;  // of these, fit()'s

  double learning_rate = 0;
  ScheduleRef schedule;  // null: learning_rate

 protected:
  // Slots of the formula; average and accumulator are added to them.
  virtual std::vector<Slot> own_slots(const std::string& path, const Meta& weight) const = 0;
  // Before the first weight: shared slots.
  virtual void begin(Tensors&, const Tensor& /*step_params*/, const Tensor& /*finite*/) const {}
  // The next weight, from the terms of `call`.
  virtual Term step(UpdateCall& call) const = 0;
  // An update without clipping and the like, by an op of its own; false: there is none. `decay` is
  // the weight's; 0: none.
  virtual bool apply_plain(Trained&, const Tensor& /*gradient*/, double /*decay*/,
                           const Tensor& /*step_params*/) const {
    return false;
  }
  virtual std::optional<double> decay_of(const std::string& path, const Meta& weight) const;
  // The same unless the name is excluded; 0: none.
  double decay_for(const Trained& trained) const;

 private:
  friend class UpdateCall;
  bool is_plain(const ApplyOptions& options) const;
  // Of apply_gradients().
  void make_shared_slots(Dtype dtype, const std::shared_ptr<DeviceSpace>& space);
  int64_t steps_done() const;  // by it, accumulating ones among them

  const char* name_;
  UpdateOptions update_;
  std::vector<std::string> no_decay_;
  std::shared_ptr<SlotVariables> variables_;  // of apply_gradients()
};
using OptimizerRef = std::shared_ptr<Optimizer>;

// The update of one weight, as Optimizer::step() sees it.
class UpdateCall {
 public:
  // What is known of a gradient when its update begins.
  struct Gradient {
    Tensor raw;
    Tensor clip_divisor;  // {}: clipnorm or the gradient's norm, whichever is larger
    Tensor clip_factor;   // {}: of all gradients
  };
  UpdateCall(const Optimizer& optimizer, Trained& trained, const Tensors& shared, Gradient gradient,
             const Tensor& step_params, const ApplyOptions& options);

  Formula& formula() { return formula_; }
  const std::string& path() const { return trained_.path; }
  const Meta& meta() const { return trained_.weight.meta(); }
  const Tensor& shared(size_t i) const { return shared_[i]; }
  const Tensor& step_params() const { return step_params_; }
  Term weight() const { return weight_; }      // after its decay
  Term gradient() const { return gradient_; }  // clipped
  Term slot(size_t i);                         // to be written with set()
  void set(size_t i, const Term& value);

  // The same terms once more, in a formula of their own, to be summed before the update.
  class Sums {
   public:
    explicit Sums(const UpdateCall& call) : formula(call.step_params_), call_(call) {}
    Term weight();
    Term gradient();
    Term slot(size_t i);
    Formula formula;

   private:
    const UpdateCall& call_;
    std::vector<std::pair<size_t, Term>> slots_;
  };
  // Sums of squares of the terms that `build` makes, {} each.
  Tensors sums(const std::function<std::vector<Term>(Sums&)>& build) const;

  // For what is no formula: the clipped gradient as a tensor of its own, and an update of one slot
  // before the rest.
  Tensor gradient_tensor();
  const Tensor& update_slot(size_t i, const std::function<Term(Formula&, const Term& old)>& next);

  void finish(const Term& weight);  // average, accumulator; runs the update

  // Steps that only add up gradients.
  static void accumulate(const Optimizer& optimizer, Trained& trained, const Tensor& gradient,
                         const Tensor& step_params, const ApplyOptions& options);

 private:
  friend class Optimizer;
  Term variable(Tensor& tensor);
  Term incoming(Formula& formula, const std::optional<Term>& accumulator) const;
  Term decayed(Formula& formula, const Term& weight) const;
  Term averaged(const Term& weight);

  const Optimizer& optimizer_;
  Trained& trained_;
  const Tensors& shared_;
  Gradient given_;
  Tensor step_params_;
  const ApplyOptions& options_;
  Formula formula_;
  std::vector<Tensor*> written_;  // as the formula's variables
  std::vector<std::optional<Term>> slots_;
  std::optional<Term> accumulator_;
  Term raw_weight_, weight_, gradient_;
};

// Slots behind an optimiser's own, by name.
inline constexpr const char* kAverageSlot = "average";
inline constexpr const char* kAccumulatorSlot = "gradient_accumulator";

// On values, for training loops of one's own. Weights come without slots; what they have is kept
// by the state from then on, next versions being new tensors.
OptimizerState initial_state(const Optimizer& optimizer, std::vector<Trained> weights);
// One step as fit() would do it: learning rate, accumulation and the count of updates follow from
// the number of steps before, which a loop that scales its loss (seed()) leaves to the state.
void apply_gradients(const Optimizer& optimizer, OptimizerState& state, const Tensors& gradients,
                     int64_t steps_before);

// Throws UserError "[compile] <what>: expected a number from low to high".
void check_range(const char* what, double value, double low, double high);

// The part of an optimiser's options that all share.
template <class Options>
UpdateOptions update_options_of(const Options& o) {
  return {o.weight_decay,
          o.clipnorm,
          o.clipvalue,
          o.global_clipnorm,
          o.use_ema,
          o.ema_momentum,
          o.ema_overwrite_frequency,
          o.loss_scale_factor,
          o.gradient_accumulation_steps};
}

}  // namespace pl
