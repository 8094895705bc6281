// Cross-entropy of integer labels, float32, compiled once for each SIMD target: over the 50,000
// words of a language model the exponentials are what counts. Sums run in 16 lanes whatever the
// vector width, and are added up in double after each block, so that all targets give the same
// bits.
#include "op/softmax_cross_entropy.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/softmax_cross_entropy_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr Dim kLanes = 16;
using Floats = hn::CappedTag<float, kLanes>;

// exp(v) for v <= 0, within 2 units in the last place (Cephes's polynomial); 0 below -87.3, where
// float32 has no more normal numbers. NaN stays NaN.
template <class V>
HWY_INLINE V exp_of(Floats d, V v) {
  const hn::RebindToSigned<Floats> di;
  const auto k = hn::NearestInt(hn::Mul(v, hn::Set(d, 1.44269504088896341f)));
  const auto kf = hn::ConvertTo(d, k);
  // r = v - k * ln 2, with ln 2 in two parts so that the first product is exact.
  auto r = hn::Sub(v, hn::Mul(kf, hn::Set(d, 0.693359375f)));
  r = hn::Sub(r, hn::Mul(kf, hn::Set(d, -2.12194440e-4f)));
  auto p = hn::Set(d, 1.9875691500e-4f);
  for (float c :
       {1.3981999507e-3f, 8.3334519073e-3f, 4.1665795894e-2f, 1.6666665459e-1f, 5.0000001201e-1f})
    p = hn::Add(hn::Mul(p, r), hn::Set(d, c));
  p = hn::Add(hn::Add(hn::Mul(p, hn::Mul(r, r)), r), hn::Set(d, 1.0f));
  const auto power = hn::BitCast(d, hn::ShiftLeft<23>(hn::Add(k, hn::Set(di, 127))));
  const auto small = hn::Lt(v, hn::Set(d, -87.3f));
  const auto value = hn::IfThenZeroElse(small, hn::Mul(p, power));
  return hn::IfThenElse(hn::Eq(v, v), value, v);
}

// 16 exponentials of x - largest to `to`, added to the 16 sums.
HWY_INLINE void exp_block(const float* x, float largest, float* to, float* sums) {
  const Floats d;
  const Dim lanes = static_cast<Dim>(hn::Lanes(d));
  for (Dim i = 0; i < kLanes; i += lanes) {
    const auto e = exp_of(d, hn::Sub(hn::LoadU(d, x + i), hn::Set(d, largest)));
    hn::StoreU(e, d, to + i);
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i), e), d, sums + i);
  }
}

float largest_of(const float* x, Dim count) {
  const Floats d;
  const Dim lanes = static_cast<Dim>(hn::Lanes(d));
  float largest = x[0];
  Dim i = 0;
  if (count >= lanes) {
    auto v = hn::LoadU(d, x);
    for (i = lanes; i + lanes <= count; i += lanes) v = hn::Max(v, hn::LoadU(d, x + i));
    largest = hn::GetLane(hn::MaxOfLanes(d, v));
  }
  for (; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

void scale_row(const float* x, float scale, float* to, Dim count) {
  const Floats d;
  const Dim lanes = static_cast<Dim>(hn::Lanes(d));
  Dim i = 0;
  for (; i + lanes <= count; i += lanes)
    hn::StoreU(hn::Mul(hn::LoadU(d, x + i), hn::Set(d, scale)), d, to + i);
  for (; i < count; ++i) to[i] = x[i] * scale;
}

// Whether all of x[0, count) are below `limit`, and none is NaN.
bool all_below(const float* x, float limit, Dim count) {
  const Floats d;
  const Dim lanes = static_cast<Dim>(hn::Lanes(d));
  Dim i = 0;
  for (; i + lanes <= count; i += lanes)
    if (!hn::AllTrue(d, hn::Lt(hn::LoadU(d, x + i), hn::Set(d, limit)))) return false;
  for (; i < count; ++i)
    if (!(x[i] < limit)) return false;
  return true;
}

// Whether any of x[0, count) is above `limit`.
bool any_above(const float* x, float limit, Dim count) {
  const Floats d;
  const Dim lanes = static_cast<Dim>(hn::Lanes(d));
  Dim i = 0;
  for (; i + lanes <= count; i += lanes)
    if (!hn::AllFalse(d, hn::Gt(hn::LoadU(d, x + i), hn::Set(d, limit)))) return true;
  for (; i < count; ++i)
    if (x[i] > limit) return true;
  return false;
}

// Writes exp(x - largest) to `to`, which may be `x`; returns the sum.
double exp_row(const float* x, float largest, float* to, Dim count) {
  constexpr Dim kBlock = 64 * kLanes;
  double sum = 0;
  for (Dim begin = 0; begin < count; begin += kBlock) {
    const Dim end = std::min(count, begin + kBlock);
    float sums[kLanes] = {};
    Dim c = begin;
    for (; c + kLanes <= end; c += kLanes) exp_block(x + c, largest, to + c, sums);
    if (c < end) {
      float rest[kLanes];
      std::fill(rest, rest + kLanes, -std::numeric_limits<float>::infinity());
      std::copy(x + c, x + end, rest);
      exp_block(rest, largest, rest, sums);
      std::copy(rest, rest + (end - c), to + c);
    }
    for (float lane : sums) sum += static_cast<double>(lane);
  }
  return sum;
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(largest_of);
HWY_EXPORT(exp_row);
HWY_EXPORT(scale_row);
HWY_EXPORT(all_below);
HWY_EXPORT(any_above);

float largest_of_piece(const float* x, Dim count) {
  return HWY_DYNAMIC_DISPATCH(largest_of)(x, count);
}
double exp_of_piece(const float* x, float largest, float* to, Dim count) {
  return HWY_DYNAMIC_DISPATCH(exp_row)(x, largest, to, count);
}
void scale_piece(const float* x, float factor, float* to, Dim count) {
  HWY_DYNAMIC_DISPATCH(scale_row)(x, factor, to, count);
}
bool piece_below(const float* x, float limit, Dim count) {
  return HWY_DYNAMIC_DISPATCH(all_below)(x, limit, count);
}
bool piece_exceeds(const float* x, float limit, Dim count) {
  return HWY_DYNAMIC_DISPATCH(any_above)(x, limit, count);
}

std::unique_ptr<Kernel> sparse_softmax_cross_entropy_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32) return nullptr;
  const Dim n = call.in[0].shape.back(), rows = call.in[0].elements() / n;
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* logits = static_cast<const float*>(in[0]);
    const int32_t* labels = static_cast<const int32_t*>(in[1]);
    float* loss = static_cast<float*>(out[0]);
    float* probs = static_cast<float*>(out[1]);
    parallel_ranges(threads, rows, 4 * rows * n, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        const float* x = logits + i * n;
        float* p = probs + i * n;
        const Dim label = labels[i];
        const bool known = label >= 0 && label < n;
        // Read before probs overwrite it.
        const double of_label = known ? static_cast<double>(x[label]) : 0;
        const float largest = largest_of_piece(x, n);
        const double sum = exp_of_piece(x, largest, p, n);
        scale_piece(p, static_cast<float>(1 / sum), p, n);
        const double log_sum = static_cast<double>(largest) + std::log(sum);
        loss[i] = known ? static_cast<float>(log_sum - of_label)
                        : std::numeric_limits<float>::quiet_NaN();
      }
    });
  });
}

std::unique_ptr<Kernel> sparse_softmax_cross_entropy_gradient_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32) return nullptr;
  const Dim n = call.in[0].shape.back(), rows = call.in[0].elements() / n;
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* probs = static_cast<const float*>(in[0]);
    const int32_t* labels = static_cast<const int32_t*>(in[1]);
    const float* dloss = static_cast<const float*>(in[2]);
    float* dlogits = static_cast<float*>(out[0]);
    parallel_ranges(threads, rows, rows * n, [&](Dim begin, Dim end) {
      for (Dim i = begin; i < end; ++i) {
        const float* p = probs + i * n;
        const Dim label = labels[i];
        const bool known = label >= 0 && label < n;
        // Read before dlogits overwrite it.
        const float of_label = known ? (p[label] - 1.0f) * dloss[i] : 0.0f;
        const float scale = known ? dloss[i] : std::numeric_limits<float>::quiet_NaN();
        scale_piece(p, scale, dlogits + i * n, n);
        if (known) dlogits[i * n + label] = of_label;
      }
    });
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
