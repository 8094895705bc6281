// MaxPooling2D, AveragePooling2D, their like over volumes, and pooling over whole images.
#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

struct PoolSettings {
  Pair pool;
  Pair strides;  // 0: the pool size
  std::string padding;
};

class PoolingLayer : public PlainLayer {
 public:
  PoolingLayer(const char* kind, const Op& op, PoolSettings settings, std::string given_name)
      : settings_(std::move(settings)), kind_(kind), op_(op) {
    expect_positive(kind, "pool_size", settings_.pool);
    for (size_t axis : {0u, 1u})
      if (settings_.strides.value[axis] == 0)
        settings_.strides.value[axis] = settings_.pool.value[axis];
    expect_positive(kind, "strides", settings_.strides);
    expect_padding(kind, settings_.padding);
    name = std::move(given_name);
  }
  const char* kind() const override { return kind_; }
  std::string config() const override { return text_of(settings_.pool); }
  Shape build(const std::vector<Shape>& in) override {
    const Attrs attrs{{"pool_size", list_of(settings_.pool)},
                      {"strides", list_of(settings_.strides)},
                      {"padding", settings_.padding}};
    return op_.infer({{Dtype::float32, expect_image(in).with_front(1)}}, attrs)[0]
        .shape.without_front();
  }

 protected:
  PoolSettings settings_;

 private:
  const char* kind_;
  const Op& op_;
};

class MaxPooling2DLayer final : public PoolingLayer {
 public:
  using PoolingLayer::PoolingLayer;
  Tensor call(const LayerCall& call) const override {
    return max_pool(call.in[0], {.pool_size = settings_.pool.value,
                                 .strides = settings_.strides.value,
                                 .padding = settings_.padding});
  }
};

class AveragePooling2DLayer final : public PoolingLayer {
 public:
  using PoolingLayer::PoolingLayer;
  Tensor call(const LayerCall& call) const override {
    return avg_pool(call.in[0], {.pool_size = settings_.pool.value,
                                 .strides = settings_.strides.value,
                                 .padding = settings_.padding});
  }
};

// Volumes (D, H, W, C): first each plane as an image, then each column of planes. Padding counts in
// neither, and a mean over a box is a mean of means: the number of elements is a product.
class Pooling3DLayer final : public PlainLayer {
 public:
  Pooling3DLayer(bool largest, Triple pool, Pooling3DOptions options)
      : largest_(largest),
        pool_(pool.value),
        strides_(options.strides.value),
        padding_(std::move(options.padding)) {
    for (size_t i = 0; i < 3; ++i) {
      expect_positive(kind(), "pool_size", pool_[i]);
      if (strides_[i] == 0) strides_[i] = pool_[i];
      expect_positive(kind(), "strides", strides_[i]);
    }
    expect_padding(kind(), padding_);
    set_common(*this, options);
  }
  const char* kind() const override { return largest_ ? "MaxPooling3D" : "AveragePooling3D"; }
  std::string config() const override {
    return std::to_string(pool_[0]) + "x" + std::to_string(pool_[1]) + "x" +
           std::to_string(pool_[2]);
  }
  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() != 4)
      throw UserError("expected samples (depth, height, width, channels), received " +
                      (in.empty() ? "nothing" : in[0].text()));
    const Shape& s = in[0];
    const Op& op = largest_ ? kMaxPool : kAvgPool;
    const Shape plane =
        op.infer({{Dtype::float32, Shape{1, s[1], s[2], s[3]}}}, pool_attrs(planes()))[0].shape;
    const Shape column =
        op.infer({{Dtype::float32, Shape{1, s[0], 1, s[3]}}}, pool_attrs(columns()))[0].shape;
    return {column[1], plane[1], plane[2], s[3]};
  }
  Tensor call(const LayerCall& call) const override {
    const Shape s = call.in[0].shape();  // (B, D, H, W, C)
    const Tensor flat = pooled(reshape(call.in[0], {s[0] * s[1], s[2], s[3], s[4]}), planes());
    const Dim height = flat.shape()[1], width = flat.shape()[2];
    const Tensor deep = pooled(reshape(flat, {s[0], s[1], height * width, s[4]}), columns());
    return reshape(deep, {s[0], deep.shape()[1], height, width, s[4]});
  }

 private:
  PoolOptions planes() const {
    return {{pool_[1], pool_[2]}, {strides_[1], strides_[2]}, padding_, {}};
  }
  PoolOptions columns() const { return {{pool_[0], 1}, {strides_[0], 1}, padding_, {}}; }
  Tensor pooled(const Tensor& x, const PoolOptions& options) const {
    return largest_ ? max_pool(x, options) : avg_pool(x, options);
  }

  bool largest_;
  std::array<int64_t, 3> pool_, strides_;
  std::string padding_;
};

// The whole image becomes one number a channel.
class GlobalPooling2DLayer final : public PlainLayer {
 public:
  GlobalPooling2DLayer(bool largest, GlobalPooling2DOptions options)
      : largest_(largest), keepdims_(options.keepdims) {
    set_common(*this, options);
  }
  const char* kind() const override {
    return largest_ ? "GlobalMaxPooling2D" : "GlobalAveragePooling2D";
  }
  Shape build(const std::vector<Shape>& in) override {
    const Shape& image = expect_image(in);
    if (image[0] < 1 || image[1] < 1)
      throw UserError("expected images with at least one pixel, received " + image.text());
    return keepdims_ ? Shape{1, 1, image[2]} : Shape{image[2]};
  }
  Tensor call(const LayerCall& call) const override {
    return largest_ ? reduce_max(call.in[0], {1, 2}, keepdims_)
                    : reduce_mean(call.in[0], {1, 2}, keepdims_);
  }

 private:
  bool largest_, keepdims_;
};

}  // namespace

LayerRef MaxPooling2D(Pair pool_size, MaxPooling2DOptions options) {
  return LayerRef(std::make_shared<MaxPooling2DLayer>(
      "MaxPooling2D", kMaxPool, PoolSettings{pool_size, options.strides, options.padding},
      options.name));
}
LayerRef AveragePooling2D(Pair pool_size, AveragePooling2DOptions options) {
  return LayerRef(std::make_shared<AveragePooling2DLayer>(
      "AveragePooling2D", kAvgPool, PoolSettings{pool_size, options.strides, options.padding},
      options.name));
}
LayerRef MaxPooling3D(Triple pool_size, Pooling3DOptions options) {
  return LayerRef(std::make_shared<Pooling3DLayer>(true, pool_size, std::move(options)));
}
LayerRef AveragePooling3D(Triple pool_size, Pooling3DOptions options) {
  return LayerRef(std::make_shared<Pooling3DLayer>(false, pool_size, std::move(options)));
}
LayerRef GlobalAveragePooling2D(GlobalPooling2DOptions options) {
  return LayerRef(std::make_shared<GlobalPooling2DLayer>(false, std::move(options)));
}
LayerRef GlobalMaxPooling2D(GlobalPooling2DOptions options) {
  return LayerRef(std::make_shared<GlobalPooling2DLayer>(true, std::move(options)));
}

}  // namespace pl
