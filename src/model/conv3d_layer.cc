// Conv3D: for each plane of the kernel a convolution of images, all added up.
#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

class Conv3DLayer final : public PlainLayer {
 public:
  Conv3DLayer(int64_t filters, Triple kernel, Conv3DOptions options)
      : filters_(filters), kernel_(kernel.value), options_(std::move(options)) {
    expect_positive("Conv3D", "filters", filters);
    expect_positive("Conv3D", "groups", options_.groups);
    for (size_t i = 0; i < 3; ++i) {
      expect_positive("Conv3D", "kernel_size", kernel_[i]);
      expect_positive("Conv3D", "strides", options_.strides.value[i]);
      expect_positive("Conv3D", "dilation_rate", options_.dilation_rate.value[i]);
    }
    expect_padding("Conv3D", options_.padding);
    check_activation(options_.activation);
    check_rules(kernel_rules(options_));
    check_rules(bias_rules(options_));
    check_regularizer(options_.activity_regularizer);
    activity_regularizer = options_.activity_regularizer;
    set_common(*this, options_);
  }
  const char* kind() const override { return "Conv3D"; }
  std::string config() const override {
    return std::to_string(filters_) + " " + std::to_string(kernel_[0]) + "x" +
           std::to_string(kernel_[1]) + "x" + std::to_string(kernel_[2]) + " " + options_.padding;
  }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() != 4)
      throw UserError("expected samples (depth, height, width, channels), received " +
                      (in.empty() ? "nothing" : in[0].text()));
    const Dim channels = in[0][3];
    if (channels % options_.groups != 0 || filters_ % options_.groups != 0)
      throw UserError(
          "expected channels and filters divisible by groups = " + std::to_string(options_.groups) +
          ", received " + std::to_string(channels) + " and " + std::to_string(filters_));
    const Shape kernel{kernel_[0], kernel_[1], kernel_[2], channels / options_.groups, filters_};
    if (!weights_.empty() && weights_[0].shape != kernel)
      throw UserError("expected the channels of its first call, received " + in[0].text());
    const Depth depth = depth_of(in[0][0]);
    if (depth.out < 1)
      throw UserError("expected a depth of at least " + std::to_string(span()) +
                      " for the kernel, received " + in[0].text());
    const Meta x{Dtype::float32, Shape{1, in[0][1], in[0][2], channels}},
        w{Dtype::float32, Shape{kernel_[1], kernel_[2], channels / options_.groups, filters_}};
    const auto &strides = options_.strides.value, &dilations = options_.dilation_rate.value;
    const Shape image =
        kConv2d
            .infer({x, w}, {{"strides", std::vector<int64_t>{strides[1], strides[2]}},
                            {"padding", options_.padding},
                            {"dilations", std::vector<int64_t>{dilations[1], dilations[2]}},
                            {"groups", options_.groups}})[0]
            .shape;
    if (weights_.empty()) {
      add_weight("kernel", kernel, kernel_rules(options_));
      if (options_.use_bias) add_weight("bias", Shape{filters_}, bias_rules(options_));
    }
    return {depth.out, image[1], image[2], filters_};
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor& w = call.weights[0];
    const Shape s = call.in[0].shape();
    const Depth depth = depth_of(s[1]);
    const Tensor x = padded(call.in[0], depth);
    const auto &strides = options_.strides.value, &dilations = options_.dilation_rate.value;
    Tensor sum;
    for (Dim k = 0; k < kernel_[0]; ++k) {
      const Tensor plane =
          reshape(slice(w, 0, k, 1), {kernel_[1], kernel_[2], w.shape()[3], filters_});
      const bool bias = options_.use_bias && k == 0;
      const Tensor term = conv2d(planes(x, k * dilations[0], depth.out, s), plane,
                                 {.strides = {strides[1], strides[2]},
                                  .padding = options_.padding,
                                  .dilations = {dilations[1], dilations[2]},
                                  .groups = options_.groups},
                                 bias ? call.weights[1] : Tensor());
      sum = sum.defined() ? add(sum, term) : term;
    }
    const Shape image = sum.shape();  // (B * OD, OH, OW, O)
    return activate(options_.activation,
                    reshape(sum, {s[0], depth.out, image[1], image[2], filters_}));
  }

 private:
  struct Depth {
    Dim out, before, after;  // planes of the result; of zeros on either side
  };
  Dim span() const { return (kernel_[0] - 1) * options_.dilation_rate.value[0] + 1; }
  // Behind what the kernel reads there are as many planes more as make whole strides.
  Depth depth_of(Dim in) const {
    const Dim stride = options_.strides.value[0];
    const bool same = options_.padding == "same";
    const Dim out = same          ? (in + stride - 1) / stride
                    : in < span() ? 0
                                  : (in - span()) / stride + 1;
    const Dim before = same ? std::max<Dim>(0, (out - 1) * stride + span() - in) / 2 : 0;
    const Dim needed = span() - 1 + out * stride;
    return {out, before, std::max<Dim>(0, needed - in - before)};
  }
  // x (B, D, H, W, C) with planes of zeros around, as (B, D', H * W * C).
  Tensor padded(const Tensor& x, const Depth& depth) const {
    const Shape& s = x.shape();
    const Dim plane = s[2] * s[3] * s[4];
    const Tensor flat = reshape(x, {s[0], s[1], plane, 1});
    const bool any = depth.before + depth.after > 0;
    const Tensor wide = any ? pad(flat, {depth.before, depth.after, 0, 0}) : flat;
    return reshape(wide, {s[0], s[1] + depth.before + depth.after, plane});
  }
  // Planes first, first + stride, ... as images (B * OD, H, W, C); s: of the layer's input.
  Tensor planes(const Tensor& x, Dim first, Dim count, const Shape& s) const {
    const Dim stride = options_.strides.value[0], plane = x.shape()[2];
    const bool all = first == 0 && count * stride == x.shape()[1];
    Tensor part = all ? x : slice(x, 1, first, count * stride);
    if (stride > 1) part = slice(reshape(part, {s[0], count, stride, plane}), 2, 0, 1);
    return reshape(part, {s[0] * count, s[2], s[3], s[4]});
  }

  int64_t filters_;
  std::array<int64_t, 3> kernel_;
  Conv3DOptions options_;
};

}  // namespace

LayerRef Conv3D(int64_t filters, Triple kernel_size, Conv3DOptions options) {
  return LayerRef(std::make_shared<Conv3DLayer>(filters, kernel_size, std::move(options)));
}

}  // namespace pl
