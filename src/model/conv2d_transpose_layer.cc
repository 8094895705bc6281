#include <algorithm>

#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

// The gradient of a convolution from the large images to the small ones, run forwards. Its kernel
// (KH, KW, filters, channels) is that convolution's, and has Keras's shape as it is.
class Conv2DTransposeLayer final : public PlainLayer {
 public:
  Conv2DTransposeLayer(int64_t filters, Pair kernel, Conv2DTransposeOptions options)
      : filters_(filters), kernel_(kernel), options_(std::move(options)) {
    constexpr const char* layer = "Conv2DTranspose";
    expect_positive(layer, "filters", filters);
    expect_positive(layer, "kernel_size", kernel_);
    expect_positive(layer, "strides", options_.strides);
    expect_positive(layer, "dilation_rate", options_.dilation_rate);
    expect_padding(layer, options_.padding);
    for (size_t i : {0u, 1u})
      if (options_.output_padding)
        expect_output_padding(layer, options_.output_padding->value[i], options_.strides.value[i]);
    check_activation(options_.activation);
    check_rules(kernel_rules(options_));
    check_rules(bias_rules(options_));
    check_regularizer(options_.activity_regularizer);
    activity_regularizer = options_.activity_regularizer;
    set_common(*this, options_);
  }
  const char* kind() const override { return "Conv2DTranspose"; }
  std::string config() const override {
    return std::to_string(filters_) + " " + text_of(kernel_) + " " + options_.padding + " " +
           options_.activation;
  }

  Shape build(const std::vector<Shape>& in) override {
    const Shape& image = expect_image(in);
    if (std::min({image[0], image[1], image[2]}) < 1)
      throw UserError("expected images with pixels and channels, received " + image.text());
    const Shape kernel{kernel_.value[0], kernel_.value[1], filters_, image[2]};
    if (!weights_.empty() && weights_[0].shape != kernel)
      throw UserError("expected the channels of its first call, received " + image.text());
    const Shape out = output_shape(image);
    Attrs attrs{{"strides", list_of(options_.strides)},
                {"padding", options_.padding},
                {"dilations", list_of(options_.dilation_rate)},
                {"input_shape", out.with_front(1).dims()}};
    const Meta w{Dtype::float32, kernel}, x{Dtype::float32, image.with_front(1)};
    kConv2dInputGradient.infer({w, x}, attrs);  // sizes that cannot be counted are refused here
    if (weights_.empty()) {
      add_weight("kernel", kernel, kernel_rules(options_));
      if (options_.use_bias) add_weight("bias", Shape{filters_}, bias_rules(options_));
    }
    return out;
  }

  Tensor call(const LayerCall& call) const override {
    const Shape& x = call.in[0].shape();
    const Shape out = output_shape(x.without_front()).with_front(x[0]);
    Tensor y = conv2d_input_gradient(call.weights[0], call.in[0], out,
                                     {.strides = options_.strides.value,
                                      .padding = options_.padding,
                                      .dilations = options_.dilation_rate.value});
    if (options_.use_bias) y = add(y, cast(call.weights[1], y.dtype()));
    return activate(options_.activation, y);
  }

 private:
  Shape output_shape(const Shape& image) const {  // of one sample
    Shape out{0, 0, filters_};
    for (int axis : {0, 1}) {
      const auto i = static_cast<size_t>(axis);
      const Dim reach = (kernel_.value[i] - 1) * options_.dilation_rate.value[i] + 1;
      std::optional<Dim> more;
      if (options_.output_padding) more = options_.output_padding->value[i];
      out[axis] = transposed_size(image[axis], reach, options_.strides.value[i],
                                  options_.padding == "same", more);
    }
    return out;
  }

  int64_t filters_;
  Pair kernel_;
  Conv2DTransposeOptions options_;
};

}  // namespace

LayerRef Conv2DTranspose(int64_t filters, Pair kernel_size, Conv2DTransposeOptions options) {
  return LayerRef(std::make_shared<Conv2DTransposeLayer>(filters, kernel_size, std::move(options)));
}

}  // namespace pl
