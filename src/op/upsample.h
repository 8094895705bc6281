// upsample: rows and columns of NHWC images repeated (nearest) or interpolated (bilinear, between
// the centres of pixels), a whole number of times; and its gradient.
#pragma once

#include <array>
#include <string>

#include "op/op.h"

namespace pl {

extern const Op kUpsample;
extern const Op kUpsampleGradient;

struct UpsampleOptions {
  std::array<Dim, 2> size = {2, 2};
  std::string interpolation = "nearest";  // or "bilinear"
};

// x (B, H, W, C). Result (B, size[0] * H, size[1] * W, C).
Tensor upsample(const Tensor& x, const UpsampleOptions& options = {});
// dx (B, H, W, C) from dy (B, size[0] * H, size[1] * W, C).
Tensor upsample_gradient(const Tensor& dy, const UpsampleOptions& options = {});

namespace cpu {
std::unique_ptr<Kernel> upsample_reference(const PrepareCall&);
std::unique_ptr<Kernel> upsample_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
