// ReLU in all its forms, and LeakyReLU.
#include <cmath>

#include "base/error.h"
#include "model/layers.h"
#include "op/functions.h"

namespace pl {
namespace {

// slope * (x - threshold) below the threshold, x from there on, at most max_value.
class ReLULayer final : public Layer {
 public:
  ReLULayer(const char* kind, ReLUOptions options) : kind_(kind), options_(std::move(options)) {
    auto refuse = [&](const char* what, double value) {
      throw UserError("[" + std::string(kind_) + "] " + what +
                      ": expected a number from 0, received " + std::to_string(value));
    };
    if (options_.max_value && !(*options_.max_value >= 0)) refuse("max_value", *options_.max_value);
    if (!(options_.negative_slope >= 0) || std::isinf(options_.negative_slope))
      refuse("negative_slope", options_.negative_slope);
    if (!(options_.threshold >= 0) || std::isinf(options_.threshold))
      refuse("threshold", options_.threshold);
    name = options_.name;
  }
  const char* kind() const override { return kind_; }
  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1)
      throw UserError("expected one input, received " + std::to_string(in.size()));
    return in[0];
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    const double slope = options_.negative_slope, most = options_.max_value.value_or(kNoLimit);
    if (options_.threshold == 0 && slope == 0)
      return most > 0 && most < kNoLimit ? clipped_relu(x, most) : capped(relu(x));
    if (options_.threshold == 0 && slope < 1) return capped(leaky_relu(x, slope));
    return capped(piecewise(x));
  }

 private:
  static constexpr double kNoLimit = 1e30;

  Tensor piecewise(const Tensor& x) const {
    const double threshold = options_.threshold, slope = options_.negative_slope;
    // As a whole number, which has no slope.
    const Tensor from = cast(greater_equal_mask(x, fill({}, threshold, x.dtype())), Dtype::uint8);
    const Tensor above = cast(from, x.dtype());
    const Tensor low = scale(x, slope, -slope * threshold);
    return add(low, multiply(above, subtract(x, low)));
  }
  Tensor capped(const Tensor& y) const {
    const double most = options_.max_value.value_or(kNoLimit);
    return most < kNoLimit ? minimum(y, fill({}, most, y.dtype())) : y;
  }

  const char* kind_;
  ReLUOptions options_;
};

}  // namespace

LayerRef ReLU(ReLUOptions options) {
  return LayerRef(std::make_shared<ReLULayer>("ReLU", std::move(options)));
}
LayerRef LeakyReLU(double negative_slope, std::string name) {
  return LayerRef(std::make_shared<ReLULayer>(
      "LeakyReLU", ReLUOptions{.negative_slope = negative_slope, .name = std::move(name)}));
}

}  // namespace pl
