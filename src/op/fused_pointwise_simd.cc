// Instructions of fused_pointwise on tiles of float32, compiled once for each SIMD target. Each
// gives the bits of the op it stands for: sums, products and comparisons are exact to the last bit
// anywhere, and the dear functions are those of the ops' own kernels.
#include "op/fused_pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/fused_pointwise_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include "hwy/highway.h"
#include "op/gelu.h"
#include "op/pointwise.h"
#include "op/tile_run.h"
#include "tensor/bfloat16.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#include "op/simd_math-inl.h"

template <class F>
HWY_INLINE void each(const float* a, float* y, Dim count, const F& f) {
  const Floats d;
  Dim i = 0;
  for (; i + kWidth <= count; i += kWidth) hn::StoreU(f(hn::LoadU(d, a + i)), d, y + i);
  if (i < count) store_part(f(load_part(a + i, count - i)), y + i, count - i);
}

template <class F>
HWY_INLINE void each(const float* a, const float* b, float* y, Dim count, const F& f) {
  const Floats d;
  Dim i = 0;
  for (; i + kWidth <= count; i += kWidth)
    hn::StoreU(f(hn::LoadU(d, a + i), hn::LoadU(d, b + i)), d, y + i);
  const Dim left = count - i;
  if (left > 0) store_part(f(load_part(a + i, left), load_part(b + i, left)), y + i, left);
}

using V = FloatVector;

void tile_of_two(TileOp op, double constant, const float* a, const float* b, float* y, Dim count) {
  const Floats d;
  const V one = hn::Set(d, 1.0f), zero = hn::Zero(d);
  const V alpha = hn::Set(d, static_cast<float>(constant));
  auto run = [&](const auto& f) HWY_ATTR { each(a, b, y, count, f); };
  switch (op) {
    case TileOp::add:
      return run([](V p, V q) HWY_ATTR { return hn::Add(p, q); });
    case TileOp::subtract:
      return run([](V p, V q) HWY_ATTR { return hn::Sub(p, q); });
    case TileOp::multiply:
      return run([](V p, V q) HWY_ATTR { return hn::Mul(p, q); });
    case TileOp::divide:
      return run([](V p, V q) HWY_ATTR { return hn::Div(p, q); });
    case TileOp::maximum:  // NaN if one is; a number equals itself
      return run([](V p, V q) HWY_ATTR {
        return hn::IfThenElse(hn::Or(hn::Gt(p, q), hn::Not(hn::Eq(p, p))), p, q);
      });
    case TileOp::minimum:
      return run([](V p, V q) HWY_ATTR {
        return hn::IfThenElse(hn::Or(hn::Lt(p, q), hn::Not(hn::Eq(p, p))), p, q);
      });
    case TileOp::equal_mask:
      return run([=](V p, V q) HWY_ATTR { return hn::IfThenElseZero(hn::Eq(p, q), one); });
    case TileOp::greater_mask:
      return run([=](V p, V q) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(p, q), one); });
    case TileOp::greater_equal_mask:
      return run([=](V p, V q) HWY_ATTR { return hn::IfThenElseZero(hn::Ge(p, q), one); });
    case TileOp::relu_gradient:
      return run([=](V p, V q) HWY_ATTR { return hn::IfThenElseZero(hn::Gt(p, zero), q); });
    default:  // leaky_relu_gradient
      return run([=](V p, V q)
                     HWY_ATTR { return hn::IfThenElse(hn::Gt(p, zero), q, hn::Mul(alpha, q)); });
  }
}

void tile_of_one(const TileInstruction& made, const float* a, float* y, Dim count) {
  const Floats d;
  const V one = hn::Set(d, 1.0f), zero = hn::Zero(d);
  const V x = hn::Set(d, static_cast<float>(made.x)),
          offset = hn::Set(d, static_cast<float>(made.y));
  auto run = [&](const auto& f) HWY_ATTR { each(a, y, count, f); };
  switch (made.op) {
    case TileOp::negative:
      return run([](V p) HWY_ATTR { return hn::Neg(p); });
    case TileOp::sqrt:
      return run([](V p) HWY_ATTR { return hn::Sqrt(p); });
    case TileOp::square:
      return run([](V p) HWY_ATTR { return hn::Mul(p, p); });
    case TileOp::abs:
      return run([](V p) HWY_ATTR { return hn::Abs(p); });
    case TileOp::sign:  // zeros of both signs and NaN stay
      return run([=](V p) HWY_ATTR {
        const V below = hn::IfThenElse(hn::Lt(p, zero), hn::Neg(one), p);
        return hn::IfThenElse(hn::Gt(p, zero), one, below);
      });
    case TileOp::scale:
      return run([=](V p) HWY_ATTR { return hn::Add(hn::Mul(p, x), offset); });
    case TileOp::relu:
      return run([=](V p) HWY_ATTR { return hn::IfThenElse(hn::Le(p, zero), zero, p); });
    default:  // leaky_relu
      return run([=](V p) HWY_ATTR { return hn::IfThenElse(hn::Gt(p, zero), p, hn::Mul(x, p)); });
  }
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(tile_of_two);
HWY_EXPORT(tile_of_one);

void run_tile_simd(const TileInstruction& made, const float* a, const float* b, float* y,
                   Dim count) {
  switch (made.op) {
    case TileOp::exp:
      return unary_tile(Unary::exp, a, y, count);
    case TileOp::tanh:
      return unary_tile(Unary::tanh, a, y, count);
    case TileOp::sigmoid:
      return unary_tile(Unary::sigmoid, a, y, count);
    case TileOp::softplus:
      return unary_tile(Unary::softplus, a, y, count);
    case TileOp::expm1:
      return unary_tile(Unary::expm1, a, y, count);
    case TileOp::floor:
      return unary_tile(Unary::floor, a, y, count);
    case TileOp::ceil:
      return unary_tile(Unary::ceil, a, y, count);
    case TileOp::trunc:
      return unary_tile(Unary::trunc, a, y, count);
    case TileOp::round:
      return unary_tile(Unary::round, a, y, count);
    case TileOp::log:
    case TileOp::sin:
    case TileOp::cos:
    case TileOp::floor_divide:
    case TileOp::mod:
    case TileOp::power:
      return run_tile_plain(made, a, b, y, count);
    case TileOp::gelu:
      return gelu_tile(a, y, count, made.x != 0);
    case TileOp::gelu_gradient:
      return gelu_gradient_tile(a, b, y, count, made.x != 0);
    default:
      if (operands_of(made.op) == 2)
        HWY_DYNAMIC_DISPATCH(tile_of_two)(made.op, made.x, a, b, y, count);
      else
        HWY_DYNAMIC_DISPATCH(tile_of_one)(made, a, y, count);
  }
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
