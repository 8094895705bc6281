// Rescaling, Normalization, and the layers that change images at random.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "model/layers.h"
#include "model/rules.h"
#include "model/spatial.h"
#include "op/functions.h"

namespace pl {
namespace {

class RescalingLayer final : public PlainLayer {
 public:
  RescalingLayer(double factor, double offset, std::string given_name)
      : factor_(factor), offset_(offset) {
    name = std::move(given_name);
  }
  const char* kind() const override { return "Rescaling"; }
  bool supports_masking() const override { return true; }
  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1)
      throw UserError("expected one input, received " + std::to_string(in.size()));
    return in[0];
  }
  Tensor call(const LayerCall& call) const override { return scale(call.in[0], factor_, offset_); }

 private:
  double factor_, offset_;
};

class NormalizationLayer final : public PlainLayer {
 public:
  explicit NormalizationLayer(NormalizationOptions options) : options_(std::move(options)) {
    if (options_.mean.size() != options_.variance.size())
      throw UserError("[Normalization] expected as many means as variances, received " +
                      std::to_string(options_.mean.size()) + " and " +
                      std::to_string(options_.variance.size()));
    for (double variance : options_.variance)
      if (!(variance >= 0))
        throw UserError("[Normalization] variance: expected numbers from 0, received " +
                        std::to_string(variance));
    set_common(*this, options_);
  }
  const char* kind() const override { return "Normalization"; }
  bool supports_masking() const override { return true; }

  Shape build(const std::vector<Shape>& in) override {
    if (in.size() != 1)
      throw UserError("expected one input, received " + std::to_string(in.size()));
    const Shape places = places_of(in[0]);
    if (!weights_.empty() && weights_[0].shape != places)
      throw UserError("expected samples as in its first call, with places " +
                      weights_[0].shape.text() + ", received " + in[0].text());
    if (weights_.empty()) {
      add_weight("mean", places, values(options_.mean, places, "zeros"), false);
      add_weight("variance", places, values(options_.variance, places, "ones"), false);
    }
    return in[0];
  }

  Tensor call(const LayerCall& call) const override {
    const Tensor x = cast(call.in[0], wide(call.in[0].dtype()));
    std::vector<Dim> dims(static_cast<size_t>(x.shape().rank()), 1);
    for (int axis : axes_of(x.shape().rank())) dims[static_cast<size_t>(axis)] = x.shape()[axis];
    const Tensor mean = reshape(call.weights[0], dims);
    const Tensor deviation =
        maximum(sqrt(reshape(call.weights[1], dims)), fill({}, 1e-7, x.dtype()));
    const Tensor y =
        options_.invert ? add(multiply(x, deviation), mean) : divide(subtract(x, mean), deviation);
    return cast(y, call.in[0].dtype());
  }

  void adapt(const Tensor& data);

 private:
  // Axes of a batch that are kept, in order.
  std::vector<int> axes_of(int rank) const {
    std::vector<int> axes;
    for (int64_t wanted : options_.axis) {
      const int64_t axis = wanted < 0 ? wanted + rank : wanted;
      if (axis < 1 || axis >= rank)
        throw UserError("expected axes behind the batch, below " + std::to_string(rank) +
                        ", received " + std::to_string(wanted));
      axes.push_back(static_cast<int>(axis));
    }
    std::sort(axes.begin(), axes.end());
    return axes;
  }
  Shape places_of(const Shape& sample) const {
    std::vector<Dim> dims;
    for (int axis : axes_of(sample.rank() + 1)) dims.push_back(sample[axis - 1]);
    return Shape(std::move(dims));
  }
  static std::string values(std::vector<double> given, const Shape& places, const char* otherwise) {
    if (given.empty()) return otherwise;
    if (given.size() == 1) given.assign(static_cast<size_t>(places.elements()), given[0]);
    if (static_cast<int64_t>(given.size()) != places.elements())
      throw UserError("expected one mean and variance, or " + std::to_string(places.elements()) +
                      ", received " + std::to_string(given.size()));
    return initializers::Values(given);
  }

  NormalizationOptions options_;
};

double number_at(const Tensor& data, int64_t i) {
  switch (data.dtype()) {
    case Dtype::float32:
      return static_cast<double>(data.data_as<float>()[i]);
    case Dtype::float64:
      return data.data_as<double>()[i];
    case Dtype::int32:
      return static_cast<double>(data.data_as<int32_t>()[i]);
    case Dtype::uint8:
      return static_cast<double>(data.data_as<uint8_t>()[i]);
    default:
      throw UserError("[Normalization] adapt: expected float32, float64, int32 or uint8 data");
  }
}

// Two passes: the variance is that around the mean.
void NormalizationLayer::adapt(const Tensor& data) {
  const Shape& shape = data.shape();
  if (data.is_symbol() || shape.rank() < 1 || shape[0] < 1)
    throw UserError("[Normalization] adapt: expected values (N, ...) of at least one sample");
  const Shape places = places_of(shape.without_front());
  const std::vector<int> axes = axes_of(shape.rank());
  const auto count = static_cast<size_t>(places.elements());
  auto place_of = [&](int64_t i) {
    std::vector<Dim> at(static_cast<size_t>(shape.rank()));
    for (int d = shape.rank() - 1; d >= 0; --d) {
      at[static_cast<size_t>(d)] = i % shape[d];
      i /= shape[d];
    }
    Dim place = 0;
    for (int axis : axes) place = place * shape[axis] + at[static_cast<size_t>(axis)];
    return static_cast<size_t>(place);
  };
  const double each = static_cast<double>(data.meta().elements()) / static_cast<double>(count);
  options_.mean.assign(count, 0);
  options_.variance.assign(count, 0);
  for (int64_t i = 0; i < data.meta().elements(); ++i)
    options_.mean[place_of(i)] += number_at(data, i) / each;
  for (int64_t i = 0; i < data.meta().elements(); ++i) {
    const size_t place = place_of(i);
    const double off = number_at(data, i) - options_.mean[place];
    options_.variance[place] += off * off / each;
  }
  if (weights_.empty()) return;
  weights_[0].initializer = values(options_.mean, places, "zeros");
  weights_[1].initializer = values(options_.variance, places, "ones");
}

class RandomImageLayer final : public PlainLayer {
 public:
  RandomImageLayer(const char* kind, RandomImageOptions options, std::string given_name)
      : kind_(kind), options_(std::move(options)) {
    auto refuse = [&](const std::string& what, const std::string& received) {
      throw UserError("[" + std::string(kind_) + "] " + what + ", received " + received);
    };
    const std::string& fill = options_.fill_mode;
    if (fill != "reflect" && fill != "constant" && fill != "nearest" && fill != "wrap")
      refuse("fill_mode: expected 'reflect', 'constant', 'nearest' or 'wrap'", "'" + fill + "'");
    if (options_.interpolation != "bilinear" && options_.interpolation != "nearest")
      refuse("interpolation: expected 'bilinear' or 'nearest'", "'" + options_.interpolation + "'");
    for (const auto& range : {options_.first, options_.second})
      if (!(range[0] <= range[1] && std::fabs(range[0]) <= 1 && std::fabs(range[1]) <= 1))
        refuse("factor: expected numbers from -1 to 1, the lower one first",
               std::to_string(range[0]) + " and " + std::to_string(range[1]));
    name = std::move(given_name);
  }
  const char* kind() const override { return kind_; }
  Shape build(const std::vector<Shape>& in) override {
    const Shape& image = expect_image(in);
    if (image[0] < 1 || image[1] < 1)
      throw UserError("expected images with at least one pixel, received " + image.text());
    return options_.kind == "crop" ? Shape{options_.size[0], options_.size[1], image[2]} : image;
  }
  Tensor call(const LayerCall& call) const override {
    const Tensor& x = call.in[0];
    const Shape& s = x.shape();
    const bool crop = options_.kind == "crop";
    const bool small = crop && (s[1] <= options_.size[0] || s[2] <= options_.size[1]);
    if (call.training && !small)
      return cast(random_image(cast(x, wide(x.dtype())), call.step_params, call.stream, options_),
                  x.dtype());
    if (!crop || (s[1] == options_.size[0] && s[2] == options_.size[1])) return x;
    return resize(crop_to_ratio(x, options_.size), options_.size);
  }

 private:
  const char* kind_;
  RandomImageOptions options_;
};

LayerRef random_layer(const char* kind, RandomImageOptions options,
                      const RandomImageLayerOptions& given) {
  options.fill_mode = given.fill_mode;
  options.interpolation = given.interpolation;
  options.fill_value = given.fill_value;
  LayerRef layer(std::make_shared<RandomImageLayer>(kind, std::move(options), given.name));
  layer->seed = given.seed;
  return layer;
}

}  // namespace

LayerRef Rescaling(double scale, double offset, std::string name) {
  return LayerRef(std::make_shared<RescalingLayer>(scale, offset, std::move(name)));
}
LayerRef Normalization(NormalizationOptions options) {
  return LayerRef(std::make_shared<NormalizationLayer>(std::move(options)));
}
void adapt(const LayerRef& normalization, const Tensor& data) {
  auto* layer = dynamic_cast<NormalizationLayer*>(normalization.get().get());
  if (!layer)
    throw UserError("[adapt] expected a Normalization, received a " +
                    std::string(normalization->kind()));
  layer->adapt(data);
}
LayerRef RandomFlip(std::string mode, RandomLayerOptions given) {
  if (mode != "horizontal" && mode != "vertical" && mode != "horizontal_and_vertical")
    throw UserError(
        "[RandomFlip] mode: expected 'horizontal', 'vertical' or 'horizontal_and_vertical', "
        "received '" +
        mode + "'");
  RandomImageOptions options{.kind = "flip"};
  if (mode != "vertical") options.first[1] = 1;
  if (mode != "horizontal") options.second[1] = 1;
  return random_layer("RandomFlip", options, {.seed = given.seed, .name = std::move(given.name)});
}
LayerRef RandomCrop(int64_t height, int64_t width, RandomLayerOptions given) {
  expect_positive("RandomCrop", "height and width", Pair(height, width));
  return random_layer("RandomCrop", {.kind = "crop", .size = {height, width}},
                      {.seed = given.seed, .name = std::move(given.name)});
}
LayerRef RandomRotation(Factor factor, RandomImageLayerOptions options) {
  return random_layer("RandomRotation", {.kind = "rotation", .first = factor.value}, options);
}
LayerRef RandomTranslation(Factor height_factor, Factor width_factor,
                           RandomImageLayerOptions options) {
  return random_layer(
      "RandomTranslation",
      {.kind = "translation", .first = height_factor.value, .second = width_factor.value}, options);
}
LayerRef RandomZoom(Factor height_factor, std::optional<Factor> width_factor,
                    RandomImageLayerOptions options) {
  RandomImageOptions zoom{.kind = "zoom", .first = height_factor.value};
  if (width_factor) zoom.second = width_factor->value;
  zoom.joint = !width_factor;
  return random_layer("RandomZoom", zoom, options);
}

}  // namespace pl
