// cast: another dtype. Floats become integers by truncation, kept inside the integer's range, NaN
// becoming 0; wider integers wrap; anything but 0 is true.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kCast;

Tensor cast(const Tensor& x, Dtype dtype);  // x itself when it has that dtype

namespace cpu {
std::unique_ptr<Kernel> cast_simd(const PrepareCall&);
std::unique_ptr<Kernel> cast_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
