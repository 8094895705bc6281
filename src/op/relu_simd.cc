// relu and its gradient, float32, compiled once for each SIMD target.
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

void relu_range(const float* x, float* y, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto zero = hn::Zero(d);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    hn::StoreU(hn::IfThenElse(hn::Le(v, zero), zero, v), d, y + i);
  }
  for (; i < count; ++i) y[i] = x[i] <= 0.0f ? 0.0f : x[i];
}

void relu_gradient_range(const float* y, const float* dy, float* dx, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto zero = hn::Zero(d);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto positive = hn::Gt(hn::LoadU(d, y + i), zero);
    hn::StoreU(hn::IfThenElseZero(positive, hn::LoadU(d, dy + i)), d, dx + i);
  }
  for (; i < count; ++i) dx[i] = y[i] > 0.0f ? dy[i] : 0.0f;
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(relu_range);
HWY_EXPORT(relu_gradient_range);

std::unique_ptr<Kernel> relu_simd(const PrepareCall& call) {
  if (call.out[0].dtype != Dtype::float32) return nullptr;
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* x = static_cast<const float*>(in[0]);
    float* y = static_cast<float*>(out[0]);
    parallel_ranges(
        threads, count, count,
        [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(relu_range)(x + begin, y + begin, end - begin);
        },
        16);
  });
}

std::unique_ptr<Kernel> relu_gradient_simd(const PrepareCall& call) {
  if (call.out[0].dtype != Dtype::float32) return nullptr;
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* y = static_cast<const float*>(in[0]);
    const float* dy = static_cast<const float*>(in[1]);
    float* dx = static_cast<float*>(out[0]);
    parallel_ranges(
        threads, count, count,
        [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(relu_gradient_range)
          (y + begin, dy + begin, dx + begin, end - begin);
        },
        16);
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
