// ZeroPadding3D, Cropping3D, UpSampling3D and Conv3DTranspose: volumes (depth, height, width,
// channels) worked off as images.
#include <algorithm>

#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

const Shape& expect_volume(const std::vector<Shape>& in) {
  if (in.size() != 1 || in[0].rank() != 4)
    throw UserError("expected samples (depth, height, width, channels), received " +
                    (in.empty() ? "nothing" : in[0].text()));
  return in[0];
}

// An op on images twice: on (B, D, H, W * C) and on (B, D * H, W, C).
template <class First, class Second>
Tensor by_images(const Tensor& x, const First& first, const Second& second) {
  const Shape s = x.shape();
  const Tensor a = first(reshape(x, {s[0], s[1], s[2], s[3] * s[4]}));
  const Dim depth = a.shape()[1], height = a.shape()[2];
  const Tensor b = second(reshape(a, {s[0], depth * height, s[3], s[4]}));
  return reshape(b, {s[0], depth, height, b.shape()[2], s[4]});
}

class Padding3DLayer final : public PlainLayer {
 public:
  Padding3DLayer(bool crop, Padding3D padding, std::string given_name)
      : crop_(crop), pads_(padding.value) {
    for (int64_t size : pads_)
      if (size < 0)
        throw UserError("[" + std::string(kind()) + "] " + (crop ? "cropping" : "padding") +
                        ": expected numbers from 0, received " + std::to_string(size));
    name = std::move(given_name);
  }
  const char* kind() const override { return crop_ ? "Cropping3D" : "ZeroPadding3D"; }
  Shape build(const std::vector<Shape>& in) override {
    Shape out = expect_volume(in);
    for (int axis = 0; axis < 3; ++axis) {
      const size_t i = 2 * static_cast<size_t>(axis);
      const Dim both = pads_[i] + pads_[i + 1];
      out[axis] += crop_ ? -both : both;
      if (out[axis] < 1)
        throw UserError("expected volumes larger than what is taken off, received " + in[0].text());
    }
    return out;
  }
  Tensor call(const LayerCall& call) const override {
    auto move = [this](const Tensor& x, const Pads& pads) {
      const bool none = std::all_of(pads.begin(), pads.end(), [](Dim size) { return size == 0; });
      return none ? x : crop_ ? crop(x, pads) : pad(x, pads);
    };
    return by_images(
        call.in[0],
        [&](const Tensor& x) {
          return move(x, {pads_[0], pads_[1], pads_[2], pads_[3]});
        },
        [&](const Tensor& x) {
          return move(x, {0, 0, pads_[4], pads_[5]});
        });
  }

 private:
  bool crop_;
  std::array<int64_t, 6> pads_;  // before and behind: depth, height, width
};

class UpSampling3DLayer final : public PlainLayer {
 public:
  UpSampling3DLayer(Triple size, std::string given_name) : size_(size.value) {
    for (int64_t times : size_) expect_positive("UpSampling3D", "size", times);
    name = std::move(given_name);
  }
  const char* kind() const override { return "UpSampling3D"; }
  Shape build(const std::vector<Shape>& in) override {
    Shape out = expect_volume(in);
    for (int axis = 0; axis < 3; ++axis) out[axis] *= size_[static_cast<size_t>(axis)];
    return out;
  }
  Tensor call(const LayerCall& call) const override {
    return by_images(
        call.in[0],
        [&](const Tensor& x) {
          return upsample(x, {.size = {size_[0], size_[1]}});
        },
        [&](const Tensor& x) {
          return upsample(x, {.size = {1, size_[2]}});
        });
  }

 private:
  std::array<int64_t, 3> size_;
};

// For each plane of the kernel the gradient of a convolution of images, run forwards; planes of the
// results are moved to where they belong and added up.
class Conv3DTransposeLayer final : public PlainLayer {
 public:
  Conv3DTransposeLayer(int64_t filters, Triple kernel, Conv3DTransposeOptions options)
      : filters_(filters), kernel_(kernel.value), options_(std::move(options)) {
    constexpr const char* layer = "Conv3DTranspose";
    expect_positive(layer, "filters", filters);
    for (size_t i = 0; i < 3; ++i) {
      expect_positive(layer, "kernel_size", kernel_[i]);
      expect_positive(layer, "strides", options_.strides.value[i]);
      expect_positive(layer, "dilation_rate", options_.dilation_rate.value[i]);
      if (options_.output_padding)
        expect_output_padding(layer, options_.output_padding->value[i], options_.strides.value[i]);
    }
    expect_padding(layer, options_.padding);
    check_activation(options_.activation);
    check_rules(kernel_rules(options_));
    check_rules(bias_rules(options_));
    check_regularizer(options_.activity_regularizer);
    activity_regularizer = options_.activity_regularizer;
    set_common(*this, options_);
  }
  const char* kind() const override { return "Conv3DTranspose"; }

  Shape build(const std::vector<Shape>& in) override {
    const Shape& volume = expect_volume(in);
    if (*std::min_element(volume.begin(), volume.end()) < 1)
      throw UserError("expected volumes with pixels and channels, received " + volume.text());
    const Shape kernel{kernel_[0], kernel_[1], kernel_[2], filters_, volume[3]};
    if (!weights_.empty() && weights_[0].shape != kernel)
      throw UserError("expected the channels of its first call, received " + volume.text());
    if (weights_.empty()) {
      add_weight("kernel", kernel, kernel_rules(options_));
      if (options_.use_bias) add_weight("bias", Shape{filters_}, bias_rules(options_));
    }
    return {out_size(0, volume[0]), out_size(1, volume[1]), out_size(2, volume[2]), filters_};
  }

  Tensor call(const LayerCall& call) const override {
    const Shape s = call.in[0].shape();  // (B, D, H, W, C)
    const Dim depth = out_size(0, s[1]), height = out_size(1, s[2]), width = out_size(2, s[3]);
    const Tensor x = reshape(call.in[0], {s[0] * s[1], s[2], s[3], s[4]});
    const auto &strides = options_.strides.value, &dilations = options_.dilation_rate.value;
    // Zeros that the convolution from the large volumes to the small ones puts in front.
    const Dim all = std::max<Dim>((s[1] - 1) * strides[0] + reach(0) - depth, 0);
    const Dim before = options_.padding == "same" ? all / 2 : 0;
    Tensor sum;  // (B, OD, OH * OW * O, 1)
    for (Dim k = 0; k < kernel_[0]; ++k) {
      const Tensor plane =
          reshape(slice(call.weights[0], 0, k, 1), {kernel_[1], kernel_[2], filters_, s[4]});
      const Tensor images =
          conv2d_input_gradient(plane, x, Shape{s[0] * s[1], height, width, filters_},
                                {.strides = {strides[1], strides[2]},
                                 .padding = options_.padding,
                                 .dilations = {dilations[1], dilations[2]}});
      const Tensor placed = placed_at(images, s, depth, k * dilations[0] - before);
      sum = sum.defined() ? add(sum, placed) : placed;
    }
    Tensor y = reshape(sum, {s[0], depth, height, width, filters_});
    if (options_.use_bias) y = add(y, cast(call.weights[1], y.dtype()));
    return activate(options_.activation, y);
  }

 private:
  Dim reach(size_t axis) const {
    return (kernel_[axis] - 1) * options_.dilation_rate.value[axis] + 1;
  }
  Dim out_size(size_t axis, Dim in) const {
    std::optional<Dim> more;
    if (options_.output_padding) more = options_.output_padding->value[axis];
    return transposed_size(in, reach(axis), options_.strides.value[axis],
                           options_.padding == "same", more);
  }
  // Images (B * D, ...) as planes first, first + stride, ... of (B, depth, plane, 1); those outside
  // are dropped. s: of the layer's input.
  Tensor placed_at(const Tensor& images, const Shape& s, Dim depth, Dim first) const {
    const Dim stride = options_.strides.value[0];
    const Dim plane = images.shape().without_front().elements();
    Tensor planes = reshape(images, {s[0], s[1], 1, plane});
    if (stride > 1) planes = pad(planes, {0, 0, 0, stride - 1});
    planes = reshape(planes, {s[0], s[1] * stride, plane, 1});
    const Dim behind = depth - first - s[1] * stride;
    if (first < 0 || behind < 0)
      planes = crop(planes, {std::max<Dim>(-first, 0), std::max<Dim>(-behind, 0), 0, 0});
    if (first > 0 || behind > 0)
      planes = pad(planes, {std::max<Dim>(first, 0), std::max<Dim>(behind, 0), 0, 0});
    return planes;
  }

  int64_t filters_;
  std::array<int64_t, 3> kernel_;
  Conv3DTransposeOptions options_;
};

}  // namespace

LayerRef ZeroPadding3D(Padding3D padding, std::string name) {
  return std::make_shared<Padding3DLayer>(false, padding, std::move(name));
}
LayerRef Cropping3D(Padding3D cropping, std::string name) {
  return std::make_shared<Padding3DLayer>(true, cropping, std::move(name));
}
LayerRef UpSampling3D(Triple size, std::string name) {
  return std::make_shared<UpSampling3DLayer>(size, std::move(name));
}
LayerRef Conv3DTranspose(int64_t filters, Triple kernel_size, Conv3DTransposeOptions options) {
  return std::make_shared<Conv3DTransposeLayer>(filters, kernel_size, std::move(options));
}

}  // namespace pl
