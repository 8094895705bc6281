// resize: NHWC images of another size, by their nearest pixels or interpolated between the centres
// of pixels (bilinear), without a filter against aliasing; and its gradient. upsample is the case
// of a whole number of times.
#pragma once

#include <array>
#include <string>

#include "op/op.h"

namespace pl {

extern const Op kResize;
extern const Op kResizeGradient;

// x (B, H, W, C). Result (B, size[0], size[1], C). interpolation: "nearest" or "bilinear".
Tensor resize(const Tensor& x, std::array<Dim, 2> size,
              const std::string& interpolation = "bilinear");
// dx (B, size[0], size[1], C) of images that were resized to dy's.
Tensor resize_gradient(const Tensor& dy, std::array<Dim, 2> size,
                       const std::string& interpolation = "bilinear");

namespace cpu {
std::unique_ptr<Kernel> resize_reference(const PrepareCall&);
std::unique_ptr<Kernel> resize_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
