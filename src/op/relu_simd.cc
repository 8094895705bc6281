// relu and its gradient, float32 and bfloat16, compiled once for each SIMD target.
#include "op/relu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/relu_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

#include "op/simd_math-inl.h"

template <class T>
HWY_INLINE void relu_loop(const T* x, T* y, Dim count) {
  const auto zero = hn::Zero(Floats());
  along_row(count, [&](Dim i, Dim n) HWY_ATTR {
    const auto v = load(x + i, n);
    store(hn::IfThenElse(hn::Le(v, zero), zero, v), y + i, n);
  });
}
template <class T>
HWY_INLINE void relu_gradient_loop(const T* y, const T* dy, T* dx, Dim count) {
  const auto zero = hn::Zero(Floats());
  along_row(count, [&](Dim i, Dim n) HWY_ATTR {
    store(hn::IfThenElseZero(hn::Gt(load(y + i, n), zero), load(dy + i, n)), dx + i, n);
  });
}

void relu_f32(const float* x, float* y, Dim count) { relu_loop(x, y, count); }
void relu_bf16(const Bfloat16* x, Bfloat16* y, Dim count) { relu_loop(x, y, count); }
void relu_gradient_f32(const float* y, const float* dy, float* dx, Dim count) {
  relu_gradient_loop(y, dy, dx, count);
}
void relu_gradient_bf16(const Bfloat16* y, const Bfloat16* dy, Bfloat16* dx, Dim count) {
  relu_gradient_loop(y, dy, dx, count);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(relu_f32);
HWY_EXPORT(relu_bf16);
HWY_EXPORT(relu_gradient_f32);
HWY_EXPORT(relu_gradient_bf16);

namespace {
void relu_range(const float* x, float* y, Dim count) {
  HWY_DYNAMIC_DISPATCH(relu_f32)(x, y, count);
}
void relu_range(const Bfloat16* x, Bfloat16* y, Dim count) {
  HWY_DYNAMIC_DISPATCH(relu_bf16)(x, y, count);
}
void relu_gradient_range(const float* y, const float* dy, float* dx, Dim count) {
  HWY_DYNAMIC_DISPATCH(relu_gradient_f32)(y, dy, dx, count);
}
void relu_gradient_range(const Bfloat16* y, const Bfloat16* dy, Bfloat16* dx, Dim count) {
  HWY_DYNAMIC_DISPATCH(relu_gradient_bf16)(y, dy, dx, count);
}
}  // namespace

std::unique_ptr<Kernel> relu_simd(const PrepareCall& call) {
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  return dispatch_simd(call.out[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* x = static_cast<const T*>(in[0]);
      T* y = static_cast<T*>(out[0]);
      parallel_ranges(
          threads, count, count,
          [&](Dim begin, Dim end) { relu_range(x + begin, y + begin, end - begin); }, 32);
    });
  });
}

std::unique_ptr<Kernel> relu_gradient_simd(const PrepareCall& call) {
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  return dispatch_simd(call.out[0].dtype, [&]<class T>() {
    return make_kernel([=](void* const* in, void* const* out, void*) {
      const T* y = static_cast<const T*>(in[0]);
      const T* dy = static_cast<const T*>(in[1]);
      T* dx = static_cast<T*>(out[0]);
      parallel_ranges(
          threads, count, count,
          [&](Dim begin, Dim end) {
            relu_gradient_range(y + begin, dy + begin, dx + begin, end - begin);
          },
          32);
    });
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
