#include "base/error.h"
#include "model/initializer.h"
#include "model/layers.h"
#include "op/functions.h"

namespace pl {
namespace {

class LayerNormalizationLayer final : public Layer {
 public:
  explicit LayerNormalizationLayer(LayerNormalizationOptions options)
      : options_(std::move(options)) {
    if (!(options_.epsilon > 0 && options_.epsilon < 1))
      throw UserError("[LayerNormalization] epsilon: expected a number between 0 and 1, received " +
                      std::to_string(options_.epsilon));
    check_initializer(options_.beta_initializer);
    check_initializer(options_.gamma_initializer);
    name = options_.name;
  }
  const char* kind() const override { return "LayerNormalization"; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() < 1)
      throw UserError("expected one input with features along its last axis, received " +
                      (in.empty() ? "nothing" : in[0].text()));
    const Shape features{in[0].back()};
    if (!weights_.empty() && weights_[0].shape != features)
      throw UserError("expected " + std::to_string(weights_[0].shape[0]) +
                      " features as in its first call, received " + in[0].text());
    if (weights_.empty()) {
      add_weight("gamma", features, options_.gamma_initializer);
      add_weight("beta", features, options_.beta_initializer);
    }
    return in[0];
  }
  Tensor call(const LayerCall& call) const override {
    return layer_norm(call.in[0], call.weights[0], call.weights[1], options_.epsilon).y;
  }

 private:
  LayerNormalizationOptions options_;
};

}  // namespace

LayerRef LayerNormalization(LayerNormalizationOptions options) {
  return LayerRef(std::make_shared<LayerNormalizationLayer>(std::move(options)));
}

}  // namespace pl
