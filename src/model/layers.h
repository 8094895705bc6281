// The layers, with Keras's names and defaults. One visible list; each is a small file.
#pragma once

#include <array>
#include <string>

#include "model/layer.h"

namespace pl {

// One number for both directions, or two.
struct Pair {
  Pair(int64_t both) : value{both, both} {}
  Pair(int64_t height, int64_t width) : value{height, width} {}
  std::array<int64_t, 2> value;
};

struct DenseOptions {
  std::string activation = "linear";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string name = "";
};
LayerRef Dense(int64_t units, DenseOptions options = {});

struct Conv2DOptions {
  Pair strides = 1;
  std::string padding = "valid";
  Pair dilation_rate = 1;
  int64_t groups = 1;
  std::string activation = "linear";
  bool use_bias = true;
  std::string kernel_initializer = "glorot_uniform";
  std::string bias_initializer = "zeros";
  std::string name = "";
};
LayerRef Conv2D(int64_t filters, Pair kernel_size, Conv2DOptions options = {});

struct MaxPooling2DOptions {
  Pair strides = 0;  // 0: the pool size
  std::string padding = "valid";
  std::string name = "";
};
LayerRef MaxPooling2D(Pair pool_size = 2, MaxPooling2DOptions options = {});

LayerRef Flatten(std::string name = "");
LayerRef Dropout(double rate, std::string name = "");
LayerRef Activation(std::string activation, std::string name = "");

// "linear", "relu", "softmax", "sigmoid", "tanh": throws UserError listing them for anything else.
void check_activation(const std::string& activation);
Tensor activate(const std::string& activation, const Tensor& x);

}  // namespace pl
