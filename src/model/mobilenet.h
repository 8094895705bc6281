// MobileNetV2 with width 1, layer for layer as keras.applications builds it:
//   Conv1/kernel, bn_Conv1/gamma, expanded_conv_depthwise/kernel, block_1_expand/kernel, ...,
//   Conv_1/kernel, predictions/kernel
#pragma once

#include "model/layer.h"
#include "model/network.h"

namespace pl {

// image (H, W, C), an Input(). Result: probabilities (classes,).
Symbolic mobilenet_v2(const Symbolic& image, int64_t classes);

}  // namespace pl
