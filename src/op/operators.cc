#include "op/operators.h"

#include <cmath>

#include "base/error.h"
#include "op/cast.h"
#include "op/fill.h"
#include "op/infer.h"
#include "op/ops_parts.h"
#include "op/pointwise.h"
#include "op/scale.h"

namespace pl {
namespace {

Dtype as_number(Dtype dtype) { return is_number(dtype) ? dtype : Dtype::int32; }

// Runs a binary op on operands in their common dtype; `real`: a floating one. `name`: of the word
// that is called.
template <class F>
Tensor meet(const char* name, const Tensor& a, const Tensor& b, const F& run, bool real = false) {
  const WordScope word(name);
  if (!a.defined() || !b.defined()) return run(a, b);  // throws
  Dtype dtype = common_dtype(a.dtype(), b.dtype());
  if (real && !is_floating(dtype)) dtype = Dtype::float32;
  ops::expect_met(a, b, dtype);
  return run(cast(a, dtype), cast(b, dtype));
}

// The tensor and the number, as a tensor without dimensions, in the dtype that both meet in.
template <class F>
Tensor meet(const char* name, const Tensor& a, Number b, const F& run, bool real = false) {
  const WordScope word(name);
  if (!a.defined()) return run(a, a);  // throws
  Dtype dtype = common_dtype(a.dtype(), b);
  if (real && !is_floating(dtype)) dtype = Dtype::float32;
  return run(cast(a, dtype), fill({}, b, dtype));
}

// x * factor + offset of a tensor in the dtype that it and `number` meet in.
Tensor affine(const char* name, const Tensor& x, Number number, Number factor, Number offset) {
  const WordScope word(name);
  if (!x.defined()) return scale(x, factor.value, offset.value);  // throws
  const Dtype dtype = common_dtype(x.dtype(), number);
  const Tensor in = cast(x, dtype);
  if (is_floating(dtype)) return scale(in, factor.value, offset.value);
  const Tensor product = factor.value == 1 ? in : multiply(in, fill({}, factor, dtype));
  return offset.value == 0 ? product : add(product, fill({}, offset, dtype));
}

bool is_power_of_two(double x) {
  int exponent = 0;
  return std::isnormal(x) && std::abs(std::frexp(x, &exponent)) == 0.5 && std::abs(exponent) < 100;
}

Tensor truth(const Tensor& mask) { return cast(mask, Dtype::boolean); }
Tensor falsehood(const Tensor& mask) { return truth(affine("logical_not", mask, 1, -1, 1)); }

template <class B>
Tensor equal(const char* name, const Tensor& a, const B& b) {
  return meet(name, a, b, equal_mask);
}
template <class B>
Tensor above(const char* name, const Tensor& a, const B& b) {
  return meet(name, a, b, greater_mask);
}
template <class B>
Tensor below(const char* name, const Tensor& a, const B& b) {
  return meet(name, a, b, [](const Tensor& x, const Tensor& y) { return greater_mask(y, x); });
}
template <class B>
Tensor at_least(const char* name, const Tensor& a, const B& b) {
  return meet(name, a, b, greater_equal_mask);
}
template <class B>
Tensor at_most(const char* name, const Tensor& a, const B& b) {
  return meet(name, a, b,
              [](const Tensor& x, const Tensor& y) { return greater_equal_mask(y, x); });
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
  if (is_floating(x)) return x;
  if (!number.whole) return Dtype::float32;
  return number.as<int32_t>() == number.exact ? x : Dtype::int64;
}

Tensor operator+(const Tensor& a, const Tensor& b) { return meet("add", a, b, add); }
Tensor operator+(const Tensor& a, Number b) { return affine("add", a, b, 1, b); }
Tensor operator+(Number a, const Tensor& b) { return b + a; }
Tensor operator-(const Tensor& a, const Tensor& b) { return meet("subtract", a, b, subtract); }
Tensor operator-(const Tensor& a, Number b) { return affine("subtract", a, b, 1, -b); }
Tensor operator-(Number a, const Tensor& b) { return affine("subtract", b, a, -1, a); }
Tensor operator*(const Tensor& a, const Tensor& b) { return meet("multiply", a, b, multiply); }
Tensor operator*(const Tensor& a, Number b) { return affine("multiply", a, b, b, 0); }
Tensor operator*(Number a, const Tensor& b) { return b * a; }
Tensor operator/(const Tensor& a, const Tensor& b) { return meet("divide", a, b, divide, true); }
// By a power of two a product has the bits of the quotient.
Tensor operator/(const Tensor& a, Number b) {
  if (a.defined() && is_floating(a.dtype()) && is_power_of_two(b.value))
    return scale(a, 1 / b.value);
  return meet("divide", a, b, divide, true);
}
Tensor operator/(Number a, const Tensor& b) {
  return meet(
      "divide", b, a, [](const Tensor& x, const Tensor& y) { return divide(y, x); }, true);
}
Tensor operator-(const Tensor& x) { return affine("negative", x, 1, -1, 0); }

Tensor operator==(const Tensor& a, const Tensor& b) { return truth(equal("equal", a, b)); }
Tensor operator==(const Tensor& a, Number b) { return truth(equal("equal", a, b)); }
Tensor operator!=(const Tensor& a, const Tensor& b) { return falsehood(equal("not_equal", a, b)); }
Tensor operator!=(const Tensor& a, Number b) { return falsehood(equal("not_equal", a, b)); }
Tensor operator<(const Tensor& a, const Tensor& b) { return truth(below("less", a, b)); }
Tensor operator<(const Tensor& a, Number b) { return truth(below("less", a, b)); }
Tensor operator<=(const Tensor& a, const Tensor& b) { return truth(at_most("less_equal", a, b)); }
Tensor operator<=(const Tensor& a, Number b) { return truth(at_most("less_equal", a, b)); }
Tensor operator>(const Tensor& a, const Tensor& b) { return truth(above("greater", a, b)); }
Tensor operator>(const Tensor& a, Number b) { return truth(above("greater", a, b)); }
Tensor operator>=(const Tensor& a, const Tensor& b) {
  return truth(at_least("greater_equal", a, b));
}
Tensor operator>=(const Tensor& a, Number b) { return truth(at_least("greater_equal", a, b)); }
Tensor operator&&(const Tensor& a, const Tensor& b) {
  const WordScope word("logical_and");
  ops::expect_met(a, b, Dtype::float32);
  return truth(multiply(flag(a), flag(b)));
}
Tensor operator||(const Tensor& a, const Tensor& b) {
  const WordScope word("logical_or");
  ops::expect_met(a, b, Dtype::float32);
  return truth(maximum(flag(a), flag(b)));
}
Tensor operator!(const Tensor& x) {
  const WordScope word("logical_not");
  return falsehood(flag(x));
}

}  // namespace pl
