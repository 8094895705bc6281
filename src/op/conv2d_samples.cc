// Samples of conv2d and its gradients: one list of convolutions, seen from three sides.
#include "op/conv2d.h"

namespace pl {
namespace {

struct Case {
  const char* name;
  Shape x, w;
  Attrs attrs;
  bool bias = true;
  bool benchmark = false;
};

std::vector<Case> cases() {
  using List = std::vector<int64_t>;
  const auto same = std::string("same"), relu = std::string("relu");
  const auto pads = std::string("explicit");
  return {
      {"3x3", {2, 6, 5, 3}, {3, 3, 3, 4}, {}, false},
      {"bias_relu", {2, 6, 5, 3}, {3, 3, 3, 4}, {{"activation", relu}}},
      {"one_channel", {3, 7, 7, 1}, {3, 3, 1, 8}, {}},
      {"same_odd", {2, 5, 7, 2}, {3, 2, 2, 5}, {{"padding", same}}},
      {"same_stride2", {2, 6, 9, 3}, {3, 3, 3, 4}, {{"padding", same}, {"strides", List{2, 2}}}},
      {"stride2x1", {1, 8, 7, 16}, {2, 3, 16, 16}, {{"strides", List{2, 1}}}},
      {"dilated", {2, 9, 8, 2}, {3, 2, 2, 3}, {{"dilations", List{2, 3}}}, false},
      {"groups", {2, 5, 5, 4}, {3, 3, 2, 6}, {{"groups", int64_t{2}}}},
      {"5x5_wide", {2, 9, 9, 17}, {5, 5, 17, 33}, {{"padding", same}}},
      {"explicit_stride2",
       {2, 7, 6, 3},
       {5, 3, 3, 4},
       {{"padding", pads}, {"pads", List{2, 3, 0, 1}}, {"strides", List{2, 2}}}},
      {"explicit_dilated",
       {2, 5, 6, 2},
       {3, 3, 2, 3},
       {{"padding", pads}, {"pads", List{2, 2, 1, 3}}, {"dilations", List{2, 2}}},
       false},
      {"depthwise", {2, 6, 7, 24}, {3, 3, 1, 24}, {{"padding", same}, {"groups", int64_t{24}}}},
      {"depthwise_stride2",
       {2, 7, 6, 19},
       {3, 3, 1, 19},
       {{"padding", pads},
        {"pads", List{0, 1, 0, 1}},
        {"strides", List{2, 2}},
        {"groups", int64_t{19}}},
       false},
      {"depthwise_multiplier", {2, 5, 5, 6}, {3, 2, 1, 18}, {{"groups", int64_t{6}}}, false},
      {"1x1", {2, 3, 5, 17}, {1, 1, 17, 20}, {}},
      {"1x1_stride2", {2, 5, 6, 16}, {1, 1, 16, 24}, {{"strides", List{2, 2}}}, false},
      {"2x2_map_same", {3, 2, 2, 20}, {3, 3, 20, 17}, {{"padding", same}}, false},
      {"4x4_map_stride2",
       {3, 4, 4, 16},
       {3, 3, 16, 40},
       {{"padding", pads}, {"pads", List{1, 1, 1, 1}}, {"strides", List{2, 2}}}},
      {"7x7_stem",
       {2, 12, 13, 3},
       {7, 7, 3, 16},
       {{"padding", pads}, {"pads", List{3, 3, 3, 3}}, {"strides", List{2, 2}}},
       false},
      {"3x3_many_same", {2, 9, 10, 32}, {3, 3, 32, 48}, {{"padding", same}}, false},
      {"3x3_many_valid", {1, 11, 13, 48}, {3, 3, 48, 32}, {{"activation", relu}}},
      {"3x3_many_explicit",
       {3, 8, 7, 80},
       {3, 3, 80, 64},
       {{"padding", pads}, {"pads", List{2, 0, 1, 2}}},
       false},
      {"3x3_many_odd", {1, 9, 9, 48}, {3, 3, 48, 32}, {{"padding", same}}},
      {"2x2_map_many", {3, 2, 2, 128}, {3, 3, 128, 144}, {{"padding", same}, {"activation", relu}}},
      {"4x4_map_many_stride2",
       {2, 4, 5, 144},
       {3, 3, 144, 128},
       {{"padding", same}, {"strides", List{2, 2}}},
       false},
      {"1x1_many_stride2", {7, 4, 3, 128}, {1, 1, 128, 160}, {{"strides", List{2, 2}}}},
      {"1x1_map_many", {5, 1, 1, 128}, {3, 3, 128, 128}, {{"padding", same}}, false},
      {"depthwise_small_map",
       {19, 2, 3, 80},
       {3, 3, 1, 80},
       {{"padding", same}, {"groups", int64_t{80}}}},
      {"depthwise_small_map_stride2",
       {3, 2, 2, 32},
       {3, 3, 1, 32},
       {{"padding", same}, {"strides", List{2, 2}}, {"groups", int64_t{32}}},
       false},
      {"mnist_cnn_1_b32", {32, 28, 28, 1}, {3, 3, 1, 32}, {{"activation", relu}}, true, true},
      {"mnist_cnn_2_b32", {32, 13, 13, 32}, {3, 3, 32, 64}, {{"activation", relu}}, true, true},
      {"mnist_cnn_1_b256", {256, 28, 28, 1}, {3, 3, 1, 32}, {{"activation", relu}}, true, true},
      {"mnist_cnn_2_b256", {256, 13, 13, 32}, {3, 3, 32, 64}, {{"activation", relu}}, true, true},
  };
}

SampleInput floats(Shape shape) { return {{Dtype::float32, std::move(shape)}}; }

Shape output_of(const Case& c) {
  return kConv2d.infer({{Dtype::float32, c.x}, {Dtype::float32, c.w}}, c.attrs)[0].shape;
}

// The gradients know nothing of the activation.
Attrs gradient_attrs(const Case& c) {
  Attrs attrs;
  for (const auto& [name, value] : c.attrs.entries())
    if (name != "activation") attrs.set(name, value);
  return attrs;
}

}  // namespace

std::vector<Sample> conv2d_samples() {
  std::vector<Sample> out;
  for (const Case& c : cases()) {
    Sample sample{c.name, {floats(c.x), floats(c.w)}, c.attrs, 1e-5, c.benchmark};
    if (c.bias) sample.in.push_back(floats({c.w.back()}));
    out.push_back(std::move(sample));
  }
  return out;
}

std::vector<Sample> conv2d_input_gradient_samples() {
  std::vector<Sample> out;
  for (const Case& c : cases()) {
    Attrs attrs = gradient_attrs(c);
    attrs.set("input_shape", c.x.dims());
    out.push_back({c.name, {floats(c.w), floats(output_of(c))}, attrs, 1e-5, c.benchmark});
  }
  return out;
}

std::vector<Sample> conv2d_weight_gradient_samples() {
  std::vector<Sample> out;
  for (const Case& c : cases()) {
    Attrs attrs = gradient_attrs(c);
    attrs.set("kernel_shape", c.w.dims());
    if (c.bias) attrs.set("with_bias", int64_t{1});
    out.push_back({c.name, {floats(c.x), floats(output_of(c))}, attrs, 1e-5, c.benchmark});
  }
  return out;
}

}  // namespace pl
