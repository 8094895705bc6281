// Layers that are active while training alone: dropout and noise, with Keras's names and
// defaults. Part of the list in layers.h.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "model/layer.h"

namespace pl {

struct DropoutOptions {
  // What is dropped together, in the form of the input with its batch: 1 where one draw is for all,
  // 0 for the input's own size, Keras's None.
  std::vector<Dim> noise_shape = {};
  std::optional<uint64_t> seed = {};  // Layer::seed
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef Dropout(double rate, DropoutOptions options = {});
LayerRef Dropout(double rate, const char* name);
// Whole channels at once.
struct NoiseOptions {
  std::optional<uint64_t> seed = {};
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef SpatialDropout1D(double rate, NoiseOptions options = {});
LayerRef SpatialDropout2D(double rate, NoiseOptions options = {});
LayerRef SpatialDropout3D(double rate, NoiseOptions options = {});
// While training: plus normal noise; times normal noise around 1; dropout that keeps mean and
// variance of what selu makes.
LayerRef GaussianNoise(double stddev, NoiseOptions options = {});
LayerRef GaussianDropout(double rate, NoiseOptions options = {});
LayerRef AlphaDropout(double rate, DropoutOptions options = {});
LayerRef AlphaDropout(double rate, const char* name);
// Hands its input on, and adds l1 * sum(|x|) + l2 * sum(x^2), divided by the batch, to the loss.
struct ActivityRegularizationOptions {
  double l1 = 0;
  double l2 = 0;
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef ActivityRegularization(ActivityRegularizationOptions options = {});

}  // namespace pl
