// Weight gradients of convolutions over few input channels (the first layer's), alone or with the
// max-pool behind them, float32, compiled once for each SIMD target. Such a layer has little to
// compute for each dy it reads; these kernels read dy once, at the speed of memory, where the
// library takes 2 to 4 times as long. Sums go along a line of the image, then over the lines of a
// chunk, then over the chunks; none of this depends on the vector width or the number of threads.
// Behind a pool the gradient of the image is zero but at the maxima: the lines are summed in the
// same order, so bits are equal to the unfused call's.
#include "op/conv2d_few.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/conv2d_few_gradient_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// Line `row` of the window against `taps` taps, for one vector of filters. index: where the maxima
// are, or null without a pool. bias, unless null, takes the sum of dy alone.
template <int taps, bool pooled>
void line_of_taps(const FewLine& l, Dim row, const Dim* offsets, const uint8_t* index,
                  const float* dy, float* sums, float* bias) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> du8;
  hn::Vec<decltype(d)> sum[taps + 1];
  for (int t = 0; t <= taps; ++t) sum[t] = hn::Zero(d);
  const Dim cols = pooled ? l.cols : 1;
  for (Dim i = 0; i < l.count; ++i) {
    const auto whole = hn::LoadU(d, dy + i * l.filters);
    for (Dim c = 0; c < cols; ++c) {
      auto gradient = whole;
      if constexpr (pooled) {
        const auto where = hn::PromoteTo(di, hn::LoadU(du8, index + i * l.filters));
        const auto here = hn::Set(di, static_cast<int32_t>(row * l.cols + c));
        gradient = hn::IfThenElseZero(hn::RebindMask(d, hn::Eq(where, here)), whole);
      }
      const float* patch = l.patch + i * l.step + l.positions[row * l.cols + c];
      for (int t = 0; t < taps; ++t)
        sum[t] = hn::Add(sum[t], hn::Mul(hn::Set(d, patch[offsets[t]]), gradient));
      sum[taps] = hn::Add(sum[taps], gradient);
    }
  }
  for (int t = 0; t < taps; ++t) {
    float* to = sums + t * l.filters;
    hn::StoreU(hn::Add(hn::LoadU(d, to), sum[t]), d, to);
  }
  if (bias) hn::StoreU(hn::Add(hn::LoadU(d, bias), sum[taps]), d, bias);
}

// The same for one filter.
void line_of_one(const FewLine& l, Dim row, const uint8_t* index, const float* dy, float* sums) {
  for (Dim t = 0; t <= l.tap_count; ++t) {
    float line = 0;
    for (Dim i = 0; i < l.count; ++i)
      for (Dim c = 0; c < l.cols; ++c) {
        const Dim position = row * l.cols + c;
        const float gradient =
            !index || index[i * l.filters] == position ? dy[i * l.filters] : 0.0f;
        const float* patch = l.patch + i * l.step + l.positions[position];
        line += t < l.tap_count ? patch[l.taps[t]] * gradient : gradient;
      }
    sums[t * l.filters] += line;
  }
}

// sums (taps + 1, filters) += one output line against the patch it saw; the last row is the bias's.
template <bool pooled>
void gradient_line(const FewLine& l, const uint8_t* index, const float* dy, float* sums) {
  const Dim lanes = static_cast<Dim>(hn::Lanes(hn::ScalableTag<float>()));
  float* bias = sums + l.tap_count * l.filters;
  for (Dim row = 0; row < l.rows; ++row) {
    Dim o = 0;
    auto at = [&](const uint8_t* base) { return base ? base + o : nullptr; };
    for (; o + lanes <= l.filters; o += lanes) {
      auto lines = [&](auto line, Dim t) {
        line(l, row, l.taps + t, at(index), dy + o, sums + t * l.filters + o,
             t == 0 ? bias + o : nullptr);
      };
      Dim t = 0;
      // Nine sums fill the registers well, and are what a 3x3 kernel has.
      for (; t + 9 <= l.tap_count; t += 9) lines(line_of_taps<9, pooled>, t);
      for (; t + 3 <= l.tap_count; t += 3) lines(line_of_taps<3, pooled>, t);
      for (; t < l.tap_count; ++t) lines(line_of_taps<1, pooled>, t);
    }
    for (; o < l.filters; ++o) line_of_one(l, row, at(index), dy + o, sums + o);
  }
}

void plain_line(const FewLine& l, const uint8_t* index, const float* dy, float* sums) {
  gradient_line<false>(l, index, dy, sums);
}
void pooled_line(const FewLine& l, const uint8_t* index, const float* dy, float* sums) {
  gradient_line<true>(l, index, dy, sums);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(plain_line);
HWY_EXPORT(pooled_line);

namespace {

std::unique_ptr<Kernel> summing(const Conv2dPoolForm& f, int threads, bool pooled) {
  const Dim filters = f.conv.filters;
  const Dim weights = f.conv.window.h.kernel * f.conv.window.w.kernel * f.conv.channels * filters;
  const FewWalk walk(f, weights + filters);
  auto kernel = make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const float* x = static_cast<const float*>(in[0]);
        const uint8_t* index = pooled ? static_cast<const uint8_t*>(in[1]) : nullptr;
        const float* dy = static_cast<const float*>(in[pooled ? 2 : 1]);
        float* parts = static_cast<float*>(workspace);
        const Dim work = f.conv.batch * f.conv.window.h.out * f.conv.window.w.out * filters;
        parallel_ranges(threads, walk.chunks(), work, [&](Dim begin, Dim end) {
          for (Dim c = begin; c < end; ++c) {
            float* part = parts + c * walk.floats();
            std::fill(part, part + weights + filters, 0.0f);
            walk.chunk(c, x, part, [&](const FewLine& line, Dim from) {
              if (pooled)
                HWY_DYNAMIC_DISPATCH(pooled_line)(line, index + from, dy + from, part);
              else
                HWY_DYNAMIC_DISPATCH(plain_line)(line, nullptr, dy + from, part);
            });
          }
        });
        auto add_up = [&](Dim first, Dim count, float* to) {
          std::copy_n(parts + first, count, to);
          for (Dim c = 1; c < walk.chunks(); ++c)
            for (Dim i = 0; i < count; ++i) to[i] += parts[c * walk.floats() + first + i];
        };
        add_up(0, weights, static_cast<float*>(out[0]));
        if (f.conv.bias) add_up(weights, filters, static_cast<float*>(out[1]));
      },
      walk.workspace());
  kernel->footprint += walk.footprint();
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> conv2d_weight_gradient_simd(const PrepareCall& call) {
  const Conv2dForm f = conv2d_weight_gradient_form(call.in, call.attrs);
  if (call.in[0].dtype != Dtype::float32 || !few_channels(f)) return nullptr;
  return summing(FewWalk::unpooled(f), call.backend.threads(), false);
}

std::unique_ptr<Kernel> conv2d_pool_weight_gradient_simd(const PrepareCall& call) {
  const Conv2dPoolForm f = conv2d_pool_weight_gradient_form(call.in, call.attrs);
  if (call.in[0].dtype != Dtype::float32 || f.conv.batch == 0) return nullptr;
  return summing(f, call.backend.threads(), true);
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
