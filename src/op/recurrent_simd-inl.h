// What the SIMD kernels of recurrent ops share. Included by `*_simd.cc` files inside their
// namespace pl::cpu::HWY_NAMESPACE, once for each target; it brings simd_math-inl.h and
// simd_product-inl.h with it.
//
// A thread takes its samples through all steps on its own: nothing waits for another thread within
// a sequence. Per step, their states meet the packed weights panel by panel, in blocks of up to
// kRows samples; the gates of a unit are neighbours in a panel, so that a block goes through its
// cell while it is in the first cache. Sums run in order of the units, whatever the block.

#include "op/simd_math-inl.h"
#include "op/simd_product-inl.h"

// Samples that go through all steps together: their states stay in the second cache.
constexpr Dim kGroup = 48;

HWY_INLINE FloatVector squash_of(Squash kind, FloatVector x) {
  const Floats d;
  const auto zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  switch (kind) {
    case Squash::tanh:
      return tanh_of(x);
    case Squash::sigmoid:
      return sigmoid_of(x);
    case Squash::relu:
      return hn::IfThenElse(hn::Le(x, zero), zero, x);
    case Squash::hard_sigmoid: {
      const auto y = hn::Div(hn::Add(x, hn::Set(d, 3.0f)), hn::Set(d, 6.0f));
      return hn::IfThenElse(hn::Le(y, zero), zero, hn::IfThenElse(hn::Ge(y, one), one, y));
    }
    default:
      return x;
  }
}

// By the result y.
HWY_INLINE FloatVector squash_slope_of(Squash kind, FloatVector y) {
  const Floats d;
  const auto zero = hn::Zero(d), one = hn::Set(d, 1.0f);
  switch (kind) {
    case Squash::tanh:
      return hn::Sub(one, hn::Mul(y, y));
    case Squash::sigmoid:
      return hn::Mul(y, hn::Sub(one, y));
    case Squash::relu:
      return hn::IfThenElse(hn::Gt(y, zero), one, zero);
    case Squash::hard_sigmoid:
      return hn::IfThenElse(hn::And(hn::Gt(y, zero), hn::Lt(y, one)), hn::Set(d, 1.0f / 6.0f),
                            zero);
    default:
      return one;
  }
}

// Calls body(first, count) for samples [begin, end) in blocks of nearly equal size, `most` at most.
template <class Body>
HWY_INLINE void in_blocks(Dim begin, Dim end, Dim most, const Body& body) {
  const Dim count = end - begin, blocks = (count + most - 1) / most;
  for (Dim i = 0; i < blocks; ++i) {
    const Dim first = begin + count * i / blocks;
    body(first, begin + count * (i + 1) / blocks - first);
  }
}
