// Activations as layers: Activation, ReLU, LeakyReLU, ELU, PReLU, Softmax.
#include <cmath>

#include "base/error.h"
#include "base/number_text.h"
#include "model/layers.h"
#include "model/rules.h"
#include "model/spec.h"
#include "op/functions.h"

namespace pl {
namespace {

// One input, whose shape stays and whose mask is handed on.
class ActivationBase : public PlainLayer {
 public:
  bool supports_masking() const override { return true; }
  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1)
      throw UserError("expected one input, received " + std::to_string(in.size()));
    return in[0];
  }
};

class ActivationLayer final : public ActivationBase {
 public:
  // `kind`: of ELU, whose activation has a name of its own.
  ActivationLayer(const char* kind, std::string activation)
      : kind_(kind), activation_(std::move(activation)) {
    check_activation(activation_, true);
  }
  const char* kind() const override { return kind_; }
  std::string config() const override { return activation_; }
  Shape build(const std::vector<Shape>& in) override {
    return activated_shape(activation_, ActivationBase::build(in));
  }
  Tensor call(const LayerCall& call) const override { return activate(activation_, call.in[0]); }

 private:
  const char* kind_;
  std::string activation_;
};

// Over several axes at once.
class SoftmaxLayer final : public ActivationBase {
 public:
  explicit SoftmaxLayer(Axes axes) : axes_(std::move(axes)) {}
  const char* kind() const override { return "Softmax"; }
  Shape build(const std::vector<Shape>& in) override {
    axes_behind_batch(axes_, ActivationBase::build(in));
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor x = real_of(call.in[0]);
    const std::vector<int64_t> axes = axes_behind_batch(axes_, x.shape().without_front());
    const Tensor raised = exp(subtract(x, reduce_max(x, axes, true)));
    return divide(raised, reduce_sum(raised, axes, true));
  }

 private:
  Axes axes_;
};

// slope * (x - threshold) below the threshold, x above it, at most max_value.
class ReLULayer final : public ActivationBase {
 public:
  ReLULayer(const char* kind, ReLUOptions options) : kind_(kind), options_(std::move(options)) {
    auto refuse = [&](const char* what, double value) {
      throw UserError("[" + std::string(kind_) + "] " + what +
                      ": expected a number from 0, received " + number_text(value));
    };
    if (options_.max_value && !(*options_.max_value >= 0)) refuse("max_value", *options_.max_value);
    if (!(options_.negative_slope >= 0) || std::isinf(options_.negative_slope))
      refuse("negative_slope", options_.negative_slope);
    if (!(options_.threshold >= 0) || std::isinf(options_.threshold))
      refuse("threshold", options_.threshold);
    set_common(*this, options_);
  }
  const char* kind() const override { return kind_; }
  Tensor call(const LayerCall& call) const override {
    return general_relu(call.in[0], options_.negative_slope,
                        options_.max_value.value_or(kNoReluLimit), options_.threshold);
  }

 private:
  const char* kind_;
  ReLUOptions options_;
};

// relu(x) - alpha * relu(-x), alpha learned for each element of a sample, or shared along axes.
class PReLULayer final : public ActivationBase {
 public:
  explicit PReLULayer(PReLUOptions options) : options_(std::move(options)) {
    check_rules(rules());
    set_common(*this, options_);
  }
  const char* kind() const override { return "PReLU"; }
  Shape build(const std::vector<Shape>& in) override {
    Shape alpha = ActivationBase::build(in);
    for (int64_t axis : options_.shared_axes) {
      if (axis < 1 || axis > alpha.rank())
        throw UserError("expected shared_axes from 1 to " + std::to_string(alpha.rank()) +
                        ", received " + std::to_string(axis));
      alpha[static_cast<int>(axis) - 1] = 1;
    }
    if (!weights_.empty() && weights_[0].shape != alpha)
      throw UserError("expected samples as in its first call, with alpha " +
                      weights_[0].shape.text() + ", received " + in[0].text());
    if (weights_.empty()) add_weight("alpha", alpha, rules());
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor x = real_of(call.in[0]);
    const Tensor alpha = cast(call.weights[0], x.dtype());
    return subtract(relu(x), multiply(relu(negative(x)), alpha));
  }

 private:
  WeightRules rules() const {
    return {options_.alpha_initializer, options_.alpha_regularizer, options_.alpha_constraint};
  }
  PReLUOptions options_;
};

template <class T, class... Args>
LayerRef named(std::string name, Args&&... args) {
  auto layer = std::make_shared<T>(std::forward<Args>(args)...);
  if (!name.empty()) layer->name = std::move(name);
  return LayerRef(std::move(layer));
}

}  // namespace

LayerRef Activation(std::string activation, std::string name) {
  return named<ActivationLayer>(std::move(name), "Activation", std::move(activation));
}
LayerRef ReLU(ReLUOptions options) {
  return LayerRef(std::make_shared<ReLULayer>("ReLU", std::move(options)));
}
LayerRef LeakyReLU(double negative_slope, std::string name) {
  return LayerRef(std::make_shared<ReLULayer>(
      "LeakyReLU", ReLUOptions{.negative_slope = negative_slope, .name = std::move(name)}));
}
LayerRef ELU(double alpha, std::string name) {
  return named<ActivationLayer>(std::move(name), "ELU", "elu:alpha=" + spec_digits(alpha));
}
LayerRef PReLU(PReLUOptions options) {
  return LayerRef(std::make_shared<PReLULayer>(std::move(options)));
}
LayerRef Softmax(Axes axis, std::string name) {
  if (axis.value.size() != 1) return named<SoftmaxLayer>(std::move(name), std::move(axis));
  return named<ActivationLayer>(std::move(name), "Softmax",
                                "softmax:axis=" + std::to_string(axis.value[0]));
}

}  // namespace pl
