// scale: x * factor + offset with constant numbers; pixels to [0, 1], means, loss scaling.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kScale;

Tensor scale(const Tensor& x, double factor, double offset = 0);

namespace cpu {
std::unique_ptr<Kernel> scale_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
