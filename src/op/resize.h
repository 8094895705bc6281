// resize: NHWC images of another size, by their nearest pixels or interpolated between the centres
// of pixels; and its gradient. upsample is the case of a whole number of times.
#pragma once

#include <array>
#include <string>
#include <string_view>

#include "op/op.h"

namespace pl {

extern const Op kResize;
extern const Op kResizeGradient;

// x (B, H, W, C). Result (B, size[0], size[1], C). interpolation: "nearest", "bilinear", "bicubic"
// (Keys, a = -1/2), "lanczos3" or "lanczos5"; what lies beyond the edge does not count. antialias:
// where images become smaller, the filter becomes as wide as new pixels are.
Tensor resize(const Tensor& x, std::array<Dim, 2> size,
              const std::string& interpolation = "bilinear", bool antialias = false);
// dx (B, size[0], size[1], C) of images that were resized to dy's.
Tensor resize_gradient(const Tensor& dy, std::array<Dim, 2> size,
                       const std::string& interpolation = "bilinear", bool antialias = false);

// How far the filter of an interpolation reaches, in pixels: 0 for the nearest, -1 for unknown
// names.
int resize_reach(std::string_view interpolation);

namespace cpu {
std::unique_ptr<Kernel> resize_reference(const PrepareCall&);
std::unique_ptr<Kernel> resize_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
