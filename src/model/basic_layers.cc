// Layers without weights: MaxPooling2D, Flatten, Dropout, Activation; and the activation functions.
#include "base/error.h"
#include "model/layers.h"
#include "op/functions.h"

namespace pl {
namespace {

void expect_one(const std::vector<Shape>& in) {
  if (in.size() != 1) throw UserError("expected one input, received " + std::to_string(in.size()));
}

class MaxPooling2DLayer final : public Layer {
 public:
  MaxPooling2DLayer(Pair pool, MaxPooling2DOptions options)
      : pool_(pool), options_(std::move(options)) {
    for (int64_t size : pool.value)
      if (size <= 0)
        throw UserError("[MaxPooling2D] pool_size: expected positive numbers, received " +
                        std::to_string(size));
    for (int64_t stride : options_.strides.value)
      if (stride < 0)
        throw UserError("[MaxPooling2D] strides: expected positive numbers, received " +
                        std::to_string(stride));
    if (options_.padding != "valid" && options_.padding != "same")
      throw UserError("[MaxPooling2D] padding: expected 'valid' or 'same', received '" +
                      options_.padding + "'");
    name = options_.name;
  }
  const char* kind() const override { return "MaxPooling2D"; }
  std::string config() const override {
    return std::to_string(pool_.value[0]) + "x" + std::to_string(pool_.value[1]);
  }
  Shape build(const std::vector<Shape>& in) override {
    expect_one(in);
    if (in[0].rank() != 3)
      throw UserError("expected samples (height, width, channels), received " + in[0].text());
    Pair strides = options_.strides;
    for (size_t axis : {0u, 1u})
      if (strides.value[axis] == 0) strides.value[axis] = pool_.value[axis];
    auto list = [](const Pair& pair) {
      return std::vector<int64_t>(pair.value.begin(), pair.value.end());
    };
    const Attrs attrs{
        {"pool_size", list(pool_)}, {"strides", list(strides)}, {"padding", options_.padding}};
    return kMaxPool.infer({{Dtype::float32, in[0].with_front(1)}}, attrs)[0].shape.without_front();
  }
  Tensor call(const LayerCall& call) const override {
    return max_pool(
        call.in[0],
        {.pool_size = pool_.value, .strides = options_.strides.value, .padding = options_.padding});
  }

 private:
  Pair pool_;
  MaxPooling2DOptions options_;
};

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

// The one list of activations.
struct ActivationEntry {
  const char* name;
  Tensor (*apply)(const Tensor&);
};
constexpr ActivationEntry kActivations[] = {
    {"linear", [](const Tensor& x) { return x; }},
    {"relu", [](const Tensor& x) { return relu(x); }},
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

LayerRef MaxPooling2D(Pair pool_size, MaxPooling2DOptions options) {
  return LayerRef(std::make_shared<MaxPooling2DLayer>(pool_size, std::move(options)));
}
LayerRef Flatten(std::string name) { return named<FlattenLayer>(std::move(name)); }
LayerRef Dropout(double rate, std::string name) {
  return named<DropoutLayer>(std::move(name), rate);
}
LayerRef Activation(std::string activation, std::string name) {
  return named<ActivationLayer>(std::move(name), std::move(activation));
}

}  // namespace pl
