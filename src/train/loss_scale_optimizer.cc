// LossScaleOptimizer, and the list of all optimisers by name.
#include <algorithm>

#include "base/error.h"
#include "base/number_text.h"
#include "op/functions.h"
#include "tensor/float16.h"
#include "train/optimizers.h"

namespace pl {
namespace {

// Shared slots, in float64 so that counts are exact: the scale, finite steps since it changed, and
// all finite steps; behind these the inner optimiser's.
enum Shared : size_t { kScale, kCounter, kIterations, kOwn };

class LossScaler final : public Optimizer {
 public:
  LossScaler(OptimizerRef inner, LossScaleOptions o)
      : Optimizer(inner->name(), inner->learning_rate, {}), inner_(std::move(inner)), o_(o) {
    check_range("LossScaleOptimizer initial_scale", o.initial_scale, 1e-30, 1e30);
    check_range("LossScaleOptimizer dynamic_growth_steps",
                static_cast<double>(o.dynamic_growth_steps), 1, 1e15);
    if (inner_->update_options().loss_scale_factor)
      throw UserError(
          "[compile] LossScaleOptimizer: expected an optimizer without loss_scale_factor, "
          "received " +
          number_text(*inner_->update_options().loss_scale_factor) + "; leave it out");
  }

  const UpdateOptions& update_options() const override { return inner_->update_options(); }
  double rate_at(int64_t iterations) const override { return inner_->rate_at(iterations); }
  Optimizer& inner() override { return inner_->inner(); }
  std::vector<Slot> slots(const std::string& path, const Meta& weight) const override {
    return inner_->slots(path, weight);
  }
  std::vector<Slot> shared_slots(Dtype dtype) const override {
    const Meta number{Dtype::float64, Shape{}};
    std::vector<Slot> list{{"dynamic_scale", number, o_.initial_scale},
                           {"step_counter", number},
                           {"iterations", number}};
    for (Slot& slot : inner_->shared_slots(dtype)) list.push_back(std::move(slot));
    return list;
  }
  int iterations_slot() const override { return kIterations; }
  Tensor seed(const OptimizerState& state, Dtype dtype) const override {
    return cast(state.shared[kScale], dtype);
  }

  void apply(OptimizerState& state, const Tensors& gradients, const Tensor& step_params,
             const ApplyOptions& options) const override {
    Tensor total;  // zero, or NaN if one of the gradients is not finite
    Dtype dtype = Dtype::float32;
    for (const Tensor& gradient : gradients) {
      if (!gradient.defined()) continue;
      dtype = gradient.dtype();
      Formula f(step_params);
      const Term g = f.operand(gradient);
      const Tensor part = f.sums_of_squares({g - g})[0];
      total = total.defined() ? add(total, part) : part;
    }
    if (!total.defined()) return;
    const Tensor finite = equal_mask(total, fill(Shape{}, 0, dtype));
    OptimizerState inner{Tensors(state.shared.begin() + kOwn, state.shared.end()),
                         std::move(state.weights)};
    inner_->apply(inner, gradients, step_params, {options.accumulate, seed(state, dtype), finite});
    state.weights = std::move(inner.weights);
    std::copy(inner.shared.begin(), inner.shared.end(), state.shared.begin() + kOwn);
    rescale(state, cast(finite, Dtype::float64), step_params);
  }

 protected:
  std::vector<Slot> own_slots(const std::string&, const Meta&) const override { return {}; }
  Term step(UpdateCall& call) const override { return call.weight(); }

 private:
  void rescale(OptimizerState& state, const Tensor& finite, const Tensor& step_params) const {
    Formula f(step_params);
    const Term scale = f.variable(state.shared[kScale]), count = f.variable(state.shared[kCounter]);
    const Term iterations = f.variable(state.shared[kIterations]), good = f.operand(finite);
    const Term full = greater(count + 1.5, static_cast<double>(o_.dynamic_growth_steps));
    f.write(scale, select(good, select(full, scale * 2, scale), scale * 0.5));
    f.write(count, select(good, select(full, count * 0, count + 1), count * 0));
    f.write(iterations, iterations + good);
    const Tensors next = f.update();
    std::copy(next.begin(), next.end(), state.shared.begin());
  }

  OptimizerRef inner_;
  LossScaleOptions o_;
};

struct Named {
  const char* name;
  OptimizerRef (*make)();
};
constexpr Named kNamed[] = {
    {"adadelta", [] { return Adadelta(); }}, {"adafactor", [] { return Adafactor(); }},
    {"adagrad", [] { return Adagrad(); }},   {"adam", [] { return Adam(); }},
    {"adamax", [] { return Adamax(); }},     {"adamw", [] { return AdamW(); }},
    {"ftrl", [] { return Ftrl(); }},         {"lamb", [] { return Lamb(); }},
    {"lion", [] { return Lion(); }},         {"muon", [] { return Muon(); }},
    {"nadam", [] { return Nadam(); }},       {"rmsprop", [] { return RMSprop(); }},
    {"sgd", [] { return SGD(); }},
};

}  // namespace

OptimizerRef LossScaleOptimizer(OptimizerRef inner, LossScaleOptions options) {
  if (!inner) throw UserError("[compile] LossScaleOptimizer: expected an optimizer, received none");
  return std::make_shared<LossScaler>(std::move(inner), options);
}

OptimizerRef scaled_for(const Policy& policy, OptimizerRef optimizer) {
  const bool scales =
      optimizer->iterations_slot() >= 0 || optimizer->update_options().loss_scale_factor;
  return policy == kMixedFloat16 && !scales ? LossScaleOptimizer(std::move(optimizer)) : optimizer;
}

std::string optimizer_names() {
  std::string text;
  for (const Named& named : kNamed) text += (text.empty() ? "" : ", ") + std::string(named.name);
  return text;
}

OptimizerRef optimizer_from_name(const std::string& name) {
  std::string plain = name;  // Keras takes the class's name too: "Adam"
  for (char& c : plain)
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  for (const Named& named : kNamed)
    if (plain == named.name) return named.make();
  throw UserError("[compile] optimizer: expected one of " + optimizer_names() + ", received '" +
                  name + "'");
}

}  // namespace pl
