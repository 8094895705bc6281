// Convolutions over few input channels (the first layer's), alone or with the max-pool behind them,
// float32, vectorised over filters, compiled once for each SIMD target. Such a layer is bound by
// memory when its image is written; with the pool in registers, memory sees the input and the
// pooled output only. Both forms sum in one order, so their bits are equal.
#include "op/conv2d_few.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/conv2d_few_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <cmath>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
using D = hn::ScalableTag<float>;
using V = hn::Vec<D>;

// sum[p][v]: the convolution at patch at[p] for `vectors` vectors of filters.
template <int vectors>
HWY_INLINE void convolve_four(const FewLine& l, const float* const* at, const float* w,
                              const float* bias, V (&sum)[4][vectors]) {
  const D d;
  const Dim lanes = static_cast<Dim>(hn::Lanes(d));
  for (int v = 0; v < vectors; ++v) {
    const V start = bias ? hn::LoadU(d, bias + v * lanes) : hn::Zero(d);
    for (int p = 0; p < 4; ++p) sum[p][v] = start;
  }
  for (Dim t = 0; t < l.tap_count; ++t) {
    V weight[vectors];
    for (int v = 0; v < vectors; ++v) weight[v] = hn::LoadU(d, w + t * l.filters + v * lanes);
    for (int p = 0; p < 4; ++p) {
      const V value = hn::Set(d, at[p][l.taps[t]]);
      for (int v = 0; v < vectors; ++v) sum[p][v] = hn::MulAdd(value, weight[v], sum[p][v]);
    }
  }
}

HWY_INLINE V rectified(V v) {
  const V zero = hn::Zero(D());
  return hn::IfThenElse(hn::Le(v, zero), zero, v);
}

// The convolution at one patch for one filter, summed in the same order.
HWY_INLINE float convolve_one(const FewLine& l, const float* patch, const float* w,
                              const float* bias) {
  const hn::CappedTag<float, 1> d;
  auto sum = hn::Set(d, bias ? *bias : 0.0f);
  for (Dim t = 0; t < l.tap_count; ++t)
    sum = hn::MulAdd(hn::Set(d, patch[l.taps[t]]), hn::Set(d, w[t * l.filters]), sum);
  return hn::GetLane(sum);
}

HWY_INLINE float rectified(float v) { return v <= 0.0f ? 0.0f : v; }

// Maxima over a window of 2x2 at one output element.
template <int vectors>
void pool_four(const FewLine& l, const float* patch, const float* w, const float* bias, PoolEnd end,
               float* y, uint8_t* index) {
  const D d;
  const hn::RebindToSigned<D> di;
  const hn::Rebind<uint8_t, D> du8;
  const Dim lanes = static_cast<Dim>(hn::Lanes(d));
  const float* at[4];
  for (int p = 0; p < 4; ++p) at[p] = patch + l.positions[p];
  V sum[4][vectors];
  convolve_four<vectors>(l, at, w, bias, sum);
  for (int v = 0; v < vectors; ++v) {
    V best = sum[0][v];
    auto where = hn::Zero(di);
    for (int p = 1; p < 4; ++p) {
      // NaN wins, wherever it stands.
      const auto larger = hn::Or(hn::Gt(sum[p][v], best), hn::Ne(sum[p][v], sum[p][v]));
      best = hn::IfThenElse(larger, sum[p][v], best);
      where = hn::IfThenElse(hn::RebindMask(di, larger), hn::Set(di, p), where);
    }
    if (end.masked) {
      const auto passes = hn::RebindMask(di, hn::Gt(best, hn::Zero(d)));
      where = hn::IfThenElse(passes, where, hn::Set(di, kNoPosition));
    }
    hn::StoreU(end.relu ? rectified(best) : best, d, y + v * lanes);
    hn::StoreU(hn::DemoteTo(du8, where), du8, index + v * lanes);
  }
}

// Any window, one filter.
void pool_one(const FewLine& l, const float* patch, const float* w, const float* bias, PoolEnd end,
              float* y, uint8_t* index) {
  float best = 0;
  for (Dim p = 0; p < l.rows * l.cols; ++p) {
    const float sum = convolve_one(l, patch + l.positions[p], w, bias);
    if (p > 0 && !(sum > best || sum != sum)) continue;
    best = sum;
    *index = static_cast<uint8_t>(p);
  }
  *y = end.relu ? rectified(best) : best;
  if (end.masked && !(best > 0)) *index = kNoPosition;
}

void pool_line(const FewLine& l, const float* w, const float* bias, PoolEnd end, float* y,
               uint8_t* index) {
  const Dim lanes = static_cast<Dim>(hn::Lanes(D()));
  for (Dim i = 0; i < l.count; ++i) {
    const float* patch = l.patch + i * l.step;
    Dim o = 0;
    auto at = [&](const float* base) { return base ? base + o : nullptr; };
    if (l.rows == 2 && l.cols == 2) {
      for (; o + 2 * lanes <= l.filters; o += 2 * lanes)
        pool_four<2>(l, patch, w + o, at(bias), end, y + o, index + o);
      for (; o + lanes <= l.filters; o += lanes)
        pool_four<1>(l, patch, w + o, at(bias), end, y + o, index + o);
    }
    for (; o < l.filters; ++o) pool_one(l, patch, w + o, at(bias), end, y + o, index + o);
    y += l.filters;
    index += l.filters;
  }
}

// Up to four output elements next to each other.
template <int vectors>
void convolve_quad(const FewLine& l, const float* patch, Dim count, const float* w,
                   const float* bias, bool relu, float* y) {
  const D d;
  const Dim lanes = static_cast<Dim>(hn::Lanes(d));
  const float* at[4];
  for (Dim p = 0; p < 4; ++p) at[p] = patch + std::min(p, count - 1) * l.step;
  V sum[4][vectors];
  convolve_four<vectors>(l, at, w, bias, sum);
  for (int p = 0; p < count; ++p)
    for (int v = 0; v < vectors; ++v)
      hn::StoreU(relu ? rectified(sum[p][v]) : sum[p][v], d, y + p * l.filters + v * lanes);
}

void convolve_line(const FewLine& l, const float* w, const float* bias, bool relu, float* y) {
  const Dim lanes = static_cast<Dim>(hn::Lanes(D()));
  for (Dim i = 0; i < l.count; i += 4) {
    const float* patch = l.patch + i * l.step;
    const Dim count = std::min<Dim>(4, l.count - i);
    float* to = y + i * l.filters;
    Dim o = 0;
    auto at = [&](const float* base) { return base ? base + o : nullptr; };
    for (; o + 2 * lanes <= l.filters; o += 2 * lanes)
      convolve_quad<2>(l, patch, count, w + o, at(bias), relu, to + o);
    for (; o + lanes <= l.filters; o += lanes)
      convolve_quad<1>(l, patch, count, w + o, at(bias), relu, to + o);
    for (; o < l.filters; ++o)
      for (Dim p = 0; p < count; ++p) {
        const float sum = convolve_one(l, patch + p * l.step, w + o, at(bias));
        to[p * l.filters + o] = relu ? rectified(sum) : sum;
      }
  }
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(pool_line);
HWY_EXPORT(convolve_line);

namespace {

Dim work_of(const Conv2dForm& f) { return f.batch * f.window.h.out * f.window.w.out * f.filters; }

// line(line, x, w, bias, first output element, out) for every output line.
template <class Line>
std::unique_ptr<Kernel> walking(const Conv2dPoolForm& f, int threads, Line each) {
  const FewWalk walk(f, 0);
  auto kernel = make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const float* x = static_cast<const float*>(in[0]);
        const float* w = static_cast<const float*>(in[1]);
        const float* bias = f.conv.bias ? static_cast<const float*>(in[2]) : nullptr;
        float* parts = static_cast<float*>(workspace);
        parallel_ranges(threads, walk.chunks(), work_of(f.conv), [&](Dim begin, Dim end) {
          for (Dim c = begin; c < end; ++c)
            walk.chunk(c, x, parts + c * walk.floats(),
                       [&](const FewLine& line, Dim to) { each(line, w, bias, out, to); });
        });
      },
      walk.workspace());
  kernel->footprint += walk.footprint();
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> conv2d_simd(const PrepareCall& call) {
  const Conv2dForm f = conv2d_form(call.in, call.attrs);
  if (call.in[0].dtype != Dtype::float32 || !few_channels(f)) return nullptr;
  return walking(FewWalk::unpooled(f), call.backend.threads(),
                 [relu = f.relu](const FewLine& line, const float* w, const float* bias,
                                 void* const* out, Dim to) {
                   HWY_DYNAMIC_DISPATCH(convolve_line)
                   (line, w, bias, relu, static_cast<float*>(out[0]) + to);
                 });
}

std::unique_ptr<Kernel> conv2d_pool_simd(const PrepareCall& call) {
  const Conv2dPoolForm f = conv2d_pool_form(call.in, call.attrs);
  if (call.in[0].dtype != Dtype::float32 || f.conv.batch == 0) return nullptr;
  return walking(
      f, call.backend.threads(),
      [end = PoolEnd{f.conv.relu, f.masked}](const FewLine& line, const float* w, const float* bias,
                                             void* const* out, Dim to) {
        HWY_DYNAMIC_DISPATCH(pool_line)
        (line, w, bias, end, static_cast<float*>(out[0]) + to, static_cast<uint8_t*>(out[1]) + to);
      });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
