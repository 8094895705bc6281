// Layers without weights: Flatten, Dropout, Activation; and the activation functions.
#include "base/error.h"
#include "model/layers.h"
#include "op/functions.h"

namespace pl {
namespace {

void expect_one(const std::vector<Shape>& in) {
  if (in.size() != 1) throw UserError("expected one input, received " + std::to_string(in.size()));
}

class FlattenLayer final : public Layer {
 public:
  const char* kind() const override { return "Flatten"; }
  Shape build(const std::vector<Shape>& in) override {
    expect_one(in);
    return Shape{in[0].elements()};
  }
  Tensor call(const LayerCall& call) const override {
    const Shape& shape = call.in[0].shape();
    return reshape(call.in[0], {shape[0], shape.without_front().elements()});
  }
};

class DropoutLayer final : public Layer {
 public:
  explicit DropoutLayer(double rate) : rate_(rate) {
    if (!(rate >= 0 && rate < 1))
      throw UserError("[Dropout] rate: expected 0 <= rate < 1, received " + std::to_string(rate));
  }
  const char* kind() const override { return "Dropout"; }
  std::string config() const override { return std::to_string(rate_); }
  Shape build(const std::vector<Shape>& in) override {
    expect_one(in);
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    return call.training && rate_ > 0 ? dropout(call.in[0], call.step_params, rate_, call.stream)
                                      : call.in[0];
  }

 private:
  double rate_;
};

class ActivationLayer final : public Layer {
 public:
  explicit ActivationLayer(std::string activation) : activation_(std::move(activation)) {
    check_activation(activation_);
  }
  const char* kind() const override { return "Activation"; }
  std::string config() const override { return activation_; }
  Shape build(const std::vector<Shape>& in) override {
    expect_one(in);
    return in[0];
  }
  Tensor call(const LayerCall& call) const override { return activate(activation_, call.in[0]); }

 private:
  std::string activation_;
};

template <class T, class... Args>
LayerRef named(std::string name, Args&&... args) {
  auto layer = std::make_shared<T>(std::forward<Args>(args)...);
  if (!name.empty()) layer->name = std::move(name);
  return LayerRef(std::move(layer));
}

Tensor silu(const Tensor& x) { return multiply(x, sigmoid(x)); }

// x where positive, e^x - 1 elsewhere: the two parts are 0 where the other is not.
Tensor elu(const Tensor& x) {
  const Tensor below = minimum(x, fill({}, 0, x.dtype()));
  return add(relu(x), scale(exp(below), 1, -1));
}

// The one list of activations.
struct ActivationEntry {
  const char* name;
  Tensor (*apply)(const Tensor&);
};
constexpr ActivationEntry kActivations[] = {
    {"linear", [](const Tensor& x) { return x; }},
    {"relu", [](const Tensor& x) { return relu(x); }},
    {"relu6", [](const Tensor& x) { return clipped_relu(x, 6); }},
    {"leaky_relu", [](const Tensor& x) { return leaky_relu(x, 0.2); }},
    {"elu", elu},
    {"silu", silu},
    {"swish", silu},
    {"softmax", [](const Tensor& x) { return softmax(x); }},
    {"sigmoid", [](const Tensor& x) { return sigmoid(x); }},
    {"tanh", [](const Tensor& x) { return tanh(x); }},
    {"gelu", [](const Tensor& x) { return gelu(x, false); }},
    {"gelu_tanh", [](const Tensor& x) { return gelu(x, true); }},  // GPT-2's approximation
};

const ActivationEntry* find_activation(const std::string& name) {
  for (const ActivationEntry& entry : kActivations)
    if (name == entry.name) return &entry;
  return nullptr;
}

}  // namespace

void check_activation(const std::string& activation) {
  if (find_activation(activation)) return;
  std::string known;
  for (const ActivationEntry& entry : kActivations)
    known += (known.empty() ? "" : ", ") + std::string(entry.name);
  throw UserError("[model] activation: expected one of " + known + ", received '" + activation +
                  "'");
}

Tensor activate(const std::string& activation, const Tensor& x) {
  check_activation(activation);
  return find_activation(activation)->apply(x);
}

LayerRef Flatten(std::string name) { return named<FlattenLayer>(std::move(name)); }
LayerRef Dropout(double rate, std::string name) {
  return named<DropoutLayer>(std::move(name), rate);
}
LayerRef Activation(std::string activation, std::string name) {
  return named<ActivationLayer>(std::move(name), std::move(activation));
}

}  // namespace pl
