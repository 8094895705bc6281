// The pointwise ops of float32 that models spend time in, compiled once for each SIMD target: the
// arithmetic of two operands, and the functions whose scalar versions cost tens of cycles each.
#include "op/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/pointwise_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/broadcast.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"

template <Binary kind>
HWY_INLINE FloatVector compute(FloatVector a, FloatVector b) {
  if constexpr (kind == Binary::add) return hn::Add(a, b);
  if constexpr (kind == Binary::subtract) return hn::Sub(a, b);
  if constexpr (kind == Binary::multiply) return hn::Mul(a, b);
  if constexpr (kind == Binary::divide) return hn::Div(a, b);
}

template <Unary kind>
HWY_INLINE FloatVector compute(FloatVector x) {
  if constexpr (kind == Unary::exp) return exp_of(x);
  if constexpr (kind == Unary::tanh) return tanh_of(x);
  if constexpr (kind == Unary::sigmoid) return sigmoid_of(x);
}

// y = a op b along a row; an operand that does not step is one number.
template <Binary kind, bool a_steps, bool b_steps>
HWY_INLINE void binary_loop(const float* a, const float* b, float* y, Dim count) {
  const Floats d;
  const auto left = hn::Set(d, *a), right = hn::Set(d, *b);
  Dim i = 0;
  for (; i + kWidth <= count; i += kWidth)
    hn::StoreU(
        compute<kind>(a_steps ? hn::LoadU(d, a + i) : left, b_steps ? hn::LoadU(d, b + i) : right),
        d, y + i);
  if (i == count) return;
  const Dim rest = count - i;
  store_part(compute<kind>(a_steps ? load_part(a + i, rest) : left,
                           b_steps ? load_part(b + i, rest) : right),
             y + i, rest);
}

template <Binary kind>
void steps_row(const float* a, bool a_steps, const float* b, bool b_steps, float* y, Dim count) {
  if (a_steps && b_steps) return binary_loop<kind, true, true>(a, b, y, count);
  if (a_steps) return binary_loop<kind, true, false>(a, b, y, count);
  if (b_steps) return binary_loop<kind, false, true>(a, b, y, count);
  return binary_loop<kind, false, false>(a, b, y, count);
}

template <Unary kind>
void function_row(const float* x, float* y, Dim count) {
  const Floats d;
  Dim i = 0;
  for (; i + kWidth <= count; i += kWidth) hn::StoreU(compute<kind>(hn::LoadU(d, x + i)), d, y + i);
  if (i < count) store_part(compute<kind>(load_part(x + i, count - i)), y + i, count - i);
}

void binary_row(Binary kind, const float* a, bool a_steps, const float* b, bool b_steps, float* y,
                Dim count) {
  switch (kind) {
    case Binary::add:
      return steps_row<Binary::add>(a, a_steps, b, b_steps, y, count);
    case Binary::subtract:
      return steps_row<Binary::subtract>(a, a_steps, b, b_steps, y, count);
    case Binary::multiply:
      return steps_row<Binary::multiply>(a, a_steps, b, b_steps, y, count);
    default:
      return steps_row<Binary::divide>(a, a_steps, b, b_steps, y, count);
  }
}

void unary_row(Unary kind, const float* x, float* y, Dim count) {
  switch (kind) {
    case Unary::exp:
      return function_row<Unary::exp>(x, y, count);
    case Unary::tanh:
      return function_row<Unary::tanh>(x, y, count);
    default:
      return function_row<Unary::sigmoid>(x, y, count);
  }
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(binary_row);
HWY_EXPORT(unary_row);

std::unique_ptr<Kernel> binary_simd(const PrepareCall& call, Binary kind) {
  if (call.out[0].dtype != Dtype::float32 || kind > Binary::divide) return nullptr;
  const Dim total = call.out[0].elements();
  const int threads = call.backend.threads();
  const BroadcastWalk walk(call.in[0].shape, call.in[1].shape, call.out[0].shape);
  auto kernel = make_kernel([=](void* const* in, void* const* out, void*) {
    const float* a = static_cast<const float*>(in[0]);
    const float* b = static_cast<const float*>(in[1]);
    float* y = static_cast<float*>(out[0]);
    parallel_ranges(
        threads, total, total,
        [&](Dim begin, Dim end) {
          walk.pieces(begin, end, [&](Dim a_at, Dim b_at, Dim at, Dim count) {
            HWY_DYNAMIC_DISPATCH(binary_row)
            (kind, a + a_at, walk.a_steps, b + b_at, walk.b_steps, y + at, count);
          });
        },
        64);
  });
  kernel->footprint += static_cast<Bytes>(walk.outer.size() * sizeof(BroadcastWalk::Outer));
  return kernel;
}

std::unique_ptr<Kernel> unary_simd(const PrepareCall& call, Unary kind) {
  const bool known = kind == Unary::exp || kind == Unary::tanh || kind == Unary::sigmoid;
  if (call.out[0].dtype != Dtype::float32 || !known) return nullptr;
  const Dim total = call.out[0].elements();
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* x = static_cast<const float*>(in[0]);
    float* y = static_cast<float*>(out[0]);
    parallel_ranges(
        threads, total, total * 4,
        [&](Dim begin, Dim end) {
          HWY_DYNAMIC_DISPATCH(unary_row)(kind, x + begin, y + begin, end - begin);
        },
        64);
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
