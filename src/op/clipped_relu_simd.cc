// clipped_relu and its gradient, float32, compiled once for each SIMD target.
#include "op/clipped_relu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/clipped_relu_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void clipped_relu_range(const float* x, float* y, float most, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto zero = hn::Zero(d), top = hn::Set(d, most);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, x + i);
    // Comparisons with NaN are false: it stays.
    const auto low = hn::IfThenElse(hn::Le(v, zero), zero, v);
    hn::StoreU(hn::IfThenElse(hn::Ge(low, top), top, low), d, y + i);
  }
  for (; i < count; ++i) y[i] = x[i] <= 0.0f ? 0.0f : x[i] >= most ? most : x[i];
}

void clipped_relu_gradient_range(const float* y, const float* dy, float* dx, float most,
                                 int64_t count) {
  const hn::ScalableTag<float> d;
  const auto zero = hn::Zero(d), top = hn::Set(d, most);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto v = hn::LoadU(d, y + i);
    const auto between = hn::And(hn::Gt(v, zero), hn::Lt(v, top));
    hn::StoreU(hn::IfThenElseZero(between, hn::LoadU(d, dy + i)), d, dx + i);
  }
  for (; i < count; ++i) dx[i] = y[i] > 0.0f && y[i] < most ? dy[i] : 0.0f;
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(clipped_relu_range);
HWY_EXPORT(clipped_relu_gradient_range);

std::unique_ptr<Kernel> clipped_relu_simd(const PrepareCall& call) {
  if (call.out[0].dtype != Dtype::float32) return nullptr;
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  const float most = static_cast<float>(call.attrs.real("most"));
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* x = static_cast<const float*>(in[0]);
    float* y = static_cast<float*>(out[0]);
    parallel_ranges(
        threads, count, count,
        [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(clipped_relu_range)(x + begin, y + begin, most, end - begin);
        },
        16);
  });
}

std::unique_ptr<Kernel> clipped_relu_gradient_simd(const PrepareCall& call) {
  if (call.out[0].dtype != Dtype::float32) return nullptr;
  const int64_t count = call.out[0].elements();
  const int threads = call.backend.threads();
  const float most = static_cast<float>(call.attrs.real("most"));
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* y = static_cast<const float*>(in[0]);
    const float* dy = static_cast<const float*>(in[1]);
    float* dx = static_cast<float*>(out[0]);
    parallel_ranges(
        threads, count, count,
        [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(clipped_relu_gradient_range)
          (y + begin, dy + begin, dx + begin, most, end - begin);
        },
        16);
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
