// assign: a value becomes the next version of a variable.
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kAssign;

// Both of one dtype and shape. Answers the variable's next version.
Tensor assign(const Tensor& variable, const Tensor& value);

namespace cpu {
std::unique_ptr<Kernel> assign_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
