// Element by element: binary ops with NumPy broadcasting, unary ops, and the 0/1 masks that
// gradients of maxima need. Float32 and float64; binary ops but divide also int32 and int64, in
// integers throughout, which wrap.
#pragma once

#include "op/op.h"

namespace pl {

enum class Binary : uint8_t {
  add,
  subtract,
  multiply,
  divide,
  maximum,
  minimum,
  equal_mask,          // 1 where a == b, else 0, in the operands' dtype
  greater_mask,        // 1 where a > b
  greater_equal_mask,  // 1 where a >= b
  floor_divide,        // towards minus infinity; integers by 0: 0
  mod,                 // what floor_divide leaves, with the sign of b
  power,               // of integers with a negative exponent: 0, but for bases 1 and -1
};
enum class Unary : uint8_t {
  negative,
  exp,
  log,
  sqrt,
  square,
  tanh,
  sigmoid,
  abs,
  sign,
  softplus,
  expm1,
  sin,
  cos,
  floor,
  ceil,
  trunc,
  round,  // halves to even numbers
};

extern const Op kAdd, kSubtract, kMultiply, kDivide, kMaximum, kMinimum;
extern const Op kEqualMask, kGreaterMask, kGreaterEqualMask, kFloorDivide, kMod, kPower;
extern const Op kNegative, kExp, kLog, kSqrt, kSquare, kTanh, kSigmoid, kAbs, kSign, kSoftplus;
extern const Op kExpm1, kSin, kCos, kFloor, kCeil, kTrunc, kRound;

Tensor add(const Tensor& a, const Tensor& b);
Tensor subtract(const Tensor& a, const Tensor& b);
Tensor multiply(const Tensor& a, const Tensor& b);
Tensor divide(const Tensor& a, const Tensor& b);
Tensor maximum(const Tensor& a, const Tensor& b);  // ties: the gradient goes to a, as in TensorFlow
Tensor minimum(const Tensor& a, const Tensor& b);
Tensor equal_mask(const Tensor& a, const Tensor& b);
Tensor greater_mask(const Tensor& a, const Tensor& b);
Tensor greater_equal_mask(const Tensor& a, const Tensor& b);
Tensor floor_divide(const Tensor& a, const Tensor& b);
Tensor mod(const Tensor& a, const Tensor& b);
// NaN where a is negative and b no whole number. The slope in b at a = 0 is 0 unless b < 0.
Tensor power(const Tensor& a, const Tensor& b);

Tensor negative(const Tensor& x);
Tensor exp(const Tensor& x);
Tensor log(const Tensor& x);
Tensor sqrt(const Tensor& x);
Tensor square(const Tensor& x);
Tensor tanh(const Tensor& x);
Tensor sigmoid(const Tensor& x);
Tensor abs(const Tensor& x);
Tensor sign(const Tensor& x);
Tensor softplus(const Tensor& x);  // log(1 + e to the x), without overflow
Tensor expm1(const Tensor& x);     // e to the x - 1, exact near 0 too
Tensor sin(const Tensor& x);       // within 2 units in the last place for every x
Tensor cos(const Tensor& x);
Tensor floor(const Tensor& x);
Tensor ceil(const Tensor& x);
Tensor trunc(const Tensor& x);
Tensor round(const Tensor& x);  // halves to even numbers

namespace cpu {
// What unary_simd runs, on `count` elements; y may be x.
void unary_tile(Unary kind, const float* x, float* y, Dim count);
// exp, tanh, sigmoid, softplus, expm1 and the four that round; null for the others.
std::unique_ptr<Kernel> unary_simd(const PrepareCall&, Unary kind);
template <Unary kind>
std::unique_ptr<Kernel> unary_simd(const PrepareCall& call) {
  return unary_simd(call, kind);
}
template <Binary kind>
std::unique_ptr<Kernel> binary_reference(const PrepareCall&);
template <Unary kind>
std::unique_ptr<Kernel> unary_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
