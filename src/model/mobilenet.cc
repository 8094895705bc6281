#include "model/mobilenet.h"

#include "model/layers.h"

namespace pl {
namespace {

Symbolic norm(const Symbolic& x, const std::string& name) {
  return BatchNormalization({.momentum = 0.999, .epsilon = 1e-3, .name = name})(x);
}

Symbolic relu6(const Symbolic& x, const std::string& name) {
  return ReLU({.max_value = 6, .name = name})(x);
}

// Before a 3x3 convolution at stride 2: of even sizes only the far side is padded.
Symbolic pad_for_stride(const Symbolic& x, const std::string& name) {
  const int64_t top = x.shape()[0] % 2, left = x.shape()[1] % 2;
  return ZeroPadding2D({{top, 1}, {left, 1}}, name)(x);
}

struct Block {
  int64_t filters, stride;
};

// 1x1 to six times the channels (not in block 0), depthwise 3x3, 1x1 to `filters`; what keeps its
// shape is added to its input.
Symbolic inverted_residual(const Symbolic& in, const Block& block, int id) {
  const int64_t channels = in.shape()[2];
  const std::string name = id == 0 ? "expanded_conv_" : "block_" + std::to_string(id) + "_";
  Symbolic x = in;
  if (id > 0) {
    x = Conv2D(6 * channels, 1, {.padding = "same", .use_bias = false, .name = name + "expand"})(x);
    x = relu6(norm(x, name + "expand_BN"), name + "expand_relu");
  }
  if (block.stride == 2) x = pad_for_stride(x, name + "pad");
  x = DepthwiseConv2D(3, {.strides = block.stride,
                          .padding = block.stride == 1 ? "same" : "valid",
                          .use_bias = false,
                          .name = name + "depthwise"})(x);
  x = relu6(norm(x, name + "depthwise_BN"), name + "depthwise_relu");
  x = Conv2D(block.filters, 1, {.padding = "same", .use_bias = false, .name = name + "project"})(x);
  x = norm(x, name + "project_BN");
  if (channels != block.filters || block.stride != 1) return x;
  return Add(name + "add")({in, x});
}

}  // namespace

Symbolic mobilenet_v2(const Symbolic& image, int64_t classes) {
  constexpr Block kBlocks[] = {{16, 1}, {24, 2},  {24, 1},  {32, 2},  {32, 1}, {32, 1},
                               {64, 2}, {64, 1},  {64, 1},  {64, 1},  {96, 1}, {96, 1},
                               {96, 1}, {160, 2}, {160, 1}, {160, 1}, {320, 1}};
  Symbolic x =
      Conv2D(32, 3, {.strides = 2, .padding = "same", .use_bias = false, .name = "Conv1"})(image);
  x = relu6(norm(x, "bn_Conv1"), "Conv1_relu");
  int id = 0;
  for (const Block& block : kBlocks) x = inverted_residual(x, block, id++);
  x = Conv2D(1280, 1, {.use_bias = false, .name = "Conv_1"})(x);
  x = relu6(norm(x, "Conv_1_bn"), "out_relu");
  return Dense(classes,
               {.activation = "softmax", .name = "predictions"})(GlobalAveragePooling2D()(x));
}

}  // namespace pl
