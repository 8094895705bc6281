#include "model/densenet.h"

#include "model/layers.h"

namespace pl {
namespace {

constexpr int64_t kGrowth = 32;  // channels that a block adds

// Names are NAME_bn and NAME_relu.
Symbolic norm_relu(const Symbolic& x, const std::string& name) {
  return Activation(
      "relu", name + "_relu")(BatchNormalization({.epsilon = 1.001e-5, .name = name + "_bn"})(x));
}

// x (H, W, C) and 32 channels made of it: (H, W, C + 32).
Symbolic dense_block(const Symbolic& x, const std::string& name) {
  Symbolic y = Conv2D(4 * kGrowth, 1,
                      {.use_bias = false, .name = name + "_1_conv"})(norm_relu(x, name + "_0"));
  y = Conv2D(kGrowth, 3, {.padding = "same", .use_bias = false, .name = name + "_2_conv"})(
      norm_relu(y, name + "_1"));
  return Concatenate(-1, name + "_concat")({x, y});
}

// Half the channels, half the height and width.
Symbolic transition(Symbolic x, const std::string& name) {
  const int64_t channels = x.shape()[2];
  x = Conv2D(channels / 2, 1, {.use_bias = false, .name = name + "_conv"})(norm_relu(x, name));
  return AveragePooling2D(2, {.strides = 2, .name = name + "_pool"})(x);
}

}  // namespace

Symbolic densenet121(const Symbolic& image, int64_t classes) {
  constexpr int kBlocks[] = {6, 12, 24, 16};  // of stacks 2 to 5
  Symbolic x = Conv2D(
      64, 7, {.strides = 2, .use_bias = false, .name = "conv1_conv"})(ZeroPadding2D(3)(image));
  x = MaxPooling2D(3, {.strides = 2, .name = "pool1"})(ZeroPadding2D(1)(norm_relu(x, "conv1")));
  for (int stack = 2; stack <= 5; ++stack) {
    for (int block = 1; block <= kBlocks[stack - 2]; ++block)
      x = dense_block(x, "conv" + std::to_string(stack) + "_block" + std::to_string(block));
    if (stack < 5) x = transition(x, "pool" + std::to_string(stack));
  }
  x = Activation("relu", "relu")(BatchNormalization({.epsilon = 1.001e-5, .name = "bn"})(x));
  return Dense(classes, {.activation = "softmax", .name = "predictions"})(
      GlobalAveragePooling2D({.name = "avg_pool"})(x));
}

}  // namespace pl
