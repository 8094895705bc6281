// Checks that shape rules share. What they refuse is a UserError "[op] expected ..., received ...".
#pragma once

#include <string>

#include "op/op.h"

namespace pl {

// Throws UserError "[op] expected <expected>, received <operands> <attributes>".
[[noreturn]] void reject(const char* op, const std::string& expected, const Metas& in,
                         const Attrs& attrs = {});

// Rejects a call with fewer than `least` or more than `most` operands.
void expect_operands(const char* op, size_t least, size_t most, const Metas& in,
                     const Attrs& attrs);

// What ops compute with. 16-bit floats are stored alone: kernels widen them (op/widen.cc).
inline bool is_real(Dtype dtype) {
  return dtype == Dtype::float32 || dtype == Dtype::float64 || dtype == Dtype::bfloat16 ||
         dtype == Dtype::float16;
}
inline bool is_number(Dtype dtype) {
  return is_real(dtype) || dtype == Dtype::int32 || dtype == Dtype::int64;
}

// The axis counted from the front. Throws UserError "[op] expected an axis ...".
int64_t axis_of(const char* op, int64_t axis, int rank);

// One operand of dtype float32 or float64.
void expect_one_real(const char* op, const Metas& in, const Attrs& attrs);

// `out` unchanged, after checking that its size in bytes can be counted.
Metas checked(const char* op, Metas out);

// The dtype that attribute `dtype` names.
Dtype dtype_attr(const char* op, const Attrs& attrs);

// Attribute dtype of ops whose result may be wider than their operands: `own` when absent.
Dtype result_dtype(const char* op, Dtype own, const Metas& in, const Attrs& attrs);

}  // namespace pl
