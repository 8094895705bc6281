#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

class Conv2DLayer final : public PlainLayer {
 public:
  Conv2DLayer(int64_t filters, Pair kernel, Conv2DOptions options)
      : filters_(filters), kernel_(kernel), options_(std::move(options)) {
    expect_positive("Conv2D", "filters", filters);
    expect_positive("Conv2D", "groups", options_.groups);
    expect_positive("Conv2D", "kernel_size", kernel_);
    expect_positive("Conv2D", "strides", options_.strides);
    expect_positive("Conv2D", "dilation_rate", options_.dilation_rate);
    expect_padding("Conv2D", options_.padding);
    check_activation(options_.activation);
    check_rules(kernel_rules(options_));
    check_rules(bias_rules(options_));
    check_regularizer(options_.activity_regularizer);
    activity_regularizer = options_.activity_regularizer;
    set_common(*this, options_);
  }
  const char* kind() const override { return "Conv2D"; }
  int64_t* size() override { return &filters_; }
  std::string config() const override {
    return std::to_string(filters_) + " " + text_of(kernel_) + " " + options_.padding + " " +
           options_.activation;
  }

  Shape build(const std::vector<Shape>& in) override {
    const Dim channels = expect_image(in)[2];
    if (channels % options_.groups != 0 || filters_ % options_.groups != 0)
      throw UserError(
          "expected channels and filters divisible by groups = " + std::to_string(options_.groups) +
          ", received " + std::to_string(channels) + " and " + std::to_string(filters_));
    const Shape kernel{kernel_.value[0], kernel_.value[1], channels / options_.groups, filters_};
    if (!weights_.empty() && weights_[0].shape != kernel)
      throw UserError("expected the channels of its first call, received " + in[0].text());
    // The op's own rule gives the output's shape and the error for a kernel larger than the image.
    const Meta x{Dtype::float32, in[0].with_front(1)}, w{Dtype::float32, kernel};
    const Shape out = kConv2d.infer({x, w}, attributes())[0].shape.without_front();
    if (weights_.empty()) {
      add_weight("kernel", kernel, kernel_rules(options_));
      if (options_.use_bias) add_weight("bias", Shape{filters_}, bias_rules(options_));
    }
    return out;
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor bias = options_.use_bias ? call.weights[1] : Tensor();
    return activate(options_.activation, conv2d(call.in[0], call.weights[0],
                                                {.strides = options_.strides.value,
                                                 .padding = options_.padding,
                                                 .dilations = options_.dilation_rate.value,
                                                 .groups = options_.groups},
                                                bias));
  }

 private:
  Attrs attributes() const {
    return {{"strides", list_of(options_.strides)},
            {"padding", options_.padding},
            {"dilations", list_of(options_.dilation_rate)},
            {"groups", options_.groups}};
  }

  int64_t filters_;
  Pair kernel_;
  Conv2DOptions options_;
};

}  // namespace

LayerRef Conv2D(int64_t filters, Pair kernel_size, Conv2DOptions options) {
  return LayerRef(std::make_shared<Conv2DLayer>(filters, kernel_size, std::move(options)));
}

}  // namespace pl
