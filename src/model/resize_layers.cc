// ZeroPadding2D and UpSampling2D.
#include "base/error.h"
#include "model/layers.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

class ZeroPadding2DLayer final : public Layer {
 public:
  ZeroPadding2DLayer(Padding2D padding, std::string given_name) : pads_(padding.value) {
    for (int64_t size : pads_)
      if (size < 0)
        throw UserError("[ZeroPadding2D] padding: expected numbers from 0, received " +
                        std::to_string(size));
    name = std::move(given_name);
  }
  const char* kind() const override { return "ZeroPadding2D"; }
  std::string config() const override {
    return "((" + std::to_string(pads_[0]) + ", " + std::to_string(pads_[1]) + "), (" +
           std::to_string(pads_[2]) + ", " + std::to_string(pads_[3]) + "))";
  }
  Shape build(const std::vector<Shape>& in) override {
    const Attrs attrs{{"pads", std::vector<int64_t>(pads_.begin(), pads_.end())}};
    return kPad.infer({{Dtype::float32, expect_image(in).with_front(1)}}, attrs)[0]
        .shape.without_front();
  }
  Tensor call(const LayerCall& call) const override { return pad(call.in[0], pads_); }

 private:
  std::array<int64_t, 4> pads_;  // top, bottom, left, right
};

class UpSampling2DLayer final : public Layer {
 public:
  UpSampling2DLayer(Pair size, UpSampling2DOptions options)
      : size_(size), options_(std::move(options)) {
    expect_positive("UpSampling2D", "size", size_);
    if (options_.interpolation != "nearest" && options_.interpolation != "bilinear")
      throw UserError("[UpSampling2D] interpolation: expected 'nearest' or 'bilinear', received '" +
                      options_.interpolation + "'");
    name = options_.name;
  }
  const char* kind() const override { return "UpSampling2D"; }
  std::string config() const override { return text_of(size_) + " " + options_.interpolation; }
  Shape build(const std::vector<Shape>& in) override {
    const Attrs attrs{{"size", list_of(size_)}, {"interpolation", options_.interpolation}};
    return kUpsample.infer({{Dtype::float32, expect_image(in).with_front(1)}}, attrs)[0]
        .shape.without_front();
  }
  Tensor call(const LayerCall& call) const override {
    return upsample(call.in[0], {.size = size_.value, .interpolation = options_.interpolation});
  }

 private:
  Pair size_;
  UpSampling2DOptions options_;
};

}  // namespace

LayerRef ZeroPadding2D(Padding2D padding, std::string name) {
  return LayerRef(std::make_shared<ZeroPadding2DLayer>(padding, std::move(name)));
}
LayerRef UpSampling2D(Pair size, UpSampling2DOptions options) {
  return LayerRef(std::make_shared<UpSampling2DLayer>(size, std::move(options)));
}

}  // namespace pl
