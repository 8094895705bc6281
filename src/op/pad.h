// pad: zeros around the rows and columns of NHWC images; crop, its gradient, takes them off again.
#pragma once

#include <array>

#include "op/op.h"

namespace pl {

extern const Op kPad;
extern const Op kCrop;

using Pads = std::array<Dim, 4>;  // top, bottom, left, right; none negative

// x (B, H, W, C). Result (B, top + H + bottom, left + W + right, C).
Tensor pad(const Tensor& x, const Pads& pads);
// x (B, top + H + bottom, left + W + right, C). Result (B, H, W, C).
Tensor crop(const Tensor& x, const Pads& pads);

namespace cpu {
std::unique_ptr<Kernel> pad_reference(const PrepareCall&);
std::unique_ptr<Kernel> crop_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
