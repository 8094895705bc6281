// sgd and sgd_momentum, float32, compiled once for each SIMD target. Every product is rounded
// before it is added, as in sgd_cpu.cc, so that all targets give the same bits.
#include "op/sgd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/sgd_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"
#include "op/step_params.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void sgd_range(const float* w, const float* g, float* next, float rate, int64_t count) {
  const hn::ScalableTag<float> d;
  const auto rates = hn::Set(d, rate);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = 0;
  for (; i + lanes <= count; i += lanes) {
    const auto step = hn::Mul(rates, hn::LoadU(d, g + i));
    hn::StoreU(hn::Sub(hn::LoadU(d, w + i), step), d, next + i);
  }
  for (; i < count; ++i) next[i] = w[i] - rate * g[i];
}

template <bool nesterov>
void momentum_loop(void* const* in, void* const* out, float keep, float rate, int64_t begin,
                   int64_t end) {
  const float* w = static_cast<const float*>(in[0]);
  const float* velocity = static_cast<const float*>(in[1]);
  const float* g = static_cast<const float*>(in[2]);
  float* next = static_cast<float*>(out[0]);
  float* next_velocity = static_cast<float*>(out[1]);
  const hn::ScalableTag<float> d;
  const auto rates = hn::Set(d, rate), keeps = hn::Set(d, keep);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    const auto step = hn::Mul(rates, hn::LoadU(d, g + i));
    const auto v = hn::Sub(hn::Mul(keeps, hn::LoadU(d, velocity + i)), step);
    const auto change = nesterov ? hn::Sub(hn::Mul(keeps, v), step) : v;
    hn::StoreU(v, d, next_velocity + i);
    hn::StoreU(hn::Add(hn::LoadU(d, w + i), change), d, next + i);
  }
  for (; i < end; ++i) {
    const float step = rate * g[i];
    const float v = keep * velocity[i] - step;
    next_velocity[i] = v;
    next[i] = w[i] + (nesterov ? keep * v - step : v);
  }
}

// in: w, velocity, g. out: w', velocity'.
void momentum_range(void* const* in, void* const* out, float keep, float rate, bool nesterov,
                    int64_t begin, int64_t end) {
  if (nesterov)
    momentum_loop<true>(in, out, keep, rate, begin, end);
  else
    momentum_loop<false>(in, out, keep, rate, begin, end);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(sgd_range);
HWY_EXPORT(momentum_range);

std::unique_ptr<Kernel> sgd_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32) return nullptr;
  const int64_t count = call.in[0].elements();
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* w = static_cast<const float*>(in[0]);
    const float* g = static_cast<const float*>(in[1]);
    float* next = static_cast<float*>(out[0]);
    const auto rate = static_cast<float>(static_cast<const StepParams*>(in[2])->learning_rate);
    parallel_ranges(
        threads, count, count,
        [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(sgd_range)(w + begin, g + begin, next + begin, rate, end - begin);
        },
        16);
  });
}

std::unique_ptr<Kernel> sgd_momentum_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32) return nullptr;
  const int64_t count = call.in[0].elements();
  const int threads = call.backend.threads();
  const bool nesterov = call.attrs.integer("nesterov", 0) != 0;
  const auto keep = static_cast<float>(call.attrs.real("momentum", 0.9));
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const auto rate = static_cast<float>(static_cast<const StepParams*>(in[3])->learning_rate);
    parallel_ranges(
        threads, count, count,
        [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(momentum_range)(in, out, keep, rate, nesterov, begin, end);
        },
        16);
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
