// GroupNormalization, and RMSNormalization and UnitNormalization, composed of ops. Moments are
// float32 in mixed precision, as in Keras.
#include "base/error.h"
#include "base/number_text.h"
#include "model/layers.h"
#include "model/rules.h"
#include "op/functions.h"

namespace pl {
namespace {

const Shape& expect_one(const std::vector<Shape>& in) {
  if (in.size() != 1 || in[0].rank() < 1)
    throw UserError("expected one input of at least one dimension, received " +
                    (in.empty() ? "nothing" : in[0].text()));
  return in[0];
}

// Axis of a sample's shape for Keras's, which counts the batch.
int sample_axis(int64_t wanted, const Shape& sample) {
  const int64_t axis = wanted < 0 ? wanted + sample.rank() : wanted - 1;
  if (axis < 0 || axis >= sample.rank())
    throw UserError("expected an axis behind the batch, received " + std::to_string(wanted) +
                    " for " + sample.text());
  return static_cast<int>(axis);
}

void expect_epsilon(const char* kind, double epsilon) {
  if (!(epsilon > 0 && epsilon < 1))
    throw UserError("[" + std::string(kind) +
                    "] epsilon: expected a number between 0 and 1, received " +
                    number_text(epsilon));
}

class GroupNormalizationLayer final : public PlainLayer {
 public:
  explicit GroupNormalizationLayer(GroupNormalizationOptions options)
      : options_(std::move(options)) {
    if (options_.groups < 1 && options_.groups != -1)
      throw UserError("[GroupNormalization] groups: expected a positive number or -1, received " +
                      std::to_string(options_.groups));
    expect_epsilon("GroupNormalization", options_.epsilon);
    check_rules(gamma_rules(options_));
    check_rules(beta_rules(options_));
    set_common(*this, options_);
  }
  const char* kind() const override { return "GroupNormalization"; }
  bool supports_masking() const override { return true; }
  std::string config() const override { return std::to_string(options_.groups) + " groups"; }

  Shape build(const std::vector<Shape>& in) override {
    const Dim channels = expect_one(in)[sample_axis(options_.axis, in[0])];
    const Dim groups = options_.groups == -1 ? channels : options_.groups;
    if (channels % groups != 0)
      throw UserError("expected channels divisible by " + std::to_string(groups) +
                      " groups, received " + in[0].text());
    if (!weights_.empty() && weights_[0].shape != Shape{channels})
      throw UserError("expected the channels of its first call, received " + in[0].text());
    if (weights_.empty()) {
      if (options_.scale) add_weight("gamma", Shape{channels}, gamma_rules(options_));
      if (options_.center) add_weight("beta", Shape{channels}, beta_rules(options_));
    }
    return in[0];
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor& given = call.in[0];
    const int rank = given.shape().rank();
    const int axis = sample_axis(options_.axis, given.shape().without_front()) + 1;
    // The channels to the end, and back.
    std::vector<int64_t> order, back;
    for (int64_t d = 0; d < rank; ++d) {
      if (d != axis) order.push_back(d);
      back.push_back(d < axis ? d : d == axis ? rank - 1 : d - 1);
    }
    order.push_back(axis);
    const Tensor x = transpose(given, order);
    const Dim channels = x.shape().back();
    size_t next = 0;
    auto parameter = [&](bool exists, double otherwise) {
      return exists ? call.weights[next++] : fill(Shape{channels}, otherwise, wide(x.dtype()));
    };
    const Tensor gamma = parameter(options_.scale, 1), beta = parameter(options_.center, 0);
    const Dim groups = options_.groups == -1 ? channels : options_.groups;
    return transpose(group_norm(x, gamma, beta, groups, options_.epsilon).y, back);
  }

 private:
  GroupNormalizationOptions options_;
};

class RMSNormalizationLayer final : public PlainLayer {
 public:
  explicit RMSNormalizationLayer(RMSNormalizationOptions options) : options_(std::move(options)) {
    expect_epsilon("RMSNormalization", options_.epsilon);
    set_common(*this, options_);
  }
  const char* kind() const override { return "RMSNormalization"; }
  Shape build(const std::vector<Shape>& in) override {
    std::vector<Dim> sizes;
    for (int64_t axis : axes_behind_batch(options_.axis, expect_one(in)))
      sizes.push_back(in[0][static_cast<int>(axis) - 1]);
    if (!weights_.empty() && weights_[0].shape != Shape(sizes))
      throw UserError("expected " + weights_[0].shape.text() +
                      " features as in its first call, received " + in[0].text());
    if (weights_.empty()) add_weight("scale", Shape(sizes), "ones");
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor x = cast(call.in[0], wide(call.in[0].dtype()));
    const std::vector<int64_t> axes = axes_behind_batch(options_.axis, x.shape().without_front());
    std::vector<Dim> dims(static_cast<size_t>(x.shape().rank()), 1);
    for (int64_t axis : axes) dims[static_cast<size_t>(axis)] = x.shape()[static_cast<int>(axis)];
    const Tensor squares = reduce_mean(square(x), axes, true);
    const Tensor y = divide(x, sqrt(scale(squares, 1, options_.epsilon)));
    return cast(multiply(y, reshape(call.weights[0], dims)), call.in[0].dtype());
  }

 private:
  RMSNormalizationOptions options_;
};

class UnitNormalizationLayer final : public PlainLayer {
 public:
  UnitNormalizationLayer(Axes axis, std::string given_name) : axis_(std::move(axis)) {
    name = std::move(given_name);
  }
  const char* kind() const override { return "UnitNormalization"; }
  bool supports_masking() const override { return true; }
  Shape build(const std::vector<Shape>& in) override {
    axes_behind_batch(axis_, expect_one(in));
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    return unit_length(x, axes_behind_batch(axis_, x.shape().without_front()));
  }

 private:
  Axes axis_;
};

}  // namespace

LayerRef GroupNormalization(GroupNormalizationOptions options) {
  return LayerRef(std::make_shared<GroupNormalizationLayer>(std::move(options)));
}
LayerRef RMSNormalization(RMSNormalizationOptions options) {
  return LayerRef(std::make_shared<RMSNormalizationLayer>(std::move(options)));
}
LayerRef UnitNormalization(Axes axis, std::string name) {
  return LayerRef(std::make_shared<UnitNormalizationLayer>(std::move(axis), std::move(name)));
}

}  // namespace pl
