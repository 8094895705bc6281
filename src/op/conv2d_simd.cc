// Weight gradient of a convolution over few input channels (the first layer's), float32, compiled
// once for each SIMD target. Such a layer has little to compute for each dy it reads; this kernel
// reads dy once, at the speed of memory, where the library takes 2 to 4 times as long. Sums go
// along a line of the image, then over the lines of a chunk of images, then over the chunks; none
// of this depends on the vector width or the number of threads.
#include "op/conv2d.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/conv2d_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <cstring>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

// One line of dy against `taps` kernel positions, for one vector of filters:
// sums[t * filters + lane] += sum over i of patch[offsets[t] + i * step] * dy[i * filters + lane].
// bias, unless null, takes the sum of dy alone.
template <int taps>
void line_of_taps(const float* patch, const Dim* offsets, Dim step, const float* dy, Dim count,
                  Dim filters, float* sums, float* bias) {
  const hn::ScalableTag<float> d;
  hn::Vec<decltype(d)> sum[taps + 1];
  for (int t = 0; t <= taps; ++t) sum[t] = hn::Zero(d);
  for (Dim i = 0; i < count; ++i) {
    const auto gradient = hn::LoadU(d, dy + i * filters);
    for (int t = 0; t < taps; ++t)
      sum[t] = hn::Add(sum[t], hn::Mul(hn::Set(d, patch[offsets[t] + i * step]), gradient));
    sum[taps] = hn::Add(sum[taps], gradient);
  }
  for (int t = 0; t < taps; ++t) {
    float* to = sums + t * filters;
    hn::StoreU(hn::Add(hn::LoadU(d, to), sum[t]), d, to);
  }
  if (bias) hn::StoreU(hn::Add(hn::LoadU(d, bias), sum[taps]), d, bias);
}

// sums (taps + 1, filters) += one line of dy (count, filters) against the patch it saw; the last
// row is the bias's.
void gradient_line(const float* patch, const Dim* offsets, Dim taps, Dim step, const float* dy,
                   Dim count, Dim filters, float* sums) {
  const Dim lanes = static_cast<Dim>(hn::Lanes(hn::ScalableTag<float>()));
  float* bias = sums + taps * filters;
  Dim o = 0;
  for (; o + lanes <= filters; o += lanes) {
    auto lines = [&](auto line, Dim t) {
      line(patch, offsets + t, step, dy + o, count, filters, sums + t * filters + o,
           t == 0 ? bias + o : nullptr);
    };
    Dim t = 0;
    // Nine sums fill the registers well, and are what a 3x3 kernel has.
    for (; t + 9 <= taps; t += 9) lines(line_of_taps<9>, t);
    for (; t + 3 <= taps; t += 3) lines(line_of_taps<3>, t);
    for (; t < taps; ++t) lines(line_of_taps<1>, t);
  }
  for (; o < filters; ++o)
    for (Dim t = 0; t <= taps; ++t) {
      float line = 0;
      for (Dim i = 0; i < count; ++i) {
        const float gradient = dy[i * filters + o];
        line += t < taps ? patch[offsets[t] + i * step] * gradient : gradient;
      }
      sums[t * filters + o] += line;
    }
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(gradient_line);

namespace {

constexpr Dim kMostChunks = 64;  // of images, each with sums of its own
constexpr Dim kMostTaps = 32;    // kernel positions times channels
constexpr Dim kMostChannels = 4;

// What a chunk of images has in the workspace, in floats: sums (taps + 1, filters), the last row
// for the bias; then the patch of input lines under one line of output, (KH, padded width, C).
struct Layout {
  Dim taps, line, patch, sums, chunk_images, chunks;
  Dim floats() const { return sums + patch; }
};

Layout layout_of(const Conv2dForm& f) {
  const WindowAxis& w = f.window.w;
  Layout l{};
  l.taps = f.window.h.kernel * w.kernel * f.channels;
  l.line = (w.before + w.in + w.after) * f.channels;
  l.patch = align_up(f.window.h.kernel * l.line, 16);
  l.sums = align_up((l.taps + 1) * f.filters, 16);
  l.chunk_images = (f.batch + kMostChunks - 1) / kMostChunks;
  l.chunks = (f.batch + l.chunk_images - 1) / l.chunk_images;
  return l;
}

// Copies the input lines under output line `oh`, with zeros for padding, to `patch`.
void fill_patch(const Conv2dForm& f, const Layout& l, const float* image, Dim oh, float* patch) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  const Dim before = w.before * f.channels, width = w.in * f.channels;
  for (Dim kh = 0; kh < h.kernel; ++kh) {
    float* to = patch + kh * l.line;
    const Dim ih = oh * h.stride - h.before + kh * h.dilation;
    const bool inside = ih >= 0 && ih < h.in;
    if (!inside || l.line != width) std::fill(to, to + l.line, 0.0f);
    if (inside) std::copy_n(image + ih * width, width, to + before);
  }
}

class FewChannelsWeightGradient final : public Kernel {
 public:
  FewChannelsWeightGradient(const Conv2dForm& f, int threads)
      : f_(f), l_(layout_of(f)), threads_(threads) {
    for (Dim kh = 0; kh < f.window.h.kernel; ++kh)
      for (Dim kw = 0; kw < f.window.w.kernel; ++kw)
        for (Dim c = 0; c < f.channels; ++c)
          offsets_.push_back(kh * l_.line + kw * f.window.w.dilation * f.channels + c);
    workspace_bytes = l_.chunks * l_.floats() * static_cast<Bytes>(sizeof(float));
    footprint = static_cast<Bytes>(sizeof *this + offsets_.size() * sizeof(Dim));
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const float* x = static_cast<const float*>(in[0]);
    const float* dy = static_cast<const float*>(in[1]);
    float* parts = static_cast<float*>(workspace);
    const Dim work = f_.batch * f_.window.h.out * f_.window.w.out * f_.filters;
    parallel_ranges(threads_, l_.chunks, work, [&](Dim begin, Dim end) {
      for (Dim chunk = begin; chunk < end; ++chunk)
        sum_chunk(chunk, x, dy, parts + chunk * l_.floats());
    });
    add_up(parts, l_.taps * f_.filters, static_cast<float*>(out[0]));
    if (f_.bias) add_up(parts + l_.taps * f_.filters, f_.filters, static_cast<float*>(out[1]));
  }

 private:
  // part: the chunk's floats, as in Layout.
  void sum_chunk(Dim chunk, const float* x, const float* dy, float* part) const {
    const WindowAxis &h = f_.window.h, &w = f_.window.w;
    float* patch = part + l_.sums;
    std::fill(part, part + l_.sums, 0.0f);
    const Dim last = std::min(f_.batch, (chunk + 1) * l_.chunk_images);
    for (Dim b = chunk * l_.chunk_images; b < last; ++b)
      for (Dim oh = 0; oh < h.out; ++oh) {
        fill_patch(f_, l_, x + b * h.in * w.in * f_.channels, oh, patch);
        const float* line = dy + (b * h.out + oh) * w.out * f_.filters;
        HWY_DYNAMIC_DISPATCH(gradient_line)
        (patch, offsets_.data(), l_.taps, w.stride * f_.channels, line, w.out, f_.filters, part);
      }
  }

  void add_up(const float* parts, Dim count, float* to) const {
    std::copy_n(parts, count, to);
    for (Dim chunk = 1; chunk < l_.chunks; ++chunk)
      for (Dim i = 0; i < count; ++i) to[i] += parts[chunk * l_.floats() + i];
  }

  Conv2dForm f_;
  Layout l_;
  int threads_;
  std::vector<Dim> offsets_;  // of the taps within a patch
};

}  // namespace

std::unique_ptr<Kernel> conv2d_weight_gradient_simd(const PrepareCall& call) {
  const Conv2dForm f = conv2d_weight_gradient_form(call.in, call.attrs);
  const Dim taps = f.window.h.kernel * f.window.w.kernel * f.channels;
  if (call.in[0].dtype != Dtype::float32 || f.groups > 1 || f.batch == 0 ||
      f.channels > kMostChannels || taps > kMostTaps)
    return nullptr;
  return std::make_unique<FewChannelsWeightGradient>(f, call.backend.threads());
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
