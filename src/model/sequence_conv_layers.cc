// Conv1DTranspose, DepthwiseConv1D and SeparableConv1D: the layers over images on sequences, which
// are images of height 1.
#include "base/error.h"
#include "model/layers.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

// The layer over images has kernels (1, K, ...); Keras's over sequences have no 1 in front.
class OverSequences final : public PlainLayer {
 public:
  // `before`: positions of zeros in front, for 'causal'.
  OverSequences(const char* kind, const LayerRef& images, Dim before = 0)
      : kind_(kind), images_(images.get()), before_(before) {
    name = std::exchange(images_->name, "");
    dtype = images_->dtype;
    activity_regularizer = images_->activity_regularizer;
  }
  const char* kind() const override { return kind_; }
  std::string config() const override { return images_->config(); }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1 || in[0].rank() != 2)
      throw UserError("expected samples (positions, channels), received " +
                      (in.empty() ? "nothing" : in[0].text()));
    const Shape out = images_->build({Shape{1, in[0][0] + before_, in[0][1]}});
    if (weights_.empty())
      for (Weight weight : images_->weights()) {
        if (weight.shape.rank() == 4) weight.shape = weight.shape.without_front();
        weights_.push_back(std::move(weight));
      }
    return out.without_front();
  }

  Tensor call(const LayerCall& call) const override {
    const Shape& s = call.in[0].shape();
    Tensor x = reshape(call.in[0], {s[0], 1, s[1], s[2]});
    if (before_ > 0) x = pad(x, {0, 0, before_, 0});
    Tensors weights;
    for (const Tensor& w : call.weights)
      weights.push_back(w.shape().rank() == 3 ? reshape(w, w.shape().with_front(1).dims()) : w);
    LayerCall inner = call;
    const Tensor in[] = {x};
    inner.in = in;
    inner.weights = weights;
    const Tensor y = images_->call(inner);
    return reshape(y, {s[0], y.shape()[2], y.shape()[3]});
  }

 private:
  const char* kind_;
  std::shared_ptr<Layer> images_;
  Dim before_;
};

LayerRef over_sequences(const char* kind, const LayerRef& images, Dim before = 0) {
  return std::make_shared<OverSequences>(kind, images, before);
}

}  // namespace

LayerRef Conv1DTranspose(int64_t filters, int64_t kernel_size, Conv1DTransposeOptions o) {
  std::optional<Pair> more;
  if (o.output_padding) more = Pair(0, *o.output_padding);
  return over_sequences("Conv1DTranspose",
                        Conv2DTranspose(filters, {1, kernel_size},
                                        {.strides = {1, o.strides},
                                         .padding = o.padding,
                                         .output_padding = more,
                                         .dilation_rate = {1, o.dilation_rate},
                                         .activation = o.activation,
                                         .use_bias = o.use_bias,
                                         .kernel_initializer = o.kernel_initializer,
                                         .bias_initializer = o.bias_initializer,
                                         .kernel_regularizer = o.kernel_regularizer,
                                         .bias_regularizer = o.bias_regularizer,
                                         .activity_regularizer = o.activity_regularizer,
                                         .kernel_constraint = o.kernel_constraint,
                                         .bias_constraint = o.bias_constraint,
                                         .name = o.name,
                                         .dtype = o.dtype,
                                         .trainable = o.trainable}));
}

LayerRef DepthwiseConv1D(int64_t kernel_size, DepthwiseConv1DOptions o) {
  return over_sequences(
      "DepthwiseConv1D",
      DepthwiseConv2D({1, kernel_size}, {.strides = {1, o.strides},
                                         .padding = o.padding,
                                         .depth_multiplier = o.depth_multiplier,
                                         .dilation_rate = {1, o.dilation_rate},
                                         .activation = o.activation,
                                         .use_bias = o.use_bias,
                                         .depthwise_initializer = o.depthwise_initializer,
                                         .bias_initializer = o.bias_initializer,
                                         .depthwise_regularizer = o.depthwise_regularizer,
                                         .bias_regularizer = o.bias_regularizer,
                                         .activity_regularizer = o.activity_regularizer,
                                         .depthwise_constraint = o.depthwise_constraint,
                                         .bias_constraint = o.bias_constraint,
                                         .name = o.name,
                                         .dtype = o.dtype,
                                         .trainable = o.trainable}));
}

LayerRef SeparableConv1D(int64_t filters, int64_t kernel_size, SeparableConv1DOptions o) {
  const bool causal = o.padding == "causal";
  expect_positive("SeparableConv1D", "kernel_size", kernel_size);
  return over_sequences("SeparableConv1D",
                        SeparableConv2D(filters, {1, kernel_size},
                                        {.strides = {1, o.strides},
                                         .padding = causal ? "valid" : o.padding,
                                         .dilation_rate = {1, o.dilation_rate},
                                         .depth_multiplier = o.depth_multiplier,
                                         .activation = o.activation,
                                         .use_bias = o.use_bias,
                                         .depthwise_initializer = o.depthwise_initializer,
                                         .pointwise_initializer = o.pointwise_initializer,
                                         .bias_initializer = o.bias_initializer,
                                         .depthwise_regularizer = o.depthwise_regularizer,
                                         .pointwise_regularizer = o.pointwise_regularizer,
                                         .bias_regularizer = o.bias_regularizer,
                                         .activity_regularizer = o.activity_regularizer,
                                         .depthwise_constraint = o.depthwise_constraint,
                                         .pointwise_constraint = o.pointwise_constraint,
                                         .bias_constraint = o.bias_constraint,
                                         .name = o.name,
                                         .dtype = o.dtype,
                                         .trainable = o.trainable}),
                        causal ? o.dilation_rate * (kernel_size - 1) : 0);
}

}  // namespace pl
