#include "train/optimizer.h"

#include <regex>

#include "base/error.h"
#include "base/number_text.h"
#include "op/functions.h"
#include "op/recorder.h"

namespace pl {
namespace {

constexpr double kLargest = 1e30;

void check_update(const std::string& name, const UpdateOptions& update) {
  const int clips = update.clipnorm.has_value() + update.clipvalue.has_value() +
                    update.global_clipnorm.has_value();
  if (clips > 1)
    throw UserError("[compile] " + name +
                    ": expected one of clipnorm, clipvalue and global_clipnorm at most, received " +
                    std::to_string(clips));
  if (update.gradient_accumulation_steps && *update.gradient_accumulation_steps < 2)
    throw UserError("[compile] " + name +
                    " gradient_accumulation_steps: expected 2 or more, or none, received " +
                    std::to_string(*update.gradient_accumulation_steps));
  if (update.use_ema) {
    check_range((name + " ema_momentum").c_str(), update.ema_momentum, 0, 1);
    if (update.ema_overwrite_frequency && *update.ema_overwrite_frequency < 1)
      throw UserError("[compile] " + name +
                      " ema_overwrite_frequency: expected 1 or more, or none, received " +
                      std::to_string(*update.ema_overwrite_frequency));
  }
}

// As Keras, which takes 0 for none.
bool positive(const std::optional<double>& value) { return value && *value > 0; }

// Values that updates need on the way are the optimiser's on the bill.
class OptimizerCategory {
 public:
  explicit OptimizerCategory(const Tensor& step_params)
      : recorder_(step_params.is_symbol() ? step_params.recorder() : nullptr) {
    if (!recorder_) return;
    before_ = recorder_->category();
    recorder_->set_category(Category::optimizer);
  }
  ~OptimizerCategory() {
    if (recorder_) recorder_->set_category(before_);
  }
  OptimizerCategory(const OptimizerCategory&) = delete;
  OptimizerCategory& operator=(const OptimizerCategory&) = delete;

 private:
  Recorder* recorder_;
  Category before_ = Category::other;
};

Tensor number(double value, Dtype dtype) { return fill(Shape{}, value, dtype); }

}  // namespace

void check_range(const char* what, double value, double low, double high) {
  if (!(value >= low && value <= high))
    throw UserError("[compile] " + std::string(what) + ": expected a number from " +
                    number_text(low) + " to " + number_text(high) + ", received " +
                    number_text(value));
}

Optimizer::Optimizer(const char* name, const LearningRate& rate, UpdateOptions update)
    : learning_rate(rate.value), schedule(rate.schedule), name_(name), update_(update) {
  check_update(name, update);
  if (!schedule)
    check_range((std::string(name) + " learning_rate").c_str(), learning_rate, 0, kLargest);
}

double Optimizer::rate_at(int64_t iterations) const {
  return schedule ? schedule->at(iterations) : learning_rate;
}

std::vector<Slot> Optimizer::slots(const std::string& path, const Meta& weight) const {
  std::vector<Slot> list = own_slots(path, weight);
  if (update_.use_ema) list.push_back({kAverageSlot, weight});
  if (update_.gradient_accumulation_steps) list.push_back({kAccumulatorSlot, weight});
  return list;
}

Tensor Optimizer::seed(const OptimizerState&, Dtype dtype) const {
  return number(update_.loss_scale_factor.value_or(1.0), dtype);
}

std::optional<double> Optimizer::decay_of(const std::string&, const Meta&) const {
  return update_.weight_decay;
}

double Optimizer::decay_for(const Trained& trained) const {
  const std::string name = trained.path.substr(trained.path.rfind('/') + 1);
  for (const std::string& expression : no_decay_)
    if (std::regex_search(name, std::regex(expression))) return 0;
  return decay_of(trained.path, trained.weight.meta()).value_or(0);
}

bool Optimizer::is_plain(const ApplyOptions& options) const {
  const UpdateOptions& u = update_;
  return !positive(u.clipnorm) && !positive(u.clipvalue) && !positive(u.global_clipnorm) &&
         !u.use_ema && !u.loss_scale_factor && !u.gradient_accumulation_steps &&
         !options.scale.defined() && !options.finite.defined();
}

void Optimizer::apply(OptimizerState& state, const Tensors& gradients, const Tensor& step_params,
                      const ApplyOptions& options) const {
  check(gradients.size() == state.weights.size(), "a gradient for every weight");
  const OptimizerCategory category(step_params);
  const UpdateOptions& u = update_;
  if (!options.accumulate) begin(state.shared, step_params, options.finite);
  // The sum of squares of what a gradient is before it is clipped.
  auto sum_of = [&](Trained& trained, const Tensor& gradient) {
    const UpdateCall call(*this, trained, state.shared, {gradient, {}, {}}, step_params, options);
    return call.sums([](UpdateCall::Sums& terms) { return std::vector{terms.gradient()}; })[0];
  };
  Tensor factor;
  if (positive(u.global_clipnorm) && !options.accumulate) {
    Tensor total;
    for (size_t i = 0; i < gradients.size(); ++i) {
      if (!gradients[i].defined()) continue;
      const Tensor sum = sum_of(state.weights[i], gradients[i]);
      total = total.defined() ? add(total, sum) : sum;
    }
    if (total.defined()) {
      // Not finite: neither is the factor.
      const Tensor norm = sqrt(total), one = number(1, norm.dtype());
      const double clip = *u.global_clipnorm;
      factor = add(scale(minimum(divide(one, norm), number(1 / clip, norm.dtype())), clip),
                   subtract(norm, norm));
    }
  }
  for (size_t i = 0; i < gradients.size(); ++i) {
    if (!gradients[i].defined()) continue;
    Trained& trained = state.weights[i];
    if (options.accumulate) {
      UpdateCall::accumulate(*this, trained, gradients[i], step_params, options);
      continue;
    }
    if (is_plain(options) && apply_plain(trained, gradients[i], decay_for(trained), step_params))
      continue;
    Tensor divisor;
    if (positive(u.clipnorm)) {
      const Tensor norm = sqrt(sum_of(trained, gradients[i]));
      divisor = maximum(norm, number(*u.clipnorm, norm.dtype()));
    }
    UpdateCall call(*this, trained, state.shared, {gradients[i], divisor, factor}, step_params,
                    options);
    const Term next = step(call);
    call.finish(next);
  }
}

UpdateCall::UpdateCall(const Optimizer& optimizer, Trained& trained, const Tensors& shared,
                       Gradient gradient, const Tensor& step_params, const ApplyOptions& options)
    : optimizer_(optimizer),
      trained_(trained),
      shared_(shared),
      given_(std::move(gradient)),
      step_params_(step_params),
      options_(options),
      formula_(step_params),
      slots_(trained.slots.size()),
      raw_weight_(variable(trained.weight)),
      weight_(decayed(formula_, raw_weight_)),
      gradient_(0.0) {
  if (options.finite.defined()) formula_.guard(options.finite);
  if (optimizer.update_.gradient_accumulation_steps) accumulator_ = variable(trained.slots.back());
  gradient_ = incoming(formula_, accumulator_);
}

Term UpdateCall::variable(Tensor& tensor) {
  written_.push_back(&tensor);
  return formula_.variable(tensor);
}

Term UpdateCall::decayed(Formula& formula, const Term& weight) const {
  const double decay = optimizer_.decay_for(trained_);
  return decay == 0 ? weight : weight - weight * decay * formula.rate();
}

Term UpdateCall::incoming(Formula& formula, const std::optional<Term>& accumulator) const {
  const UpdateOptions& u = optimizer_.update_;
  Term g = formula.operand(given_.raw);
  if (options_.scale.defined())
    g = g / formula.operand(options_.scale);
  else if (u.loss_scale_factor)
    g = g / *u.loss_scale_factor;
  if (options_.accumulate) return g;
  if (accumulator) g = (g + *accumulator) / static_cast<double>(*u.gradient_accumulation_steps);
  if (given_.clip_divisor.defined())
    g = g * *u.clipnorm / formula.operand(given_.clip_divisor);
  else if (given_.clip_factor.defined())
    g = g * formula.operand(given_.clip_factor);
  else if (positive(u.clipvalue))
    g = minimum(maximum(g, -*u.clipvalue), *u.clipvalue);
  return g;
}

Tensor UpdateCall::gradient_tensor() {
  const UpdateOptions& u = optimizer_.update_;
  Tensor g = given_.raw;
  const Dtype dtype = g.dtype();
  if (options_.scale.defined())
    g = divide(g, options_.scale);
  else if (u.loss_scale_factor)
    g = divide(g, number(*u.loss_scale_factor, dtype));
  if (accumulator_)
    g = divide(add(g, trained_.slots.back()),
               number(static_cast<double>(*u.gradient_accumulation_steps), dtype));
  if (given_.clip_divisor.defined())
    g = divide(scale(g, *u.clipnorm), given_.clip_divisor);
  else if (given_.clip_factor.defined())
    g = multiply(g, given_.clip_factor);
  else if (positive(u.clipvalue))
    g = minimum(maximum(g, number(-*u.clipvalue, dtype)), number(*u.clipvalue, dtype));
  return g;
}

Term UpdateCall::slot(size_t i) {
  if (!slots_[i]) slots_[i] = variable(trained_.slots[i]);
  return *slots_[i];
}

void UpdateCall::set(size_t i, const Term& value) { formula_.write(slot(i), value); }

Term UpdateCall::Sums::weight() {
  return call_.decayed(formula, formula.operand(call_.trained_.weight));
}

Term UpdateCall::Sums::gradient() {
  return call_.incoming(formula, call_.accumulator_
                                     ? std::optional<Term>(slot(call_.trained_.slots.size() - 1))
                                     : std::nullopt);
}

Term UpdateCall::Sums::slot(size_t i) {
  for (const auto& [at, term] : slots_)
    if (at == i) return term;
  return slots_.emplace_back(i, formula.operand(call_.trained_.slots[i])).second;
}

Tensors UpdateCall::sums(const std::function<std::vector<Term>(Sums&)>& build) const {
  Sums terms(*this);
  return terms.formula.sums_of_squares(build(terms));
}

const Tensor& UpdateCall::update_slot(size_t i,
                                      const std::function<Term(Formula&, const Term& old)>& next) {
  Formula formula(step_params_);
  const Term old = formula.variable(trained_.slots[i]);
  if (options_.finite.defined()) formula.guard(options_.finite);
  formula.write(old, next(formula, old));
  return trained_.slots[i] = formula.update()[0];
}

// The average of the weight, which may take its place.
Term UpdateCall::averaged(const Term& weight) {
  const UpdateOptions& u = optimizer_.update_;
  if (!u.use_ema) return weight;
  const size_t at = trained_.slots.size() - (u.gradient_accumulation_steps ? 2 : 1);
  const Term old = slot(at);
  const Term momentum = greater(formula_.step(), 1) * u.ema_momentum;
  const Term average = momentum * old + (1 - momentum) * weight;
  set(at, average);
  return u.ema_overwrite_frequency
             ? select(formula_.every(*u.ema_overwrite_frequency), average, weight)
             : weight;
}

void UpdateCall::finish(const Term& weight) {
  formula_.write(raw_weight_, averaged(weight));
  if (accumulator_)
    formula_.write(*accumulator_, options_.accumulate ? *accumulator_ + gradient_ : Term(0.0));
  const Tensors next = formula_.update();
  for (size_t i = 0; i < next.size(); ++i) *written_[i] = next[i];
}

void UpdateCall::accumulate(const Optimizer& optimizer, Trained& trained, const Tensor& gradient,
                            const Tensor& step_params, const ApplyOptions& options) {
  const UpdateOptions& u = optimizer.update_;
  const Tensors none;
  UpdateCall call(optimizer, trained, none, {gradient, {}, {}}, step_params, options);
  // Keras goes on averaging in every step; without an average the weight is left alone.
  if (u.use_ema) return call.finish(call.raw_weight_);
  Formula formula(step_params);
  Tensor& sum = trained.slots.back();
  const Term old = formula.variable(sum);
  if (options.finite.defined()) formula.guard(options.finite);
  formula.write(old, call.incoming(formula, old) + old);
  sum = formula.update()[0];
}

}  // namespace pl
