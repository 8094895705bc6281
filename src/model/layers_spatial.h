// Layers over sequences (positions, channels) and volumes (depth, height, width, channels), and
// layers that change the size of images. Included by layers.h.
#pragma once

#include <array>
#include <optional>
#include <string>

#include "model/layer.h"

namespace pl {

// One number for all directions, or three.
struct Triple {
  Triple(int64_t all) : value{all, all, all} {}
  Triple(int64_t depth, int64_t height, int64_t width) : value{depth, height, width} {}
  std::array<int64_t, 3> value;
};

// The kernel is (K, C / groups, filters). padding "causal": a position sees none behind it.
struct Conv1DOptions {
  int64_t strides = 1;
  std::string padding = "valid";
  int64_t dilation_rate = 1;
  int64_t groups = 1;
  std::string activation = "linear";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef Conv1D(int64_t filters, int64_t kernel_size, Conv1DOptions options = {});

// The kernel is (K, filters, C), as in Keras.
struct Conv1DTransposeOptions {
  int64_t strides = 1;
  std::string padding = "valid";
  std::optional<int64_t> output_padding = {};  // positions behind; none: Keras's rule
  int64_t dilation_rate = 1;
  std::string activation = "linear";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef Conv1DTranspose(int64_t filters, int64_t kernel_size, Conv1DTransposeOptions options = {});

struct DepthwiseConv1DOptions {
  int64_t strides = 1;
  std::string padding = "valid";
  int64_t depth_multiplier = 1;
  int64_t dilation_rate = 1;
  std::string activation = "linear";
  bool use_bias = true;
  std::string depthwise_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string depthwise_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string depthwise_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef DepthwiseConv1D(int64_t kernel_size, DepthwiseConv1DOptions options = {});

struct SeparableConv1DOptions {
  int64_t strides = 1;
  std::string padding = "valid";  // or "same", "causal"
  int64_t dilation_rate = 1;
  int64_t depth_multiplier = 1;
  std::string activation = "linear";
  bool use_bias = true;
  std::string depthwise_initializer = "glorot_uniform";
  std::string pointwise_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string depthwise_regularizer = "";
  std::string pointwise_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string depthwise_constraint = "";
  std::string pointwise_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef SeparableConv1D(int64_t filters, int64_t kernel_size, SeparableConv1DOptions options = {});

// The kernel is (KD, KH, KW, C / groups, filters). Worked off as KD convolutions of images.
struct Conv3DOptions {
  Triple strides = 1;
  std::string padding = "valid";
  Triple dilation_rate = 1;
  int64_t groups = 1;
  std::string activation = "linear";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef Conv3D(int64_t filters, Triple kernel_size, Conv3DOptions options = {});

// The kernel is (KD, KH, KW, filters, C), as in Keras.
struct Conv3DTransposeOptions {
  Triple strides = 1;
  std::string padding = "valid";
  std::optional<Triple> output_padding = {};
  Triple dilation_rate = 1;
  std::string activation = "linear";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string kernel_regularizer = "";
  std::string bias_regularizer = "";
  std::string activity_regularizer = "";
  std::string kernel_constraint = "";
  std::string bias_constraint = "";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef Conv3DTranspose(int64_t filters, Triple kernel_size, Conv3DTransposeOptions options = {});

struct Pooling1DOptions {
  int64_t strides = 0;  // 0: the pool size
  std::string padding = "valid";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef MaxPooling1D(int64_t pool_size = 2, Pooling1DOptions options = {});
LayerRef AveragePooling1D(int64_t pool_size = 2, Pooling1DOptions options = {});

struct Pooling3DOptions {
  Triple strides = 0;  // 0: the pool size
  std::string padding = "valid";
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef MaxPooling3D(Triple pool_size = 2, Pooling3DOptions options = {});
LayerRef AveragePooling3D(Triple pool_size = 2, Pooling3DOptions options = {});

// The mean of a masked sequence is that of the positions that count.
struct GlobalPoolingOptions {
  bool keepdims = false;
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef GlobalAveragePooling1D(GlobalPoolingOptions options = {});
LayerRef GlobalMaxPooling1D(GlobalPoolingOptions options = {});
LayerRef GlobalAveragePooling3D(GlobalPoolingOptions options = {});
LayerRef GlobalMaxPooling3D(GlobalPoolingOptions options = {});

// Positions before and behind: one number for both, or two.
struct Padding1D {
  Padding1D(int64_t both) : value{both, both} {}
  Padding1D(int64_t before, int64_t after) : value{before, after} {}
  std::array<int64_t, 2> value;
};
LayerRef ZeroPadding1D(Padding1D padding = 1, std::string name = "");
LayerRef Cropping1D(Padding1D cropping = 1, std::string name = "");
LayerRef UpSampling1D(int64_t size = 2, std::string name = "");  // each position repeated

// Around volumes: one number for all sides, three for both sides of each axis, or all six.
struct Padding3D {
  Padding3D(int64_t all) : value{all, all, all, all, all, all} {}
  Padding3D(int64_t depth, int64_t height, int64_t width)
      : value{depth, depth, height, height, width, width} {}
  Padding3D(Padding1D depth, Padding1D height, Padding1D width)
      : value{depth.value[0],  depth.value[1], height.value[0],
              height.value[1], width.value[0], width.value[1]} {}
  std::array<int64_t, 6> value;
};
LayerRef ZeroPadding3D(Padding3D padding = 1, std::string name = "");
LayerRef Cropping3D(Padding3D cropping = 1, std::string name = "");
LayerRef UpSampling3D(Triple size = 2, std::string name = "");

// Images of another size.
struct ResizingOptions {
  std::string interpolation = "bilinear";  // or "nearest", "bicubic", "lanczos3", "lanczos5"
  bool crop_to_aspect_ratio = false;       // the largest window in the middle with the new shape
  bool pad_to_aspect_ratio = false;        // the smallest frame of fill_value with the new shape
  std::string fill_mode = "constant";      // Keras's only one
  double fill_value = 0;
  bool antialias = false;  // a wider filter where images become smaller
  std::string name = "";
  std::string dtype = "";
  bool trainable = true;
};
LayerRef Resizing(int64_t height, int64_t width, ResizingOptions options = {});

}  // namespace pl
