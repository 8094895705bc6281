#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "op/functions.h"

namespace pl {
namespace {

class DenseLayer final : public PlainLayer {
 public:
  DenseLayer(int64_t units, DenseOptions options) : units_(units), options_(std::move(options)) {
    if (units <= 0)
      throw UserError("[Dense] units: expected a positive number, received " +
                      std::to_string(units));
    check_activation(options_.activation);
    check_rules(kernel_rules(options_));
    check_rules(bias_rules(options_));
    check_regularizer(options_.activity_regularizer);
    activity_regularizer = options_.activity_regularizer;
    set_common(*this, options_);
  }
  const char* kind() const override { return "Dense"; }
  int64_t* size() override { return &units_; }
  bool supports_masking() const override { return true; }
  std::string config() const override { return std::to_string(units_) + " " + options_.activation; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() < 1)
      throw UserError("expected one input with features along its last axis, received " +
                      (in.empty() ? "nothing" : in[0].text()));
    const Dim features = in[0].back();
    if (!weights_.empty() && weights_[0].shape[0] != features)
      throw UserError("expected " + std::to_string(weights_[0].shape[0]) +
                      " features as in its first call, received " + in[0].text());
    if (weights_.empty()) {
      add_weight("kernel", Shape{features, units_}, kernel_rules(options_));
      if (options_.use_bias) add_weight("bias", Shape{units_}, bias_rules(options_));
    }
    Shape out = in[0];
    out[out.rank() - 1] = units_;
    return out;
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor bias = options_.use_bias ? call.weights[1] : Tensor();
    return activate(options_.activation, matmul(call.in[0], call.weights[0], {}, bias));
  }

 private:
  int64_t units_;
  DenseOptions options_;
};

}  // namespace

LayerRef Dense(int64_t units, DenseOptions options) {
  return LayerRef(std::make_shared<DenseLayer>(units, std::move(options)));
}

}  // namespace pl
