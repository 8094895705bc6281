// Sliding windows over the two spatial axes of NHWC images: what convolution and pooling share.
#pragma once

#include <vector>

#include "op/op.h"

namespace pl {

// Output position o reads the input positions o * stride - before + k * dilation, k in [0, kernel).
// Those outside [0, in) are padding; at least one is inside.
struct WindowAxis {
  Dim in, out, kernel, stride, dilation;
  Dim before, after;  // padding on either side
};

struct Window {
  WindowAxis h, w;
};

// Reads the attributes strides, dilations (each [2], 1 when missing) and padding: "valid"; "same"
// as TensorFlow has it, output ceil(in / stride) with the odd row of padding behind; or "explicit"
// with pads [top, bottom, left, right], each smaller than what the window spans. Throws UserError
// for what is not a window with at least one output. `in` is for the message only.
Window window_of(const char* op, Dim height, Dim width, Dim kernel_height, Dim kernel_width,
                 const Metas& in, const Attrs& attrs);

// The pads that make `padding` "explicit" without changing the window: [top, bottom, left, right].
std::vector<int64_t> explicit_pads(const Window& window);

// The input shape (B, H, W, C) of a gradient op: attribute input_shape [4], but with the rows of
// the gradient that comes in, so that a split batch needs no other attributes.
Shape input_shape_of(const char* op, Dim rows, const Metas& in, const Attrs& attrs);

}  // namespace pl
