#include "op/operators.h"

#include <cmath>

#include "op/cast.h"
#include "op/fill.h"
#include "op/infer.h"
#include "op/pointwise.h"
#include "op/scale.h"

namespace pl {
namespace {

Dtype as_number(Dtype dtype) { return is_number(dtype) ? dtype : Dtype::int32; }

// Runs a binary op on operands in their common dtype; `real`: a floating one.
template <class F>
Tensor meet(const Tensor& a, const Tensor& b, const F& run, bool real = false) {
  if (!a.defined() || !b.defined()) return run(a, b);  // throws
  Dtype dtype = common_dtype(a.dtype(), b.dtype());
  if (real && !is_floating(dtype)) dtype = Dtype::float32;
  return run(cast(a, dtype), cast(b, dtype));
}

// The tensor and the number, as a tensor without dimensions, in the dtype that both meet in.
template <class F>
Tensor meet(const Tensor& a, Number b, const F& run, bool real = false) {
  if (!a.defined()) return run(a, a);  // throws
  Dtype dtype = common_dtype(a.dtype(), b);
  if (real && !is_floating(dtype)) dtype = Dtype::float32;
  return run(cast(a, dtype), fill({}, b.value, dtype));
}

// x * factor + offset of a tensor in the dtype that it and `number` meet in.
Tensor affine(const Tensor& x, Number number, double factor, double offset) {
  if (!x.defined()) return scale(x, factor, offset);  // throws
  const Dtype dtype = common_dtype(x.dtype(), number);
  const Tensor in = cast(x, dtype);
  if (is_floating(dtype)) return scale(in, factor, offset);
  const Tensor product = factor == 1 ? in : multiply(in, fill({}, factor, dtype));
  return offset == 0 ? product : add(product, fill({}, offset, dtype));
}

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::isnormal(x) && std::abs(std::frexp(x, &exponent)) == 0.5 && std::abs(exponent) < 100;
}

Tensor truth(const Tensor& mask) { return cast(mask, Dtype::boolean); }
Tensor falsehood(const Tensor& mask) { return truth(affine(mask, 1, -1, 1)); }

template <class B>
Tensor equal(const Tensor& a, const B& b) {
  return meet(a, b, equal_mask);
}
template <class B>
Tensor above(const Tensor& a, const B& b) {
  return meet(a, b, greater_mask);
}
template <class B>
Tensor below(const Tensor& a, const B& b) {
  return meet(a, b, [](const Tensor& x, const Tensor& y) { return greater_mask(y, x); });
}
template <class B>
Tensor at_least(const Tensor& a, const B& b) {
  return meet(a, b, greater_equal_mask);
}
template <class B>
Tensor at_most(const Tensor& a, const B& b) {
  return meet(a, b, [](const Tensor& x, const Tensor& y) { return greater_equal_mask(y, x); });
}

// 0 or 1 as float32, whatever x is.
Tensor flag(const Tensor& x) {
  return x.defined() ? cast(cast(x, Dtype::boolean), Dtype::float32) : negative(x);  // throws
}

}  // namespace

Dtype common_dtype(Dtype a, Dtype b) {
  a = as_number(a);
  b = as_number(b);
  if (a == b) return a;
  if (is_floating(a) != is_floating(b)) return is_floating(a) ? a : b;
  if (size_of(a) != size_of(b)) return size_of(a) > size_of(b) ? a : b;
  return Dtype::float32;  // bfloat16 and float16
}

Dtype common_dtype(Dtype x, Number number) {
  x = as_number(x);
  return is_floating(x) || number.whole ? x : Dtype::float32;
}

Tensor operator+(const Tensor& a, const Tensor& b) { return meet(a, b, add); }
Tensor operator+(const Tensor& a, Number b) { return affine(a, b, 1, b.value); }
Tensor operator+(Number a, const Tensor& b) { return b + a; }
Tensor operator-(const Tensor& a, const Tensor& b) { return meet(a, b, subtract); }
Tensor operator-(const Tensor& a, Number b) { return affine(a, b, 1, -b.value); }
Tensor operator-(Number a, const Tensor& b) { return affine(b, a, -1, a.value); }
Tensor operator*(const Tensor& a, const Tensor& b) { return meet(a, b, multiply); }
Tensor operator*(const Tensor& a, Number b) { return affine(a, b, b.value, 0); }
Tensor operator*(Number a, const Tensor& b) { return b * a; }
Tensor operator/(const Tensor& a, const Tensor& b) { return meet(a, b, divide, true); }
// By a power of two a product has the bits of the quotient.
Tensor operator/(const Tensor& a, Number b) {
  if (a.defined() && is_floating(a.dtype()) && is_power_of_two(b.value))
    return scale(a, 1 / b.value);
  return meet(a, b, divide, true);
}
Tensor operator/(Number a, const Tensor& b) {
  return meet(
      b, a, [](const Tensor& x, const Tensor& y) { return divide(y, x); }, true);
}
Tensor operator-(const Tensor& x) { return affine(x, 1, -1, 0); }

Tensor operator==(const Tensor& a, const Tensor& b) { return truth(equal(a, b)); }
Tensor operator==(const Tensor& a, Number b) { return truth(equal(a, b)); }
Tensor operator!=(const Tensor& a, const Tensor& b) { return falsehood(equal(a, b)); }
Tensor operator!=(const Tensor& a, Number b) { return falsehood(equal(a, b)); }
Tensor operator<(const Tensor& a, const Tensor& b) { return truth(below(a, b)); }
Tensor operator<(const Tensor& a, Number b) { return truth(below(a, b)); }
Tensor operator<=(const Tensor& a, const Tensor& b) { return truth(at_most(a, b)); }
Tensor operator<=(const Tensor& a, Number b) { return truth(at_most(a, b)); }
Tensor operator>(const Tensor& a, const Tensor& b) { return truth(above(a, b)); }
Tensor operator>(const Tensor& a, Number b) { return truth(above(a, b)); }
Tensor operator>=(const Tensor& a, const Tensor& b) { return truth(at_least(a, b)); }
Tensor operator>=(const Tensor& a, Number b) { return truth(at_least(a, b)); }
Tensor operator&&(const Tensor& a, const Tensor& b) { return truth(multiply(flag(a), flag(b))); }
Tensor operator||(const Tensor& a, const Tensor& b) { return truth(maximum(flag(a), flag(b))); }
Tensor operator!(const Tensor& x) { return falsehood(flag(x)); }

}  // namespace pl
