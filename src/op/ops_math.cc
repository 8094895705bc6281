// Functions of ops.h that go element by element.
#include <cmath>
#include <limits>
#include <numbers>

#include "base/error.h"
#include "op/broadcast.h"
#include "op/broadcast_to.h"
#include "op/cast.h"
#include "op/fill.h"
#include "op/infer.h"
#include "op/ops_parts.h"
#include "op/pointwise.h"
#include "op/relu.h"
#include "op/scale.h"

namespace pl::ops {
namespace {

Tensor meet(const Operand& a, const Operand& b, Tensor (*run)(const Tensor&, const Tensor&),
            bool real = false) {
  Dtype dtype = common_dtype(a, b);
  if (real && !is_floating(dtype)) dtype = Dtype::float32;
  expect_met(a.tensor(), b.tensor(), dtype);
  return run(a.in(dtype), b.in(dtype));
}

// f of reals; integers are whole.
Tensor whole(const Tensor& x, Tensor (*f)(const Tensor&)) {
  return x.defined() && !is_floating(x.dtype()) ? x : f(x);
}

// By squaring; power > 0.
Tensor whole_power(const Tensor& x, int64_t power) {
  Tensor result, square = x;
  for (; power > 0; power /= 2) {
    if (power % 2) result = result.defined() ? pl::multiply(result, square) : square;
    if (power > 1) square = pl::square(square);
  }
  return result;
}

}  // namespace

Tensor Operand::in(Dtype dtype) const {
  if (number_) return fill({}, *number_, dtype);
  return tensor_.defined() ? pl::cast(tensor_, dtype) : tensor_;  // an op refuses an empty one
}

Dtype common_dtype(const Operand& a, const Operand& b) {
  if (a.number() && b.number())
    return pl::common_dtype(pl::common_dtype(Dtype::int32, *a.number()), *b.number());
  if (a.number()) return pl::common_dtype(b.tensor().dtype(), *a.number());
  if (b.number()) return pl::common_dtype(a.tensor().dtype(), *b.number());
  return pl::common_dtype(a.tensor().dtype(), b.tensor().dtype());
}

Tensor number(const Tensor& x, bool real) {
  if (!x.defined()) return x;  // the op refuses it
  if (real && !is_floating(x.dtype())) return pl::cast(x, Dtype::float32);
  return is_number(x.dtype()) ? x : pl::cast(x, Dtype::int32);
}

Tensor stretch(const Tensor& x, const Shape& shape, bool rows) {
  return pl::broadcast_to(x, shape, rows && !carries_rows(x));
}

Tensor add(const Operand& a, const Operand& b) {
  if (b.number() && !a.number()) return a.tensor() + *b.number();
  if (a.number() && !b.number()) return *a.number() + b.tensor();
  return meet(a, b, pl::add);
}
Tensor subtract(const Operand& a, const Operand& b) {
  if (b.number() && !a.number()) return a.tensor() - *b.number();
  if (a.number() && !b.number()) return *a.number() - b.tensor();
  return meet(a, b, pl::subtract);
}
Tensor multiply(const Operand& a, const Operand& b) {
  if (b.number() && !a.number()) return a.tensor() * *b.number();
  if (a.number() && !b.number()) return *a.number() * b.tensor();
  return meet(a, b, pl::multiply);
}
Tensor divide(const Operand& a, const Operand& b) {
  if (b.number() && !a.number()) return a.tensor() / *b.number();
  return meet(a, b, pl::divide, true);
}
Tensor true_divide(const Operand& a, const Operand& b) {
  const WordScope word("true_divide");
  return divide(a, b);
}
Tensor floor_divide(const Operand& a, const Operand& b) { return meet(a, b, pl::floor_divide); }
Tensor mod(const Operand& a, const Operand& b) { return meet(a, b, pl::mod); }
Tensor maximum(const Operand& a, const Operand& b) { return meet(a, b, pl::maximum); }
Tensor minimum(const Operand& a, const Operand& b) { return meet(a, b, pl::minimum); }
Tensor squared_difference(const Operand& a, const Operand& b) {
  const WordScope word("squared_difference");
  const Tensor difference = subtract(a, b);
  return pl::multiply(difference, difference);
}
Tensor clip(const Tensor& x, const Operand& least, const Operand& most) {
  const WordScope word("clip");
  return minimum(maximum(x, least), most);
}

Tensor power(const Operand& base, const Operand& power) {
  const WordScope word("power");
  constexpr double kMost = 16;  // whole numbers by multiplications, whose errors add up
  const Dtype dtype = common_dtype(base, power);
  if (power.number()) {
    const double p = power.number()->value;
    if (!is_floating(dtype) && p < 0)
      throw UserError("[power] expected a power of at least 0 of integers, received " +
                      std::to_string(static_cast<int64_t>(p)) + "; cast them to a floating dtype");
    const Tensor x = base.in(dtype);
    if (p == 0) return ones_like(x);
    if (p == -1) return reciprocal(x);
    if (p == 0.5) {  // -infinity has one too, and -0 is 0: where adds it
      constexpr double infinity = std::numeric_limits<double>::infinity();
      const Tensor below = x == -infinity;
      return where(below, infinity, pl::sqrt(where(below, 1, x)));
    }
    if (is_floating(dtype) && p == std::floor(p) && p > 0 && p <= kMost)
      return whole_power(x, static_cast<int64_t>(p));
  }
  return meet(base, power, pl::power);
}

Tensor negative(const Tensor& x) {
  const WordScope word("negative");
  return -x;
}
Tensor abs(const Tensor& x) {
  const Tensor in = number(x);
  return is_floating(in.dtype()) ? pl::abs(in) : pl::maximum(in, -in);
}
Tensor sign(const Tensor& x) {
  const Tensor in = number(x);
  return is_floating(in.dtype()) ? pl::sign(in) : clip(in, -1, 1);
}
Tensor square(const Tensor& x) {
  const Tensor in = number(x);
  return is_floating(in.dtype()) ? pl::square(in) : pl::multiply(in, in);
}
Tensor sqrt(const Tensor& x) { return pl::sqrt(real(x)); }
Tensor rsqrt(const Tensor& x) {
  const WordScope word("rsqrt");
  return 1 / pl::sqrt(real(x));
}
Tensor reciprocal(const Tensor& x) {
  const WordScope word("reciprocal");
  return 1 / x;
}
Tensor exp(const Tensor& x) { return pl::exp(real(x)); }
Tensor expm1(const Tensor& x) { return pl::expm1(real(x)); }
Tensor log(const Tensor& x) { return pl::log(real(x)); }
// Near 0 too: what 1 + x lost in rounding is added again.
Tensor log1p(const Tensor& x) {
  const WordScope word("log1p");
  const Tensor in = real(x), small = pl::minimum(in, fill({}, 1e9, in.dtype()));
  const Tensor sum = scale(small, 1, 1);
  const Tensor lost = pl::divide(pl::subtract(small, scale(sum, 1, -1)), sum);
  return pl::add(pl::log(scale(in, 1, 1)), ops::stop_gradient(where(in > -1, lost, 0)));
}
Tensor log2(const Tensor& x) {
  const WordScope word("log2");
  return scale(ops::log(x), 1 / std::numbers::ln2);
}
Tensor log10(const Tensor& x) {
  const WordScope word("log10");
  return scale(ops::log(x), 1 / std::numbers::ln10);
}
Tensor sin(const Tensor& x) { return pl::sin(real(x)); }
Tensor cos(const Tensor& x) { return pl::cos(real(x)); }
Tensor tanh(const Tensor& x) { return pl::tanh(real(x)); }
Tensor sigmoid(const Tensor& x) { return pl::sigmoid(real(x)); }
Tensor softplus(const Tensor& x) { return pl::softplus(real(x)); }
Tensor relu(const Tensor& x) {
  const WordScope word("relu");
  const Tensor in = number(x);
  return is_floating(in.dtype()) ? pl::relu(in) : maximum(in, 0);
}

Tensor floor(const Tensor& x) { return pl::floor(real(x)); }
Tensor ceil(const Tensor& x) { return pl::ceil(real(x)); }
Tensor trunc(const Tensor& x) { return whole(x, pl::trunc); }
Tensor round(const Tensor& x) { return whole(x, pl::round); }

Tensor equal(const Operand& a, const Operand& b) {
  const WordScope word("equal");
  return pl::cast(meet(a, b, equal_mask), Dtype::boolean);
}
Tensor not_equal(const Operand& a, const Operand& b) {
  const WordScope word("not_equal");
  return !equal(a, b);
}
Tensor less(const Operand& a, const Operand& b) {
  const WordScope word("less");
  return greater(b, a);
}
Tensor less_equal(const Operand& a, const Operand& b) {
  const WordScope word("less_equal");
  return greater_equal(b, a);
}
Tensor greater(const Operand& a, const Operand& b) {
  const WordScope word("greater");
  return pl::cast(meet(a, b, greater_mask), Dtype::boolean);
}
Tensor greater_equal(const Operand& a, const Operand& b) {
  const WordScope word("greater_equal");
  return pl::cast(meet(a, b, greater_equal_mask), Dtype::boolean);
}
Tensor logical_and(const Tensor& a, const Tensor& b) {
  const WordScope word("logical_and");
  return a && b;
}
Tensor logical_or(const Tensor& a, const Tensor& b) {
  const WordScope word("logical_or");
  return a || b;
}
Tensor logical_not(const Tensor& x) {
  const WordScope word("logical_not");
  return !x;
}
Tensor isnan(const Tensor& x) {
  const WordScope word("isnan");
  return x != x;
}
Tensor isfinite(const Tensor& x) {
  const WordScope word("isfinite");
  const Tensor in = number(x), none = pl::subtract(in, in);
  return none == none;
}
Tensor isinf(const Tensor& x) {
  const WordScope word("isinf");
  return !(isnan(x) || isfinite(x));
}

Tensor where(const Tensor& condition, const Operand& a, const Operand& b) {
  const WordScope word("where");
  const bool logical = !a.number() && !b.number() && a.tensor().dtype() == Dtype::boolean &&
                       b.tensor().dtype() == Dtype::boolean;
  const Dtype dtype = common_dtype(a, b);
  Shape shape = condition.shape(), wider;
  auto widen = [&](const Shape& other) {
    if (!broadcast_shapes(shape, other, &wider))
      throw UserError("[where] expected shapes that broadcast, received " + shape.text() + " and " +
                      other.text());
    shape = wider;
  };
  if (!a.number()) widen(a.tensor().shape());
  if (!b.number()) widen(b.tensor().shape());
  expect_result({dtype, shape}, {condition, a.tensor(), b.tensor()});
  const Tensor truth = pl::cast(condition, Dtype::boolean), mask = pl::cast(truth, dtype);
  if (!is_floating(dtype)) {
    const Tensor chosen =
        pl::add(pl::multiply(mask, a.in(dtype)), pl::multiply(1 - mask, b.in(dtype)));
    return logical ? pl::cast(chosen, Dtype::boolean) : chosen;
  }
  bool rows = false;
  for (const Tensor* tensor : {&mask, &a.tensor(), &b.tensor()})
    rows = rows || (tensor->defined() && carries_rows(*tensor) &&
                    tensor->shape().rank() == shape.rank() && tensor->shape()[0] == shape[0]);
  // Zero where the mask is.
  auto part = [&](const Tensor& at, const Operand& chosen) {
    if (chosen.number() && std::isfinite(chosen.number()->value))
      return scale(at, chosen.number()->value);
    return relu_gradient(stretch(at, shape, rows), stretch(chosen.in(dtype), shape, rows));
  };
  const Tensor inverse = scale(mask, -1, 1);
  if (a.number() && a.number()->value == 0) return part(inverse, b);
  if (b.number() && b.number()->value == 0) return part(mask, a);
  return pl::add(part(mask, a), part(inverse, b));
}

}  // namespace pl::ops
