// conv2d and its two gradients. Images are NHWC, kernels HWIO, as in TensorFlow. The weight
// gradient also sums the bias gradient, since both read the same dy.
#pragma once

#include <array>
#include <optional>
#include <string>
#include <vector>

#include "op/op.h"
#include "op/window.h"

namespace pl {

extern const Op kConv2d;
extern const Op kConv2dInputGradient;
extern const Op kConv2dWeightGradient;

struct Conv2dOptions {
  std::array<Dim, 2> strides = {1, 1};
  std::string padding = "valid";  // or "same", or "explicit" with pads
  std::array<Dim, 4> pads = {};   // top, bottom, left, right
  std::array<Dim, 2> dilations = {1, 1};
  Dim groups = 1;
  std::string activation = "none";  // or "relu"
};

// x (B, H, W, C), w (KH, KW, C / groups, O), bias (O,) or undefined. Result (B, OH, OW, O).
Tensor conv2d(const Tensor& x, const Tensor& w, const Conv2dOptions& options = {},
              const Tensor& bias = {});

// dx (B, H, W, C) from w and dy (B, OH, OW, O). The activation in `options` is not looked at.
Tensor conv2d_input_gradient(const Tensor& w, const Tensor& dy, const Shape& input_shape,
                             const Conv2dOptions& options = {});

struct Conv2dWeightGradientResult {
  Tensor dw;  // (KH, KW, C / groups, O); of 16-bit operands float32 if asked for
  Tensor db;  // (O,), undefined without bias
};
Conv2dWeightGradientResult conv2d_weight_gradient(const Tensor& x, const Tensor& dy,
                                                  const Shape& kernel_shape, bool with_bias,
                                                  const Conv2dOptions& options = {},
                                                  std::optional<Dtype> dtype = {});

// The numbers of one convolution, whichever of the three ops it comes from.
struct Conv2dForm {
  Dim batch, channels, filters, groups;
  Window window;
  bool bias, relu;
};
Conv2dForm conv2d_form(const Metas& in, const Attrs& attrs);                  // throws UserError
Conv2dForm conv2d_input_gradient_form(const Metas& in, const Attrs& attrs);   // throws UserError
Conv2dForm conv2d_weight_gradient_form(const Metas& in, const Attrs& attrs);  // throws UserError

// conv2d_samples.cc
std::vector<Sample> conv2d_samples();
std::vector<Sample> conv2d_input_gradient_samples();
std::vector<Sample> conv2d_weight_gradient_samples();

namespace cpu {
std::unique_ptr<Kernel> conv2d_simd(const PrepareCall&);  // few channels
std::unique_ptr<Kernel> conv2d_onednn(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_reference(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_input_gradient_onednn(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_input_gradient_reference(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_weight_gradient_simd(const PrepareCall&);  // few channels
std::unique_ptr<Kernel> conv2d_weight_gradient_onednn(const PrepareCall&);
std::unique_ptr<Kernel> conv2d_weight_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
