// DepthwiseConv2D and SeparableConv2D: convolutions in which each channel has kernels of its own.
#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

// The part that both layers have. Keras's kernel (KH, KW, C, M) is, byte for byte, that of a
// convolution in C groups, (KH, KW, 1, C * M).
struct Depthwise {
  Pair kernel, strides, dilations;
  std::string padding;
  int64_t multiplier;

  void check(const char* layer) const {
    expect_positive(layer, "kernel_size", kernel);
    expect_positive(layer, "strides", strides);
    expect_positive(layer, "dilation_rate", dilations);
    expect_positive(layer, "depth_multiplier", multiplier);
    expect_padding(layer, padding);
  }
  Shape kernel_shape(Dim channels) const {
    return {kernel.value[0], kernel.value[1], channels, multiplier};
  }
  // Of one sample.
  Shape output_shape(const Shape& image) const {
    const Dim channels = image[2];
    const Attrs attrs{{"strides", list_of(strides)},
                      {"padding", padding},
                      {"dilations", list_of(dilations)},
                      {"groups", channels}};
    const Meta x{Dtype::float32, image.with_front(1)},
        w{Dtype::float32, Shape{kernel.value[0], kernel.value[1], 1, channels * multiplier}};
    return kConv2d.infer({x, w}, attrs)[0].shape.without_front();
  }
  Tensor call(const Tensor& x, const Tensor& w, const Tensor& bias = {}) const {
    const Dim channels = x.shape()[3];
    const Tensor grouped = reshape(w, {kernel.value[0], kernel.value[1], 1, channels * multiplier});
    return conv2d(x, grouped,
                  {.strides = strides.value,
                   .padding = padding,
                   .dilations = dilations.value,
                   .groups = channels},
                  bias);
  }
};

void expect_channels(const std::vector<Weight>& weights, const Shape& kernel, const Shape& image) {
  if (image[2] < 1) throw UserError("expected at least one channel, received " + image.text());
  if (!weights.empty() && weights[0].shape != kernel)
    throw UserError("expected the channels of its first call, received " + image.text());
}

class DepthwiseConv2DLayer final : public PlainLayer {
 public:
  DepthwiseConv2DLayer(Pair kernel, DepthwiseConv2DOptions options)
      : options_(std::move(options)),
        depthwise_{kernel, options_.strides, options_.dilation_rate, options_.padding,
                   options_.depth_multiplier} {
    depthwise_.check("DepthwiseConv2D");
    check_activation(options_.activation);
    check_rules(depthwise_rules(options_));
    check_rules(bias_rules(options_));
    check_regularizer(options_.activity_regularizer);
    activity_regularizer = options_.activity_regularizer;
    set_common(*this, options_);
  }
  const char* kind() const override { return "DepthwiseConv2D"; }
  std::string config() const override {
    return text_of(depthwise_.kernel) + " " + options_.padding + " " + options_.activation;
  }
  Shape build(const std::vector<Shape>& in) override {
    const Shape& image = expect_image(in);
    const Shape kernel = depthwise_.kernel_shape(image[2]);
    expect_channels(weights_, kernel, image);
    const Shape out = depthwise_.output_shape(image);
    if (weights_.empty()) {
      add_weight("kernel", kernel, depthwise_rules(options_));
      if (options_.use_bias) add_weight("bias", Shape{out[2]}, bias_rules(options_));
    }
    return out;
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor bias = options_.use_bias ? call.weights[1] : Tensor();
    return activate(options_.activation, depthwise_.call(call.in[0], call.weights[0], bias));
  }

 private:
  DepthwiseConv2DOptions options_;
  Depthwise depthwise_;
};

class SeparableConv2DLayer final : public PlainLayer {
 public:
  SeparableConv2DLayer(int64_t filters, Pair kernel, SeparableConv2DOptions options)
      : filters_(filters),
        options_(std::move(options)),
        depthwise_{kernel, options_.strides, options_.dilation_rate, options_.padding,
                   options_.depth_multiplier} {
    expect_positive("SeparableConv2D", "filters", filters);
    depthwise_.check("SeparableConv2D");
    check_activation(options_.activation);
    check_rules(depthwise_rules(options_));
    check_rules(pointwise_rules(options_));
    check_rules(bias_rules(options_));
    check_regularizer(options_.activity_regularizer);
    activity_regularizer = options_.activity_regularizer;
    set_common(*this, options_);
  }
  const char* kind() const override { return "SeparableConv2D"; }
  std::string config() const override {
    return std::to_string(filters_) + " " + text_of(depthwise_.kernel) + " " + options_.padding +
           " " + options_.activation;
  }
  Shape build(const std::vector<Shape>& in) override {
    const Shape& image = expect_image(in);
    const Shape kernel = depthwise_.kernel_shape(image[2]);
    expect_channels(weights_, kernel, image);
    Shape out = depthwise_.output_shape(image);
    if (weights_.empty()) {
      add_weight("depthwise_kernel", kernel, depthwise_rules(options_));
      add_weight("pointwise_kernel", Shape{1, 1, out[2], filters_}, pointwise_rules(options_));
      if (options_.use_bias) add_weight("bias", Shape{filters_}, bias_rules(options_));
    }
    out[2] = filters_;
    return out;
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor bias = options_.use_bias ? call.weights[2] : Tensor();
    const Tensor between = depthwise_.call(call.in[0], call.weights[0]);
    return activate(options_.activation, conv2d(between, call.weights[1], {}, bias));
  }

 private:
  int64_t filters_;
  SeparableConv2DOptions options_;
  Depthwise depthwise_;
};

}  // namespace

LayerRef DepthwiseConv2D(Pair kernel_size, DepthwiseConv2DOptions options) {
  return LayerRef(std::make_shared<DepthwiseConv2DLayer>(kernel_size, std::move(options)));
}
LayerRef SeparableConv2D(int64_t filters, Pair kernel_size, SeparableConv2DOptions options) {
  return LayerRef(std::make_shared<SeparableConv2DLayer>(filters, kernel_size, std::move(options)));
}

}  // namespace pl
