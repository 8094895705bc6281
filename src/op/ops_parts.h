// What the files of ops.h share.
#pragma once

#include "op/infer.h"
#include "op/ops.h"
#include "op/recorder.h"

namespace pl::ops {

// Of a tensor that is one. Throws UserError.
int rank_of(const Tensor& x);
// Throws where a result like this cannot be counted, and DoesNotFit where an op with these operands
// runs at once and has no room for it: before anything is computed.
void expect_result(const Meta& result, const Tensors& operands = {});
// The same for what a and b, of which one is to be cast, broadcast to in `dtype`.
void expect_met(const Tensor& a, const Tensor& b, Dtype dtype);

std::vector<int64_t> axes_of(const char* op, const Axis& axis, int rank);  // sorted; none: all

// Booleans and bytes as int32; `real`: integers as float32 too.
Tensor number(const Tensor& x, bool real = false);
inline Tensor real(const Tensor& x) { return number(x, true); }

// x in a shape that it broadcasts to; `rows`: whose dimension 0 counts samples.
Tensor stretch(const Tensor& x, const Shape& shape, bool rows);

}  // namespace pl::ops
