// log_softmax over the last axis. Its gradient reads the *output*: dy - e to the y * sum(dy).
#pragma once

#include "op/op.h"

namespace pl {

extern const Op kLogSoftmax;

Tensor log_softmax(const Tensor& x);  // (..., C)

namespace cpu {
std::unique_ptr<Kernel> log_softmax_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
