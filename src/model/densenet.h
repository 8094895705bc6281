// DenseNet-121, layer for layer as keras.applications builds it:
//   conv1_conv/kernel, conv1_bn/gamma, conv2_block1_0_bn/gamma, conv2_block1_1_conv/kernel, ...,
//   pool2_conv/kernel, ..., bn/gamma, predictions/kernel
#pragma once

#include "model/layer.h"
#include "model/network.h"

namespace pl {

// image (H, W, C), an Input(). Result: probabilities (classes,).
Symbolic densenet121(const Symbolic& image, int64_t classes);

}  // namespace pl
