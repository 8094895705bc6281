// MaxPooling2D, AveragePooling2D, and pooling over whole images.
#include "base/error.h"
#include "model/layers.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

struct PoolSettings {
  Pair pool;
  Pair strides;  // 0: the pool size
  std::string padding;
};

class PoolingLayer : public Layer {
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

// The whole image becomes one number a channel.
class GlobalPooling2DLayer final : public Layer {
 public:
  GlobalPooling2DLayer(bool largest, GlobalPooling2DOptions options)
      : largest_(largest), keepdims_(options.keepdims) {
    name = std::move(options.name);
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
LayerRef GlobalAveragePooling2D(GlobalPooling2DOptions options) {
  return LayerRef(std::make_shared<GlobalPooling2DLayer>(false, std::move(options)));
}
LayerRef GlobalMaxPooling2D(GlobalPooling2DOptions options) {
  return LayerRef(std::make_shared<GlobalPooling2DLayer>(true, std::move(options)));
}

}  // namespace pl
