// Layers that prepare images and features inside of the model. The random ones do nothing when not
// training; what they do depends on the seed, the step, the layer and the sample alone. Included by
// layers.h.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "model/layer.h"

namespace pl {

LayerRef Rescaling(double scale, double offset = 0, std::string name = "");  // x * scale + offset

// (x - mean) / sqrt(variance), for each place along the axes (the batch is 0; none: one number for
// all). mean and variance are given here, or by `adapt`, before the model is used; they are weights
// that no optimiser touches.
struct NormalizationOptions {
  std::vector<int64_t> axis = {-1};
  std::vector<double> mean = {}, variance = {};  // one number, or one for each place
  bool invert = false;
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef Normalization(NormalizationOptions options = {});
// Sets the mean and variance of a Normalization to those of data (N, ...).
void adapt(const LayerRef& normalization, const Tensor& data);

// Half of the images: "horizontal", "vertical" or "horizontal_and_vertical" (both at once).
struct RandomLayerOptions {
  std::optional<uint64_t> seed = {};  // Layer::seed
  std::string name = "";
};
LayerRef RandomFlip(std::string mode = "horizontal_and_vertical", RandomLayerOptions options = {});
// The window in the middle; images that are smaller are resized, as for RandomCrop.
LayerRef CenterCrop(int64_t height, int64_t width, std::string name = "");
// A window at a random place, one for the batch; when not training, or where images are too small,
// the largest one in the middle with this shape, resized.
LayerRef RandomCrop(int64_t height, int64_t width, RandomLayerOptions options = {});

// A number in [-factor, factor], or in [lower, upper].
struct Factor {
  Factor(double both) : value{-both, both} {}
  Factor(double lower, double upper) : value{lower, upper} {}
  std::array<double, 2> value;
};
struct RandomImageLayerOptions {
  std::string fill_mode = "reflect";       // or "constant", "nearest", "wrap"
  std::string interpolation = "bilinear";  // or "nearest"
  std::optional<uint64_t> seed = {};       // Layer::seed
  double fill_value = 0;
  std::string name = "";
};
LayerRef RandomRotation(Factor factor, RandomImageLayerOptions options = {});  // of a full turn
LayerRef RandomTranslation(Factor height_factor, Factor width_factor,
                           RandomImageLayerOptions options = {});
LayerRef RandomZoom(Factor height_factor, std::optional<Factor> width_factor = {},
                    RandomImageLayerOptions options = {});

}  // namespace pl
