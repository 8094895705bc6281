// Weight gradient of a depthwise 3x3 convolution on maps smaller than the kernel, float32, compiled
// once for each SIMD target; the library is fast on larger ones and 20 times as slow on these. A
// vector is a group of channels; its nine sums stay in registers along a line of dy, are added up
// over the lines of a chunk of images, then over the chunks: bits depend neither on threads nor on
// the vector width, only on whether the target fuses multiplication and addition.
#include "op/conv2d_depthwise.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/conv2d_depthwise_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"

constexpr int kDepthwiseRow = static_cast<int>(kDepthwiseTaps);

// sums (10, channels) += one line of dy against `rows` lines of x, for one vector of
// channels. The last row is the bias's.
template <int rows>
void depthwise_sum_line(const WindowAxis& w, const float* const* x, const float* dy, Dim channels,
                        float* sums, float* bias) {
  const Floats d;
  FloatVector sum[rows * kDepthwiseRow + 1];
  for (int i = 0; i <= rows * kDepthwiseRow; ++i) sum[i] = hn::Zero(d);
  for (Dim ow = 0; ow < w.out; ++ow) {
    const auto gradient = hn::LoadU(d, dy + ow * channels);
    for (int r = 0; r < rows; ++r)
      for (int k = 0; k < kDepthwiseRow; ++k) {
        const Dim iw = ow * w.stride - w.before + k * w.dilation;
        if (iw < 0 || iw >= w.in) continue;
        sum[r * kDepthwiseRow + k] =
            hn::MulAdd(hn::LoadU(d, x[r] + iw * channels), gradient, sum[r * kDepthwiseRow + k]);
      }
    sum[rows * kDepthwiseRow] = hn::Add(sum[rows * kDepthwiseRow], gradient);
  }
  for (int i = 0; i < rows * kDepthwiseRow; ++i)
    hn::StoreU(hn::Add(hn::LoadU(d, sums + i * channels), sum[i]), d, sums + i * channels);
  hn::StoreU(hn::Add(hn::LoadU(d, bias), sum[rows * kDepthwiseRow]), d, bias);
}

// sums (10, channels): of images [begin, end), for channels [first, last), a multiple of the
// vector.
void depthwise_sums(const Window& window, Dim channels, const float* x, const float* dy,
                    float* sums, Dim begin, Dim end, Dim first, Dim last) {
  const WindowAxis& h = window.h;
  const Dim pitch = window.w.in * channels, line = window.w.out * channels;
  for (int i = 0; i <= kDepthwiseRow * kDepthwiseRow; ++i)
    std::fill(sums + i * channels + first, sums + i * channels + last, 0.0f);
  for (Dim b = begin; b < end; ++b)
    for (Dim c = first; c < last; c += kWidth)
      for (Dim oh = 0; oh < h.out; ++oh) {
        const float* rows[kDepthwiseRow];
        int count = 0, top = 0;
        for (int kh = 0; kh < kDepthwiseRow; ++kh) {
          const Dim ih = oh * h.stride - h.before + kh * h.dilation;
          if (ih < 0 || ih >= h.in) continue;
          if (count == 0) top = kh;
          rows[count++] = x + (b * h.in + ih) * pitch + c;
        }
        const float* from = dy + (b * h.out + oh) * line + c;
        float* to = sums + top * kDepthwiseRow * channels + c;
        float* bias = sums + kDepthwiseRow * kDepthwiseRow * channels + c;
        if (count == 3)
          depthwise_sum_line<3>(window.w, rows, from, channels, to, bias);
        else if (count == 2)
          depthwise_sum_line<2>(window.w, rows, from, channels, to, bias);
        else if (count == 1)
          depthwise_sum_line<1>(window.w, rows, from, channels, to, bias);
        else
          depthwise_sum_line<0>(window.w, rows, from, channels, to, bias);
      }
}

bool depthwise_fuses() { return HWY_NATIVE_FMA != 0; }

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(depthwise_sums);
HWY_EXPORT(depthwise_fuses);

bool depthwise_suits(const Conv2dForm& f) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  const bool small = std::min(h.in, w.in) < kDepthwiseTaps;
  return small && f.groups == f.channels && f.filters == f.channels && f.channels % 16 == 0 &&
         h.kernel == kDepthwiseTaps && w.kernel == kDepthwiseTaps && h.dilation == 1;
}

namespace {

constexpr Dim kMostChunks = 16;     // of images, each with sums of its own
constexpr Dim kBlockChannels = 64;  // that a thread sums at a time
constexpr Dim kSums = kDepthwiseTaps * kDepthwiseTaps + 1;

const char* key_of() {
  return HWY_DYNAMIC_DISPATCH(depthwise_fuses)() ? "depthwise:fused" : "depthwise:unfused";
}

}  // namespace

// Workspace: for each chunk of images sums (10, channels), the last row for the bias.
std::unique_ptr<Kernel> conv2d_weight_gradient_depthwise(const PrepareCall& call) {
  const Conv2dForm f = conv2d_weight_gradient_form(call.in, call.attrs);
  if (call.in[0].dtype != Dtype::float32 || f.batch == 0 || !depthwise_suits(f)) return nullptr;
  const int threads = call.backend.threads();
  const Dim images = (f.batch + kMostChunks - 1) / kMostChunks;
  const Dim chunks = (f.batch + images - 1) / images;
  const Dim blocks = (f.channels + kBlockChannels - 1) / kBlockChannels;
  auto kernel = make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        const float* x = static_cast<const float*>(in[0]);
        const float* dy = static_cast<const float*>(in[1]);
        float* sums = static_cast<float*>(workspace);
        const Dim part = kSums * f.channels;
        parallel_ranges(threads, chunks * blocks,
                        f.batch * f.window.h.out * f.window.w.out * f.filters,
                        [&](Dim begin, Dim end) {
                          for (Dim task = begin; task < end; ++task) {
                            const Dim chunk = task / blocks, c = task % blocks * kBlockChannels;
                            HWY_DYNAMIC_DISPATCH(depthwise_sums)
                            (f.window, f.channels, x, dy, sums + chunk * part, chunk * images,
                             std::min(f.batch, (chunk + 1) * images), c,
                             std::min(f.channels, c + kBlockChannels));
                          }
                        });
        auto add_up = [&](Dim first, Dim count, float* to) {
          std::copy_n(sums + first, count, to);
          for (Dim chunk = 1; chunk < chunks; ++chunk)
            for (Dim i = 0; i < count; ++i) to[i] += sums[chunk * part + first + i];
        };
        add_up(0, part - f.channels, static_cast<float*>(out[0]));
        if (f.bias) add_up(part - f.channels, f.channels, static_cast<float*>(out[1]));
      },
      chunks * kSums * f.channels * static_cast<Bytes>(sizeof(float)));
  kernel->key = key_of();
  return kernel;
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
