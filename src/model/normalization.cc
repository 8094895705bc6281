#include "base/error.h"
#include "base/number_text.h"
#include "model/layers.h"
#include "model/rules.h"
#include "op/functions.h"
#include "op/recorder.h"

namespace pl {
namespace {

class LayerNormalizationLayer final : public Layer {
 public:
  explicit LayerNormalizationLayer(LayerNormalizationOptions options)
      : options_(std::move(options)) {
    if (!(options_.epsilon > 0 && options_.epsilon < 1))
      throw UserError("[LayerNormalization] epsilon: expected a number between 0 and 1, received " +
                      number_text(options_.epsilon));
    check_rules(gamma_rules(options_));
    check_rules(beta_rules(options_));
    set_common(*this, options_);
  }
  const char* kind() const override { return "LayerNormalization"; }
  bool supports_masking() const override { return true; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() < 1)
      throw UserError("expected one input with features along its last axis, received " +
                      (in.empty() ? "nothing" : in[0].text()));
    const Shape features{in[0].back()};
    if (!weights_.empty() && weights_[0].shape != features)
      throw UserError("expected " + std::to_string(weights_[0].shape[0]) +
                      " features as in its first call, received " + in[0].text());
    if (weights_.empty()) {
      if (options_.scale) add_weight("gamma", features, gamma_rules(options_));
      if (options_.center) add_weight("beta", features, beta_rules(options_));
    }
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    const Shape features{x.shape().back()};
    size_t next = 0;
    auto parameter = [&](bool exists, double otherwise) {
      return exists ? call.weights[next++] : fill(features, otherwise, wide(x.dtype()));
    };
    const Tensor gamma = parameter(options_.scale, 1), beta = parameter(options_.center, 0);
    return layer_norm(x, gamma, beta, options_.epsilon).y;
  }

 private:
  LayerNormalizationOptions options_;
};

void expect_between(const char* what, double value, bool fits, const char* range) {
  if (!fits)
    throw UserError("[BatchNormalization] " + std::string(what) + ": expected a number " + range +
                    ", received " + number_text(value));
}

class BatchNormalizationLayer final : public Layer {
 public:
  explicit BatchNormalizationLayer(BatchNormalizationOptions options)
      : options_(std::move(options)) {
    expect_between("momentum", options_.momentum, options_.momentum >= 0 && options_.momentum <= 1,
                   "from 0 to 1");
    expect_between("epsilon", options_.epsilon, options_.epsilon > 0 && options_.epsilon < 1,
                   "between 0 and 1");
    check_rules(gamma_rules(options_));
    check_rules(beta_rules(options_));
    check_initializer(options_.moving_mean_initializer);
    check_initializer(options_.moving_variance_initializer);
    set_common(*this, options_);
  }
  const char* kind() const override { return "BatchNormalization"; }
  bool supports_masking() const override { return true; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() < 1)
      throw UserError("expected one input with channels along its last axis, received " +
                      (in.empty() ? "nothing" : in[0].text()));
    // Keras counts the batch as axis 0.
    if (options_.axis != -1 && options_.axis != in[0].rank())
      throw UserError("expected axis -1, the last (channels_last), received " +
                      std::to_string(options_.axis) + " for " + in[0].text());
    const Shape channels{in[0].back()};
    if (!weights_.empty() && weights_[0].shape != channels)
      throw UserError("expected " + std::to_string(weights_[0].shape[0]) +
                      " channels as in its first call, received " + in[0].text());
    if (weights_.empty()) {
      if (options_.scale) add_weight("gamma", channels, gamma_rules(options_));
      if (options_.center) add_weight("beta", channels, beta_rules(options_));
      add_weight("moving_mean", channels, options_.moving_mean_initializer, false);
      add_weight("moving_variance", channels, options_.moving_variance_initializer, false);
    }
    return in[0];
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    if (call.training && call.mask(0).defined())
      throw UserError(
          "[BatchNormalization] expected an input without a mask while training, received one; "
          "moments of masked batches are not built: use LayerNormalization");
    size_t next = 0;
    auto parameter = [&](bool exists, double otherwise) {
      return exists ? call.weights[next++] : fill(Shape{x.shape().back()}, otherwise, x.dtype());
    };
    const Tensor gamma = parameter(options_.scale, 1), beta = parameter(options_.center, 0);
    const Tensor &moving_mean = call.weights[next], &moving_variance = call.weights[next + 1];
    // Frozen, it runs as in inference: Keras's rule.
    if (!call.training || !call.trainable)
      return batch_norm_apply(x, moving_mean, moving_variance, gamma, beta, options_.epsilon);
    const BatchNormResult result = batch_norm(x, gamma, beta, options_.epsilon);
    // A layer that is called twice moves them twice.
    moving_statistics(last_version(moving_mean), last_version(moving_variance), result.mean,
                      result.variance, options_.momentum);
    return result.y;
  }

 private:
  BatchNormalizationOptions options_;
};

}  // namespace

LayerRef BatchNormalization(BatchNormalizationOptions options) {
  return LayerRef(std::make_shared<BatchNormalizationLayer>(std::move(options)));
}

LayerRef LayerNormalization(LayerNormalizationOptions options) {
  return LayerRef(std::make_shared<LayerNormalizationLayer>(std::move(options)));
}

}  // namespace pl
