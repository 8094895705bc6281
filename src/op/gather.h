// gather: elements along an axis picked by index, in their own dtype, and the gradient, which adds
// into the places that were picked. Indices below 0 count from the end. One that is outside after
// that gives NaN, of integers the least, of bytes 255 and of booleans true; the gradient drops it.
#pragma once

#include <optional>

#include "op/op.h"

namespace pl {

extern const Op kGather;
extern const Op kGatherGradient;

// indices S, int32 or int64: x (A..., n, B...) becomes (A..., S..., B...), n being the axis.
Tensor gather(const Tensor& x, const Tensor& indices, int64_t axis);
// With an index for each element: x (A..., n, B...) and indices (A..., m, B...) give what is like
// the indices.
Tensor gather_each(const Tensor& x, const Tensor& indices, int64_t axis);

// x as (outer, size, inner), the result as (outer, count, inner).
struct GatherForm {
  Dim outer = 1, size = 0, count = 0, inner = 1;
  bool each = false;      // indices are like the result; else (count)
  bool from_end = false;  // indices below 0 count from there
  bool zeros = false;     // what an index outside gives
};
// `gradient`: operands are indices and dy, the output is like x.
GatherForm gather_form(const Metas& in, const Metas& out, const Attrs& attrs, bool gradient);
// The bits of the element that an index outside gives.
uint64_t outside_bits(Dtype dtype, bool zeros);

namespace cpu {
// Operands x and indices.
std::unique_ptr<Kernel> gather_kernel(const PrepareCall&, const GatherForm&);
std::unique_ptr<Kernel> gather_reference(const PrepareCall&);
std::unique_ptr<Kernel> gather_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
