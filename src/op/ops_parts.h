// What the files of ops.h share.
#pragma once

#include "op/ops.h"
#include "op/recorder.h"

namespace pl::ops {

// From 0, for `rank` dimensions. Throws UserError "[op] expected an axis ...".
int64_t axis_of(const char* op, int64_t axis, int rank);
std::vector<int64_t> axes_of(const char* op, const Axis& axis, int rank);  // sorted; none: all

// Booleans and bytes as int32; `real`: integers as float32 too.
Tensor number(const Tensor& x, bool real = false);
inline Tensor real(const Tensor& x) { return number(x, true); }

// x in a shape that it broadcasts to; `rows`: whose dimension 0 counts samples.
Tensor stretch(const Tensor& x, const Shape& shape, bool rows);

}  // namespace pl::ops
