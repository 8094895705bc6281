// fill: a tensor with one number everywhere. Has no operands: it is recorded where a Recorder is in
// scope, and runs at once elsewhere.
#pragma once

#include "op/number.h"
#include "op/op.h"

namespace pl {

extern const Op kFill;

// `rows`: dimension 0 counts the samples of the batch being traced.
Tensor fill(const Shape& shape, Number value, Dtype dtype = Dtype::float32, bool rows = false);

namespace cpu {
std::unique_ptr<Kernel> fill_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
