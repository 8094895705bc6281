// ZeroPadding2D, Cropping2D, UpSampling2D, Resizing and CenterCrop.
#include <algorithm>

#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

// Rows and columns of zeros around images, or taken off them.
class Padding2DLayer final : public PlainLayer {
 public:
  Padding2DLayer(bool crop, Padding2D padding, std::string given_name)
      : crop_(crop), pads_(padding.value) {
    for (int64_t size : pads_)
      if (size < 0)
        throw UserError("[" + std::string(kind()) + "] " + (crop ? "cropping" : "padding") +
                        ": expected numbers from 0, received " + std::to_string(size));
    name = std::move(given_name);
  }
  const char* kind() const override { return crop_ ? "Cropping2D" : "ZeroPadding2D"; }
  std::string config() const override {
    return "((" + std::to_string(pads_[0]) + ", " + std::to_string(pads_[1]) + "), (" +
           std::to_string(pads_[2]) + ", " + std::to_string(pads_[3]) + "))";
  }
  Shape build(const std::vector<Shape>& in) override {
    const Attrs attrs{{"pads", std::vector<int64_t>(pads_.begin(), pads_.end())}};
    return (crop_ ? kCrop : kPad)
        .infer({{Dtype::float32, expect_image(in).with_front(1)}}, attrs)[0]
        .shape.without_front();
  }
  Tensor call(const LayerCall& call) const override {
    return crop_ ? crop(call.in[0], pads_) : pad(call.in[0], pads_);
  }

 private:
  bool crop_;
  std::array<int64_t, 4> pads_;  // top, bottom, left, right
};

void expect_interpolation(const char* layer, const std::string& interpolation) {
  if (resize_reach(interpolation) < 0)
    throw UserError("[" + std::string(layer) +
                    "] interpolation: expected nearest, bilinear, bicubic, lanczos3 or lanczos5, " +
                    "received '" + interpolation + "'");
}

class UpSampling2DLayer final : public PlainLayer {
 public:
  UpSampling2DLayer(Pair size, UpSampling2DOptions options)
      : size_(size), options_(std::move(options)) {
    expect_positive("UpSampling2D", "size", size_);
    expect_interpolation("UpSampling2D", options_.interpolation);
    set_common(*this, options_);
  }
  const char* kind() const override { return "UpSampling2D"; }
  std::string config() const override { return text_of(size_) + " " + options_.interpolation; }
  Shape build(const std::vector<Shape>& in) override {
    const Attrs attrs{{"size", list_of(size_)}};
    return kUpsample.infer({{Dtype::float32, expect_image(in).with_front(1)}}, attrs)[0]
        .shape.without_front();
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    if (resize_reach(options_.interpolation) < 2)
      return upsample(x, {.size = size_.value, .interpolation = options_.interpolation});
    return resize(x, {x.shape()[1] * size_.value[0], x.shape()[2] * size_.value[1]},
                  options_.interpolation);
  }

 private:
  Pair size_;
  UpSampling2DOptions options_;
};

// The window in the middle; where images are smaller, the largest one with its shape, resized.
class CenterCropLayer final : public PlainLayer {
 public:
  CenterCropLayer(Pair size, std::string given_name) : size_(size) {
    expect_positive("CenterCrop", "height and width", size_);
    name = std::move(given_name);
  }
  const char* kind() const override { return "CenterCrop"; }
  std::string config() const override { return text_of(size_); }
  Shape build(const std::vector<Shape>& in) override {
    const Shape& image = expect_image(in);
    if (image[0] < 1 || image[1] < 1)
      throw UserError("expected images with at least one pixel, received " + image.text());
    return {size_.value[0], size_.value[1], image[2]};
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    const Dim height = x.shape()[1] - size_.value[0], width = x.shape()[2] - size_.value[1];
    if (height < 0 || width < 0) return resize(crop_to_ratio(x, size_.value), size_.value);
    const Dim top = height / 2, left = width / 2;
    return height + width == 0 ? x : crop(x, {top, height - top, left, width - left});
  }

 private:
  Pair size_;
};

class ResizingLayer final : public PlainLayer {
 public:
  ResizingLayer(Pair size, ResizingOptions options) : size_(size), options_(std::move(options)) {
    expect_positive("Resizing", "height and width", size_);
    expect_interpolation("Resizing", options_.interpolation);
    if (options_.fill_mode != "constant")
      throw UserError("[Resizing] fill_mode: expected 'constant', received '" + options_.fill_mode +
                      "'");
    if (options_.crop_to_aspect_ratio && options_.pad_to_aspect_ratio)
      throw UserError(
          "[Resizing] expected crop_to_aspect_ratio or pad_to_aspect_ratio, received both");
    set_common(*this, options_);
  }
  const char* kind() const override { return "Resizing"; }
  std::string config() const override { return text_of(size_) + " " + options_.interpolation; }
  Shape build(const std::vector<Shape>& in) override {
    const Shape& image = expect_image(in);
    if (image[0] < 1 || image[1] < 1)
      throw UserError("expected images with at least one pixel, received " + image.text());
    return {size_.value[0], size_.value[1], image[2]};
  }
  Tensor call(const LayerCall& call) const override {
    Tensor x = call.in[0];
    if (options_.crop_to_aspect_ratio) x = crop_to_ratio(x, size_.value);
    if (options_.pad_to_aspect_ratio) x = pad_to_ratio(x);
    return resize(x, size_.value, options_.interpolation, options_.antialias);
  }

 private:
  Tensor framed(const Tensor& x, const Pads& pads) const {
    const Tensor inside = pad(x, pads);
    if (options_.fill_value == 0) return inside;
    const Tensor ones = fill(Shape{1, x.shape()[1], x.shape()[2], 1}, 1, x.dtype());
    return add(inside, scale(pad(ones, pads), -options_.fill_value, options_.fill_value));
  }

  // Keras's frame: rounded down, and as wide on either side.
  Tensor pad_to_ratio(const Tensor& x) const {
    const Dim height = x.shape()[1], width = x.shape()[2];
    const Dim tall = std::max(height, width * size_.value[0] / size_.value[1]);
    const Dim wide = std::max(width, height * size_.value[1] / size_.value[0]);
    const Dim top = (tall - height) / 2, left = (wide - width) / 2;
    if (top > 0) return framed(x, {top, top, 0, 0});
    return left > 0 ? framed(x, {0, 0, left, left}) : x;
  }

  Pair size_;
  ResizingOptions options_;
};

}  // namespace

// The largest window in the middle with the shape of `size`, rounded down as Keras does.
Tensor crop_to_ratio(const Tensor& x, const std::array<int64_t, 2>& size) {
  const Dim height = x.shape()[1], width = x.shape()[2];
  const Dim tall = std::clamp<Dim>(width * size[0] / size[1], 1, height);
  const Dim wide = std::clamp<Dim>(height * size[1] / size[0], 1, width);
  const Dim top = (height - tall) / 2, left = (width - wide) / 2;
  if (tall == height && wide == width) return x;
  return crop(x, {top, height - tall - top, left, width - wide - left});
}

LayerRef ZeroPadding2D(Padding2D padding, std::string name) {
  return LayerRef(std::make_shared<Padding2DLayer>(false, padding, std::move(name)));
}
LayerRef Cropping2D(Padding2D cropping, std::string name) {
  return LayerRef(std::make_shared<Padding2DLayer>(true, cropping, std::move(name)));
}
LayerRef Resizing(int64_t height, int64_t width, ResizingOptions options) {
  return LayerRef(std::make_shared<ResizingLayer>(Pair(height, width), std::move(options)));
}
LayerRef CenterCrop(int64_t height, int64_t width, std::string name) {
  return LayerRef(std::make_shared<CenterCropLayer>(Pair(height, width), std::move(name)));
}
LayerRef UpSampling2D(Pair size, UpSampling2DOptions options) {
  return LayerRef(std::make_shared<UpSampling2DLayer>(size, std::move(options)));
}

}  // namespace pl
