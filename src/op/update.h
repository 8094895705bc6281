// update: the next versions of variables by a program that runs over their elements in one pass and
// in place; sum_squares: sums over what such a program computes, which then never exists as a
// whole. Optimisers are written as formulas (op/formula.h), which make these calls.
#pragma once

#include <algorithm>

#include "op/op.h"
#include "op/step_program.h"

namespace pl {

extern const Op kUpdate;
extern const Op kSumSquares;

// Variables of one update at most: a weight, its slots, its average, an accumulator.
inline constexpr int kMostUpdated = 8;

// The pairs of Op::next_version that a call with so many outputs has: an op that may have fewer
// outputs lists them in order.
inline std::span<const InOut> next_versions(const Op& op, size_t outputs) {
  return op.next_version.first(std::min(op.next_version.size(), outputs));
}

namespace cpu {
std::unique_ptr<Kernel> update_simd(const PrepareCall&);
std::unique_ptr<Kernel> update_reference(const PrepareCall&);
std::unique_ptr<Kernel> sum_squares_simd(const PrepareCall&);
std::unique_ptr<Kernel> sum_squares_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
