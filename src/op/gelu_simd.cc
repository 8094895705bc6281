// gelu and its gradient, float32, compiled once for each SIMD target.
#include "op/gelu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/gelu_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"

// The probability below x and the slope of x times it, at one vector.
struct GeluParts {
  FloatVector below, slope;
};

// The probability beyond |x| is e to the -x^2 / 2 times a polynomial in 1 / (1 + 0.21 |x|), fitted
// to within 2e-8 of its value.
HWY_INLINE GeluParts exact_parts(FloatVector x) {
  const Floats d;
  const auto one = hn::Set(d, 1.0f), half = hn::Set(d, -0.5f), edge = hn::Set(d, 14.0f);
  const auto inside = hn::Min(hn::Max(x, hn::Neg(edge)), edge);
  const auto t = hn::Div(one, hn::Add(one, hn::Mul(hn::Set(d, 0.21f), hn::Abs(inside))));
  constexpr float kCoefficients[] = {
      -0.071665631956165f,  0.2836346667337983f,  -0.33035066801378965f,
      0.34951529212648574f, -0.0940068456687873f, 0.1249090001197065f,
      0.06918239134526541f, 0.08507031922091488f, 0.0837114830339735f};
  const auto density = exp_of(hn::Mul(half, hn::Mul(inside, inside)));
  const auto beyond = hn::Mul(density, hn::Mul(polynomial(t, kCoefficients), t));
  const auto below = hn::IfThenElse(hn::Lt(x, hn::Zero(d)), beyond, hn::Sub(one, beyond));
  const auto height = hn::Set(d, 0.3989422804f);  // 1 / sqrt(2 pi)
  return {below, hn::Add(below, hn::Mul(hn::Mul(inside, density), height))};
}

// sigmoid(2 u) with u = sqrt(2 / pi) * (x + 0.044715 x^3). At |x| = 10 the exponential is just
// below float32's largest, and the results are 0 or 1 to the last digit.
HWY_INLINE GeluParts approximate_parts(FloatVector x) {
  const Floats d;
  const auto one = hn::Set(d, 1.0f), edge = hn::Set(d, 10.0f);
  const auto inside = hn::Min(hn::Max(x, hn::Neg(edge)), edge);
  const auto square = hn::Mul(inside, inside);
  constexpr float kTwice = 1.5957691216f;  // 2 sqrt(2 / pi)
  const auto cubic = hn::Set(d, kTwice * 0.044715f), linear = hn::Set(d, kTwice);
  const auto twice_u = hn::Mul(inside, hn::Add(linear, hn::Mul(cubic, square)));
  const auto e = exp_of(hn::Neg(twice_u));
  const auto s = hn::Div(one, hn::Add(one, e));
  const auto steep = hn::Add(linear, hn::Mul(hn::Set(d, 3 * kTwice * 0.044715f), square));
  const auto bump = hn::Mul(hn::Mul(hn::Mul(e, s), s), hn::Mul(inside, steep));
  return {s, hn::Add(s, bump)};
}

template <bool approximate>
HWY_INLINE FloatVector gelu_of(FloatVector x) {
  const Floats d;
  const auto parts = approximate ? approximate_parts(x) : exact_parts(x);
  // Far below 0 the result is 0; minus infinity times 0 would be NaN.
  const auto far = hn::Lt(x, hn::Set(d, approximate ? -10.0f : -14.0f));
  return hn::IfThenZeroElse(far, hn::Mul(x, parts.below));
}

template <bool approximate>
HWY_INLINE FloatVector gelu_slope(FloatVector x) {
  const auto parts = approximate ? approximate_parts(x) : exact_parts(x);
  return hn::IfThenElse(hn::Eq(x, x), parts.slope, x);  // NaN stays
}

template <bool approximate>
HWY_INLINE void gelu_loop(const float* x, float* y, int64_t count) {
  const Floats d;
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth)
    hn::StoreU(gelu_of<approximate>(hn::LoadU(d, x + i)), d, y + i);
  if (i < count) store_part(gelu_of<approximate>(load_part(x + i, count - i)), y + i, count - i);
}

template <bool approximate>
HWY_INLINE void gelu_gradient_loop(const float* x, const float* dy, float* dx, int64_t count) {
  const Floats d;
  int64_t i = 0;
  for (; i + kWidth <= count; i += kWidth) {
    const auto slope = gelu_slope<approximate>(hn::LoadU(d, x + i));
    hn::StoreU(hn::Mul(hn::LoadU(d, dy + i), slope), d, dx + i);
  }
  if (i == count) return;
  const auto slope = gelu_slope<approximate>(load_part(x + i, count - i));
  store_part(hn::Mul(load_part(dy + i, count - i), slope), dx + i, count - i);
}

void gelu_range(const float* x, float* y, int64_t count, bool approximate) {
  approximate ? gelu_loop<true>(x, y, count) : gelu_loop<false>(x, y, count);
}

void gelu_gradient_range(const float* x, const float* dy, float* dx, int64_t count,
                         bool approximate) {
  approximate ? gelu_gradient_loop<true>(x, dy, dx, count)
              : gelu_gradient_loop<false>(x, dy, dx, count);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(gelu_range);
HWY_EXPORT(gelu_gradient_range);

void gelu_tile(const float* x, float* y, Dim count, bool approximate) {
  HWY_DYNAMIC_DISPATCH(gelu_range)(x, y, count, approximate);
}
void gelu_gradient_tile(const float* x, const float* dy, float* dx, Dim count, bool approximate) {
  HWY_DYNAMIC_DISPATCH(gelu_gradient_range)(x, dy, dx, count, approximate);
}

std::unique_ptr<Kernel> gelu_simd(const PrepareCall& call) {
  if (call.out[0].dtype != Dtype::float32) return nullptr;
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  const bool approximate = call.attrs.integer("approximate", 0);
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* x = static_cast<const float*>(in[0]);
    float* y = static_cast<float*>(out[0]);
    parallel_ranges(
        threads, count, count * 4,
        [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(gelu_range)(x + begin, y + begin, end - begin, approximate);
        },
        16);
  });
}

std::unique_ptr<Kernel> gelu_gradient_simd(const PrepareCall& call) {
  if (call.out[0].dtype != Dtype::float32) return nullptr;
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  const bool approximate = call.attrs.integer("approximate", 0);
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* x = static_cast<const float*>(in[0]);
    const float* dy = static_cast<const float*>(in[1]);
    float* dx = static_cast<float*>(out[0]);
    parallel_ranges(
        threads, count, count * 4,
        [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(gelu_gradient_range)
          (x + begin, dy + begin, dx + begin, end - begin, approximate);
        },
        16);
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
