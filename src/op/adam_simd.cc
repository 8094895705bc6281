// adam, float32, in one pass, compiled once for each SIMD target. Every product is rounded before
// it is added, as in adam_cpu.cc, so that all targets give the same bits.
#include "op/adam.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/adam_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <cmath>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// in: w, m, v, g. out: w', m', v'. rest_1 and rest_2 are 1 - beta.
void adam_range(void* const* in, void* const* out, float alpha, float rest_1, float rest_2,
                float epsilon, int64_t begin, int64_t end) {
  const float *w = static_cast<const float*>(in[0]), *m = static_cast<const float*>(in[1]);
  const float *v = static_cast<const float*>(in[2]), *g = static_cast<const float*>(in[3]);
  float *next_w = static_cast<float*>(out[0]), *next_m = static_cast<float*>(out[1]);
  float* next_v = static_cast<float*>(out[2]);
  const hn::ScalableTag<float> d;
  const auto alphas = hn::Set(d, alpha), epsilons = hn::Set(d, epsilon);
  const auto rests_1 = hn::Set(d, rest_1), rests_2 = hn::Set(d, rest_2);
  const int64_t lanes = static_cast<int64_t>(hn::Lanes(d));
  int64_t i = begin;
  for (; i + lanes <= end; i += lanes) {
    const auto gradient = hn::LoadU(d, g + i);
    const auto old_m = hn::LoadU(d, m + i), old_v = hn::LoadU(d, v + i);
    const auto moment = hn::Add(old_m, hn::Mul(hn::Sub(gradient, old_m), rests_1));
    const auto square =
        hn::Add(old_v, hn::Mul(hn::Sub(hn::Mul(gradient, gradient), old_v), rests_2));
    const auto scale = hn::Add(hn::Sqrt(square), epsilons);
    const auto change = hn::Div(hn::Mul(moment, alphas), scale);
    hn::StoreU(moment, d, next_m + i);
    hn::StoreU(square, d, next_v + i);
    hn::StoreU(hn::Sub(hn::LoadU(d, w + i), change), d, next_w + i);
  }
  for (; i < end; ++i) {
    const float moment = m[i] + (g[i] - m[i]) * rest_1;
    const float square = v[i] + (g[i] * g[i] - v[i]) * rest_2;
    next_m[i] = moment;
    next_v[i] = square;
    next_w[i] = w[i] - moment * alpha / (std::sqrt(square) + epsilon);
  }
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(adam_range);

std::unique_ptr<Kernel> adam_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32) return nullptr;
  const int64_t count = call.in[0].elements();
  const int threads = call.backend.threads();
  const AdamUpdateOptions options = adam_options(call.attrs);
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const auto alpha = adam_rate<float>(in[4], options.beta_1, options.beta_2);
    const auto rest_1 = static_cast<float>(1 - options.beta_1);
    const auto rest_2 = static_cast<float>(1 - options.beta_2);
    const auto epsilon = static_cast<float>(options.epsilon);
    parallel_ranges(
        threads, count, 4 * count,
        [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(adam_range)
          (in, out, alpha, rest_1, rest_2, epsilon, begin, end);
        },
        16);
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
