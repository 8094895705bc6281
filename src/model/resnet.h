// ResNet v1: resnet50 layer for layer as keras.applications builds it (biases before
// normalisation, epsilon 1.001e-5), resnet18 as torchvision does (no biases, momentum 0.9, epsilon
// 1e-5, padding before strided convolutions) under names of the same kind:
//   conv1_conv/kernel, conv1_bn/gamma, conv2_block1_1_conv/kernel, conv2_block1_1_bn/gamma, ...,
//   conv3_block1_0_conv/kernel (the shortcut's), predictions/kernel
#pragma once

#include "model/layer.h"
#include "model/network.h"

namespace pl {

// image (H, W, C), an Input(). Result: probabilities (classes,).
Symbolic resnet18(const Symbolic& image, int64_t classes);
Symbolic resnet50(const Symbolic& image, int64_t classes);

}  // namespace pl
