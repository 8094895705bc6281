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

// in: w, m, v, g. out: w', m', v'.
void adam_range(void* const* in, void* const* out, const AdamNumbers& n, int64_t begin,
                int64_t end) {
  const float *w = static_cast<const float*>(in[0]), *m = static_cast<const float*>(in[1]);
  const float *v = static_cast<const float*>(in[2]), *g = static_cast<const float*>(in[3]);
  float *next_w = static_cast<float*>(out[0]), *next_m = static_cast<float*>(out[1]);
  float* next_v = static_cast<float*>(out[2]);
  const hn::ScalableTag<float> d;
  const auto alphas = hn::Set(d, n.alpha), epsilons = hn::Set(d, n.epsilon);
  const auto rests_1 = hn::Set(d, n.rest_1), rests_2 = hn::Set(d, n.rest_2);
  const auto decays = hn::Set(d, n.decay.decay), rates = hn::Set(d, n.decay.rate);
  const bool decays_weights = n.decay.decay != 0;
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
    auto kept = hn::LoadU(d, w + i);
    if (decays_weights) kept = hn::Sub(kept, hn::Mul(hn::Mul(kept, decays), rates));
    hn::StoreU(hn::Sub(kept, change), d, next_w + i);
  }
  for (; i < end; ++i) {
    const float moment = m[i] + (g[i] - m[i]) * n.rest_1;
    const float square = v[i] + (g[i] * g[i] - v[i]) * n.rest_2;
    const float kept = decays_weights ? w[i] - w[i] * n.decay.decay * n.decay.rate : w[i];
    next_m[i] = moment;
    next_v[i] = square;
    next_w[i] = kept - moment * n.alpha / (std::sqrt(square) + n.epsilon);
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
    const AdamNumbers numbers{.alpha = adam_rate<float>(in[4], options.beta_1, options.beta_2),
                              .rest_1 = static_cast<float>(1 - options.beta_1),
                              .rest_2 = static_cast<float>(1 - options.beta_2),
                              .epsilon = static_cast<float>(options.epsilon),
                              .decay = adam_decay<float>(in[4], options.weight_decay)};
    parallel_ranges(
        threads, count, 4 * count,
        [&](int64_t begin, int64_t end) {
          HWY_DYNAMIC_DISPATCH(adam_range)(in, out, numbers, begin, end);
        },
        16);
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
