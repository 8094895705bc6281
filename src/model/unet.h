// U-Net without normalisation: levels of two 3x3 convolutions on the way down, each halving the
// image, and on the way up, each beside what the way down left there. Weights:
//   down1_conv1/kernel, ..., bottom_conv1/kernel, ..., up4_transpose/kernel, up4_conv1/kernel, ...,
//   head/kernel
#pragma once

#include "model/layer.h"
#include "model/network.h"

namespace pl {

struct UnetConfig {
  int levels;
  int64_t channels;  // of the first level; the next ones have twice as many, and so has the bottom
};

inline constexpr UnetConfig kUnet{4, 32};

// image (H, W, C), an Input() whose height and width are multiples of 2^levels. Result: for each
// pixel the probabilities of its class (H, W, classes).
Symbolic unet(const UnetConfig& config, const Symbolic& image, int64_t classes);

}  // namespace pl
