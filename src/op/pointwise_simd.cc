// Functions of float32 whose scalar versions cost tens of cycles each, compiled once for each SIMD
// target. Plain arithmetic needs no such help: the reference loops run at the speed of memory.
#include "op/pointwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/pointwise_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <iterator>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"

template <Unary kind>
HWY_INLINE FloatVector compute(FloatVector x) {
  if constexpr (kind == Unary::exp) return exp_of(x);
  if constexpr (kind == Unary::tanh) return tanh_of(x);
  if constexpr (kind == Unary::sigmoid) return sigmoid_of(x);
  if constexpr (kind == Unary::softplus) return softplus_of(x);
  if constexpr (kind == Unary::expm1) return expm1_of(x);
  if constexpr (kind == Unary::floor) return hn::Floor(x);
  if constexpr (kind == Unary::ceil) return hn::Ceil(x);
  if constexpr (kind == Unary::trunc) return hn::Trunc(x);
  if constexpr (kind == Unary::round) return hn::Round(x);
}

template <Unary kind>
void function_row(const float* x, float* y, Dim count) {
  const Floats d;
  Dim i = 0;
  for (; i + kWidth <= count; i += kWidth) hn::StoreU(compute<kind>(hn::LoadU(d, x + i)), d, y + i);
  if (i < count) store_part(compute<kind>(load_part(x + i, count - i)), y + i, count - i);
}

void unary_row(Unary kind, const float* x, float* y, Dim count) {
  switch (kind) {
    case Unary::exp:
      return function_row<Unary::exp>(x, y, count);
    case Unary::tanh:
      return function_row<Unary::tanh>(x, y, count);
    case Unary::softplus:
      return function_row<Unary::softplus>(x, y, count);
    case Unary::expm1:
      return function_row<Unary::expm1>(x, y, count);
    case Unary::floor:
      return function_row<Unary::floor>(x, y, count);
    case Unary::ceil:
      return function_row<Unary::ceil>(x, y, count);
    case Unary::trunc:
      return function_row<Unary::trunc>(x, y, count);
    case Unary::round:
      return function_row<Unary::round>(x, y, count);
    default:
      return function_row<Unary::sigmoid>(x, y, count);
  }
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(unary_row);

void unary_tile(Unary kind, const float* x, float* y, Dim count) {
  HWY_DYNAMIC_DISPATCH(unary_row)(kind, x, y, count);
}

std::unique_ptr<Kernel> unary_simd(const PrepareCall& call, Unary kind) {
  constexpr Unary kKnown[] = {Unary::exp,      Unary::tanh,  Unary::sigmoid,
                              Unary::softplus, Unary::expm1, Unary::floor,
                              Unary::ceil,     Unary::trunc, Unary::round};
  const bool known = std::find(std::begin(kKnown), std::end(kKnown), kind) != std::end(kKnown);
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
