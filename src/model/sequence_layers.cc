// Layers over sequences (positions, channels), as layers over images with a height of 1: Conv1D,
// pooling, padding, cropping and repeating.
#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

const Shape& expect_sequence(const std::vector<Shape>& in) {
  if (in.size() != 1) throw UserError("expected one input, received " + std::to_string(in.size()));
  if (in[0].rank() != 2)
    throw UserError("expected samples (positions, channels), received " + in[0].text());
  return in[0];
}

// x (B, T, C) as images (B, 1, T, C) and back.
Tensor as_images(const Tensor& x) {
  const Shape& s = x.shape();
  return reshape(x, {s[0], 1, s[1], s[2]});
}
Tensor as_sequence(const Tensor& y) {
  const Shape& s = y.shape();
  return reshape(y, {s[0], s[2], s[3]});
}
// The shape of a sequence behind an op on images.
Shape shape_behind(const Op& op, const Shape& sequence, const Metas& others, const Attrs& attrs) {
  Metas in{{Dtype::float32, Shape{1, 1, sequence[0], sequence[1]}}};
  in.insert(in.end(), others.begin(), others.end());
  const Shape out = op.infer(in, attrs)[0].shape;
  return {out[2], out[3]};
}

class Conv1DLayer final : public PlainLayer {
 public:
  Conv1DLayer(int64_t filters, int64_t kernel, Conv1DOptions options)
      : filters_(filters), kernel_(kernel), options_(std::move(options)) {
    expect_positive("Conv1D", "filters", filters);
    expect_positive("Conv1D", "groups", options_.groups);
    expect_positive("Conv1D", "kernel_size", kernel);
    expect_positive("Conv1D", "strides", options_.strides);
    expect_positive("Conv1D", "dilation_rate", options_.dilation_rate);
    if (options_.padding != "causal") expect_padding("Conv1D", options_.padding);
    check_activation(options_.activation);
    check_rules(kernel_rules(options_));
    check_rules(bias_rules(options_));
    check_regularizer(options_.activity_regularizer);
    activity_regularizer = options_.activity_regularizer;
    set_common(*this, options_);
  }
  const char* kind() const override { return "Conv1D"; }
  std::string config() const override {
    return std::to_string(filters_) + " " + std::to_string(kernel_) + " " + options_.padding + " " +
           options_.activation;
  }

  Shape build(const std::vector<Shape>& in) override {
    const Dim channels = expect_sequence(in)[1];
    if (channels % options_.groups != 0 || filters_ % options_.groups != 0)
      throw UserError(
          "expected channels and filters divisible by groups = " + std::to_string(options_.groups) +
          ", received " + std::to_string(channels) + " and " + std::to_string(filters_));
    const Shape kernel{kernel_, channels / options_.groups, filters_};
    if (!weights_.empty() && weights_[0].shape != kernel)
      throw UserError("expected the channels of its first call, received " + in[0].text());
    const Conv2dOptions form = form_of();
    Attrs attrs{{"strides", std::vector<int64_t>{1, options_.strides}},
                {"padding", form.padding},
                {"dilations", std::vector<int64_t>{1, options_.dilation_rate}},
                {"groups", options_.groups}};
    if (form.padding == "explicit")
      attrs.set("pads", std::vector<int64_t>(form.pads.begin(), form.pads.end()));
    const Shape out = shape_behind(kConv2d, in[0], {{Dtype::float32, kernel.with_front(1)}}, attrs);
    if (weights_.empty()) {
      add_weight("kernel", kernel, kernel_rules(options_));
      if (options_.use_bias) add_weight("bias", Shape{filters_}, bias_rules(options_));
    }
    return out;
  }

  Tensor call(const LayerCall& call) const override {
    const Shape& w = call.weights[0].shape();
    const Tensor kernel = reshape(call.weights[0], {1, w[0], w[1], w[2]});
    const Tensor bias = options_.use_bias ? call.weights[1] : Tensor();
    return activate(options_.activation,
                    as_sequence(conv2d(as_images(call.in[0]), kernel, form_of(), bias)));
  }

 private:
  Conv2dOptions form_of() const {
    Conv2dOptions form{.strides = {1, options_.strides},
                       .padding = options_.padding,
                       .dilations = {1, options_.dilation_rate},
                       .groups = options_.groups};
    if (options_.padding == "causal") {
      form.padding = "explicit";
      form.pads = {0, 0, options_.dilation_rate * (kernel_ - 1), 0};
    }
    return form;
  }

  int64_t filters_, kernel_;
  Conv1DOptions options_;
};

class Pooling1DLayer final : public PlainLayer {
 public:
  Pooling1DLayer(bool largest, int64_t pool, Pooling1DOptions options)
      : largest_(largest), pool_(pool), options_(std::move(options)) {
    expect_positive(kind(), "pool_size", pool);
    if (options_.strides == 0) options_.strides = pool;
    expect_positive(kind(), "strides", options_.strides);
    expect_padding(kind(), options_.padding);
    set_common(*this, options_);
  }
  const char* kind() const override { return largest_ ? "MaxPooling1D" : "AveragePooling1D"; }
  std::string config() const override { return std::to_string(pool_); }
  Shape build(const std::vector<Shape>& in) override {
    return shape_behind(largest_ ? kMaxPool : kAvgPool, expect_sequence(in), {},
                        {{"pool_size", std::vector<int64_t>{1, pool_}},
                         {"strides", std::vector<int64_t>{1, options_.strides}},
                         {"padding", options_.padding}});
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor x = as_images(call.in[0]);
    const std::array<Dim, 2> pool{1, pool_}, strides{1, options_.strides};
    return as_sequence(
        largest_
            ? max_pool(x, {.pool_size = pool, .strides = strides, .padding = options_.padding})
            : avg_pool(x, {.pool_size = pool, .strides = strides, .padding = options_.padding}));
  }

 private:
  bool largest_;
  int64_t pool_;
  Pooling1DOptions options_;
};

// Everything but the batch and the channels becomes one number.
class GlobalPoolingLayer final : public PlainLayer {
 public:
  GlobalPoolingLayer(const char* kind, int axes, bool largest, GlobalPoolingOptions options)
      : kind_(kind), axes_(axes), largest_(largest), keepdims_(options.keepdims) {
    set_common(*this, options);
  }
  const char* kind() const override { return kind_; }
  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() != axes_ + 1)
      throw UserError(
          "expected samples " +
          std::string(axes_ == 1 ? "(positions, channels)" : "(depth, height, width, channels)") +
          ", received " + (in.empty() ? "nothing" : in[0].text()));
    for (int d = 0; d < axes_; ++d)
      if (in[0][d] < 1) throw UserError("expected at least one position, received " + in[0].text());
    std::vector<Dim> out(keepdims_ ? static_cast<size_t>(axes_) : 0, 1);
    out.push_back(in[0].back());
    return Shape(std::move(out));
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    std::vector<int64_t> axes;
    for (int d = 1; d <= axes_; ++d) axes.push_back(d);
    if (largest_) return reduce_max(x, axes, keepdims_);
    const Tensor mask = call.mask(0);
    if (!mask.defined()) return reduce_mean(x, axes, keepdims_);
    const Tensor counts =
        reshape(cast(mask, x.dtype()), {x.shape()[0], x.shape()[1], 1});  // (B, T, 1)
    return divide(reduce_sum(multiply(x, counts), axes, keepdims_),
                  reduce_sum(counts, axes, keepdims_));
  }

 private:
  const char* kind_;
  int axes_;
  bool largest_, keepdims_;
};

class Padding1DLayer final : public PlainLayer {
 public:
  Padding1DLayer(bool crop, Padding1D padding, std::string given_name)
      : crop_(crop), pads_{0, 0, padding.value[0], padding.value[1]} {
    for (int64_t size : padding.value)
      if (size < 0)
        throw UserError("[" + std::string(kind()) + "] expected numbers from 0, received " +
                        std::to_string(size));
    name = std::move(given_name);
  }
  const char* kind() const override { return crop_ ? "Cropping1D" : "ZeroPadding1D"; }
  Shape build(const std::vector<Shape>& in) override {
    return shape_behind(crop_ ? kCrop : kPad, expect_sequence(in), {},
                        {{"pads", std::vector<int64_t>(pads_.begin(), pads_.end())}});
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor x = as_images(call.in[0]);
    return as_sequence(crop_ ? crop(x, pads_) : pad(x, pads_));
  }

 private:
  bool crop_;
  std::array<int64_t, 4> pads_;
};

class UpSampling1DLayer final : public PlainLayer {
 public:
  UpSampling1DLayer(int64_t size, std::string given_name) : size_(size) {
    expect_positive("UpSampling1D", "size", size);
    name = std::move(given_name);
  }
  const char* kind() const override { return "UpSampling1D"; }
  std::string config() const override { return std::to_string(size_); }
  Shape build(const std::vector<Shape>& in) override {
    return shape_behind(kUpsample, expect_sequence(in), {},
                        {{"size", std::vector<int64_t>{1, size_}}});
  }
  Tensor call(const LayerCall& call) const override {
    return as_sequence(upsample(as_images(call.in[0]), {.size = {1, size_}}));
  }

 private:
  int64_t size_;
};

LayerRef global_pooling(const char* kind, int axes, bool largest, GlobalPoolingOptions options) {
  return LayerRef(std::make_shared<GlobalPoolingLayer>(kind, axes, largest, std::move(options)));
}

}  // namespace

LayerRef Conv1D(int64_t filters, int64_t kernel_size, Conv1DOptions options) {
  return LayerRef(std::make_shared<Conv1DLayer>(filters, kernel_size, std::move(options)));
}
LayerRef MaxPooling1D(int64_t pool_size, Pooling1DOptions options) {
  return LayerRef(std::make_shared<Pooling1DLayer>(true, pool_size, std::move(options)));
}
LayerRef AveragePooling1D(int64_t pool_size, Pooling1DOptions options) {
  return LayerRef(std::make_shared<Pooling1DLayer>(false, pool_size, std::move(options)));
}
LayerRef GlobalAveragePooling1D(GlobalPoolingOptions options) {
  return global_pooling("GlobalAveragePooling1D", 1, false, std::move(options));
}
LayerRef GlobalMaxPooling1D(GlobalPoolingOptions options) {
  return global_pooling("GlobalMaxPooling1D", 1, true, std::move(options));
}
LayerRef GlobalAveragePooling3D(GlobalPoolingOptions options) {
  return global_pooling("GlobalAveragePooling3D", 3, false, std::move(options));
}
LayerRef GlobalMaxPooling3D(GlobalPoolingOptions options) {
  return global_pooling("GlobalMaxPooling3D", 3, true, std::move(options));
}
LayerRef ZeroPadding1D(Padding1D padding, std::string name) {
  return LayerRef(std::make_shared<Padding1DLayer>(false, padding, std::move(name)));
}
LayerRef Cropping1D(Padding1D cropping, std::string name) {
  return LayerRef(std::make_shared<Padding1DLayer>(true, cropping, std::move(name)));
}
LayerRef UpSampling1D(int64_t size, std::string name) {
  return LayerRef(std::make_shared<UpSampling1DLayer>(size, std::move(name)));
}

}  // namespace pl
