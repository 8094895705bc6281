#include "model/resnet.h"

#include "model/layers.h"

namespace pl {
namespace {

// What tells one family from the other.
struct Style {
  bool bias;
  double momentum, epsilon;
};
constexpr Style kKeras{true, 0.99, 1.001e-5};  // resnet50
constexpr Style kTorch{false, 0.9, 1e-5};      // resnet18

// Names are NAME_conv and NAME_bn.
Symbolic conv_bn(const Style& style, const Symbolic& x, int64_t filters, int64_t kernel,
                 int64_t stride, const std::string& name, const std::string& padding = "valid") {
  const Symbolic y = Conv2D(
      filters, kernel,
      {.strides = stride, .padding = padding, .use_bias = style.bias, .name = name + "_conv"})(x);
  return BatchNormalization(
      {.momentum = style.momentum, .epsilon = style.epsilon, .name = name + "_bn"})(y);
}

Symbolic relu_of(const Symbolic& x, const std::string& name) { return Activation("relu", name)(x); }

Symbolic pad(const Symbolic& x, int64_t size, const std::string& name) {
  return ZeroPadding2D(size, name)(x);
}

// 7x7 at stride 2, then 3x3 pooling at stride 2: (H, W, C) to (H / 4, W / 4, 64).
Symbolic stem(const Style& style, const Symbolic& image) {
  Symbolic x = conv_bn(style, pad(image, 3, "conv1_pad"), 64, 7, 2, "conv1");
  x = pad(relu_of(x, "conv1_relu"), 1, "pool1_pad");  // of what is not negative: 0 never wins
  return MaxPooling2D(3, {.strides = 2, .name = "pool1_pool"})(x);
}

Symbolic head(const Symbolic& x, int64_t classes) {
  return Dense(classes, {.activation = "softmax", .name = "predictions"})(
      GlobalAveragePooling2D({.name = "avg_pool"})(x));
}

// Two 3x3 convolutions beside a shortcut, which has a 1x1 convolution where the size changes.
Symbolic basic_block(const Symbolic& x, int64_t filters, int64_t stride, const std::string& name) {
  Symbolic y = conv_bn(kTorch, pad(x, 1, name + "_1_pad"), filters, 3, stride, name + "_1");
  y = pad(relu_of(y, name + "_1_relu"), 1, name + "_2_pad");
  y = conv_bn(kTorch, y, filters, 3, 1, name + "_2");
  const Symbolic shortcut = stride > 1 ? conv_bn(kTorch, x, filters, 1, stride, name + "_0") : x;
  return relu_of(Add(name + "_add")({shortcut, y}), name + "_out");
}

// 1x1, 3x3, 1x1 with four times the filters; the first block of a stack has a convolution in its
// shortcut, and the stride in its first convolution.
Symbolic bottleneck(const Symbolic& x, int64_t filters, int64_t stride, bool first,
                    const std::string& name) {
  const Symbolic shortcut = first ? conv_bn(kKeras, x, 4 * filters, 1, stride, name + "_0") : x;
  Symbolic y = relu_of(conv_bn(kKeras, x, filters, 1, stride, name + "_1"), name + "_1_relu");
  y = relu_of(conv_bn(kKeras, y, filters, 3, 1, name + "_2", "same"), name + "_2_relu");
  y = conv_bn(kKeras, y, 4 * filters, 1, 1, name + "_3");
  return relu_of(Add(name + "_add")({shortcut, y}), name + "_out");
}

std::string block_name(int stack, int block) {
  return "conv" + std::to_string(stack) + "_block" + std::to_string(block);
}

}  // namespace

Symbolic resnet18(const Symbolic& image, int64_t classes) {
  Symbolic x = stem(kTorch, image);
  for (int stack = 2; stack <= 5; ++stack)
    for (int block = 1; block <= 2; ++block)
      x = basic_block(x, int64_t{16} << stack, stack > 2 && block == 1 ? 2 : 1,
                      block_name(stack, block));
  return head(x, classes);
}

Symbolic resnet50(const Symbolic& image, int64_t classes) {
  constexpr int kBlocks[] = {3, 4, 6, 3};  // of stacks 2 to 5
  Symbolic x = stem(kKeras, image);
  for (int stack = 2; stack <= 5; ++stack)
    for (int block = 1; block <= kBlocks[stack - 2]; ++block)
      x = bottleneck(x, int64_t{16} << stack, stack > 2 && block == 1 ? 2 : 1, block == 1,
                     block_name(stack, block));
  return head(x, classes);
}

}  // namespace pl
