// Kernels of conv2d tap by tap (conv2d_taps.h), float32, compiled once for each SIMD target. Images
// are packed into panels of 64 channels, [panel][pixel][sample][channel], so that one pixel of all
// samples, or a run of pixels, is a matrix with rows next to each other. Panels of the result are
// what threads share out. Sums run over taps, then channels, or over pixels, then samples: bits
// depend neither on threads nor on the vector width, only on whether the target fuses
// multiplication and addition.
#include "op/conv2d_taps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/conv2d_taps_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <omp.h>

#include <algorithm>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"
#include "op/simd_product-inl.h"

// to (columns, rows) = the transpose of from (rows, columns), `stride` apart; both multiples of 4.
#if HWY_TARGET == HWY_SCALAR
void transpose_block(const float* from, Dim stride, Dim rows, Dim columns, float* to) {
  for (Dim r = 0; r < rows; ++r)
    for (Dim c = 0; c < columns; ++c) to[c * rows + r] = from[r * stride + c];
}
#else
void transpose_block(const float* from, Dim stride, Dim rows, Dim columns, float* to) {
  const hn::FixedTag<float, 4> d;
  const hn::RepartitionToWide<decltype(d)> pairs;
  for (Dim r = 0; r < rows; r += 4)
    for (Dim c = 0; c < columns; c += 4) {
      const float* at = from + r * stride + c;
      const auto r0 = hn::LoadU(d, at), r1 = hn::LoadU(d, at + stride);
      const auto r2 = hn::LoadU(d, at + 2 * stride), r3 = hn::LoadU(d, at + 3 * stride);
      const auto a = hn::BitCast(pairs, hn::InterleaveLower(d, r0, r1));
      const auto b = hn::BitCast(pairs, hn::InterleaveLower(d, r2, r3));
      const auto e = hn::BitCast(pairs, hn::InterleaveUpper(d, r0, r1));
      const auto f = hn::BitCast(pairs, hn::InterleaveUpper(d, r2, r3));
      float* out = to + c * rows + r;
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, a, b)), d, out);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, a, b)), d, out + rows);
      hn::StoreU(hn::BitCast(d, hn::InterleaveLower(pairs, e, f)), d, out + 2 * rows);
      hn::StoreU(hn::BitCast(d, hn::InterleaveUpper(pairs, e, f)), d, out + 3 * rows);
    }
}
#endif

// One panel of the result, [pixel][sample][channel], from the packed input. w is (taps, depth,
// width) or, if turned, (taps, width, depth); `block` has room for 64 x 64 of it.
void add_taps(const TapsForm& f, const float* in, const float* w, bool turned, Dim panel,
              float* block, float* out) {
  const Dim first = panel * kTapsPanel, columns = std::min(kTapsPanel, f.width - first);
  std::fill(out, out + f.out.count() * f.batch * columns, 0.0f);
  for (size_t begin = 0, end = 0; begin < f.runs.size(); begin = end) {
    const Dim tap = f.runs[begin].tap;
    while (end < f.runs.size() && f.runs[end].tap == tap) ++end;
    for (Dim k = 0; k < f.depth; k += kTapsPanel) {
      const Dim deep = std::min(kTapsPanel, f.depth - k);
      if (turned)
        transpose_block(w + (tap * f.width + first) * f.depth + k, f.depth, columns, deep, block);
      else
        for (Dim i = 0; i < deep; ++i)
          std::copy_n(w + (tap * f.depth + k + i) * f.width + first, columns, block + i * columns);
      const float* part = in + k * f.in.count() * f.batch;
      for (size_t r = begin; r < end; ++r) {
        const TapRun& run = f.runs[r];
        const float* a = part + run.from * f.batch * deep;
        float* c = out + run.to * f.batch * columns;
        const Dim rows = run.count * f.batch;
        for (Dim row = 0; row < rows; row += kRows)
          band<false>(std::min<Dim>(kRows, rows - row), a + row * deep, deep, block, columns, deep,
                      c + row * columns, columns, columns, true);
      }
    }
  }
}

// The part of dw (taps, depth, width) for a panel of x and one of dy, both packed. `f` as forward.
void sum_taps(const TapsForm& f, const float* x, const float* dy, Dim x_panel, Dim dy_panel,
              float* dw) {
  const Dim c0 = x_panel * kTapsPanel, rows = std::min(kTapsPanel, f.depth - c0);
  const Dim o0 = dy_panel * kTapsPanel, columns = std::min(kTapsPanel, f.width - o0);
  const float* a = x + c0 * f.in.count() * f.batch;
  const float* b = dy + o0 * f.out.count() * f.batch;
  size_t begin = 0;
  for (Dim tap = 0; tap < f.taps; ++tap) {
    size_t end = begin;
    while (end < f.runs.size() && f.runs[end].tap == tap) ++end;
    float* to = dw + (tap * f.depth + c0) * f.width + o0;
    for (Dim r = 0; r < rows; r += kRows) {
      const Dim some = std::min<Dim>(kRows, rows - r);
      float* sums = to + r * f.width;
      for (Dim i = 0; begin == end && i < some; ++i)  // a tap that is always on padding
        std::fill_n(sums + i * f.width, columns, 0.0f);
      for (size_t i = begin; i < end; ++i) {
        const TapRun& run = f.runs[i];
        band<true>(some, a + run.from * f.batch * rows + r, rows, b + run.to * f.batch * columns,
                   columns, run.count * f.batch, sums, f.width, columns, i > begin);
      }
    }
    begin = end;
  }
}

bool taps_fuse() { return HWY_NATIVE_FMA != 0; }

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(add_taps);
HWY_EXPORT(sum_taps);
HWY_EXPORT(taps_fuse);

namespace {

constexpr Dim kBlockFloats = kTapsPanel * kTapsPanel;

Dim panels_of(Dim channels) { return (channels + kTapsPanel - 1) / kTapsPanel; }
const char* key_of() { return HWY_DYNAMIC_DISPATCH(taps_fuse)() ? "taps:fused" : "taps:unfused"; }
Dim packed_floats(Dim pixels, Dim batch, Dim channels) {
  return align_up(pixels * batch * channels, 16);
}

// images (batch, pixels, channels) to [panel][pixel][sample][channel].
void pack(const float* images, Dim batch, const TapPixels& pixels, Dim channels, int threads,
          float* packed) {
  const Dim count = pixels.count();
  parallel_ranges(threads, count, batch * count * channels, [&](Dim begin, Dim end) {
    for (Dim b = 0; b < batch; ++b)
      for (Dim pixel = begin; pixel < end; ++pixel) {
        const Dim at = pixels.used[static_cast<size_t>(pixel)];
        for (Dim c = 0; c < channels; c += kTapsPanel) {
          const Dim some = std::min(kTapsPanel, channels - c);
          std::copy_n(images + (b * pixels.total + at) * channels + c, some,
                      packed + c * count * batch + (pixel * batch + b) * some);
        }
      }
  });
}

// Panel `panel` of the result to its place in images, with bias (or null) and relu.
void unpack(const TapsForm& f, const float* packed, Dim panel, const float* bias, bool relu,
            float* images) {
  const Dim first = panel * kTapsPanel, count = std::min(kTapsPanel, f.width - first);
  const float zeros[kTapsPanel] = {};
  for (Dim b = 0; b < f.batch; ++b) {
    Dim next = 0;  // packed pixel
    for (Dim pixel = 0; pixel < f.out.total; ++pixel) {
      const bool used = next < f.out.count() && f.out.used[static_cast<size_t>(next)] == pixel;
      const float* from = used ? packed + (next++ * f.batch + b) * count : zeros;
      float* to = images + (b * f.out.total + pixel) * f.width + first;
      for (Dim c = 0; c < count; ++c) to[c] = bias ? from[c] + bias[first + c] : from[c];
      for (Dim c = 0; relu && c < count; ++c) to[c] = to[c] <= 0.0f ? 0.0f : to[c];
    }
  }
}

Bytes footprint_of(const TapsForm& f) {
  return static_cast<Bytes>(f.runs.size() * sizeof(TapRun)) +
         (f.in.count() + f.out.count()) * static_cast<Bytes>(sizeof(Dim));
}

// Forward, or from dy to dx. Workspace: the input packed, the result packed, and for each thread a
// block of weights.
class TapsConv final : public Kernel {
 public:
  TapsConv(TapsForm f, const Conv2dForm& conv, bool turned, int threads)
      : f_(std::move(f)), bias_(conv.bias), relu_(conv.relu), turned_(turned), threads_(threads) {
    in_ = packed_floats(f_.in.count(), f_.batch, f_.depth);
    out_ = packed_floats(f_.out.count(), f_.batch, f_.width);
    workspace_bytes = (in_ + out_ + threads * kBlockFloats) * static_cast<Bytes>(sizeof(float));
    key = key_of();
    footprint = static_cast<Bytes>(sizeof *this) + footprint_of(f_);
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const float* w = static_cast<const float*>(in[turned_ ? 0 : 1]);
    const float* x = static_cast<const float*>(in[turned_ ? 1 : 0]);
    const float* bias = bias_ && !turned_ ? static_cast<const float*>(in[2]) : nullptr;
    float* packed = static_cast<float*>(workspace);
    pack(x, f_.batch, f_.in, f_.depth, threads_, packed);
    const Dim panels = panels_of(f_.width);
    parallel_ranges(threads_, panels, f_.taps * f_.depth * f_.width, [&](Dim begin, Dim end) {
      float* block = packed + in_ + out_ + omp_get_thread_num() * kBlockFloats;
      for (Dim panel = begin; panel < end; ++panel) {
        float* result = packed + in_ + panel * kTapsPanel * f_.out.count() * f_.batch;
        HWY_DYNAMIC_DISPATCH(add_taps)(f_, packed, w, turned_, panel, block, result);
        unpack(f_, result, panel, bias, relu_, static_cast<float*>(out[0]));
      }
    });
  }

 private:
  TapsForm f_;
  bool bias_, relu_, turned_;
  int threads_;
  Dim in_, out_;  // floats
};

// Workspace: x and dy packed.
class TapsWeightGradient final : public Kernel {
 public:
  TapsWeightGradient(const Conv2dForm& conv, int threads)
      : f_(taps_forward(conv)), bias_(conv.bias), threads_(threads) {
    x_ = packed_floats(f_.in.count(), f_.batch, f_.depth);
    workspace_bytes = (x_ + packed_floats(f_.out.count(), f_.batch, f_.width)) *
                      static_cast<Bytes>(sizeof(float));
    key = key_of();
    footprint = static_cast<Bytes>(sizeof *this) + footprint_of(f_);
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const float* dy = static_cast<const float*>(in[1]);
    float* x_packed = static_cast<float*>(workspace);
    float* dy_packed = x_packed + x_;
    pack(static_cast<const float*>(in[0]), f_.batch, f_.in, f_.depth, threads_, x_packed);
    pack(dy, f_.batch, f_.out, f_.width, threads_, dy_packed);
    const Dim across = panels_of(f_.width), tasks = panels_of(f_.depth) * across;
    parallel_ranges(threads_, tasks, f_.taps * f_.depth * f_.width, [&](Dim begin, Dim end) {
      for (Dim task = begin; task < end; ++task) HWY_DYNAMIC_DISPATCH(sum_taps)
      (f_, x_packed, dy_packed, task / across, task % across, static_cast<float*>(out[0]));
    });
    if (bias_) sum_bias(dy, static_cast<float*>(out[1]));
  }

 private:
  void sum_bias(const float* dy, float* db) const {
    std::fill_n(db, f_.width, 0.0f);
    for (Dim i = 0; i < f_.batch * f_.out.total; ++i)
      for (Dim o = 0; o < f_.width; ++o) db[o] += dy[i * f_.width + o];
  }

  TapsForm f_;
  bool bias_;
  int threads_;
  Dim x_;  // floats
};

bool supported(const PrepareCall& call, const Conv2dForm& f) {
  return call.in[0].dtype == Dtype::float32 && f.batch > 0 && taps_suit(f);
}

}  // namespace

std::unique_ptr<Kernel> conv2d_taps(const PrepareCall& call) {
  const Conv2dForm f = conv2d_form(call.in, call.attrs);
  if (!supported(call, f)) return nullptr;
  return std::make_unique<TapsConv>(taps_forward(f), f, false, call.backend.threads());
}

std::unique_ptr<Kernel> conv2d_input_gradient_taps(const PrepareCall& call) {
  Conv2dForm f = conv2d_input_gradient_form(call.in, call.attrs);
  if (!supported(call, f)) return nullptr;
  f.relu = false;
  return std::make_unique<TapsConv>(taps_backward(f), f, true, call.backend.threads());
}

std::unique_ptr<Kernel> conv2d_weight_gradient_taps(const PrepareCall& call) {
  const Conv2dForm f = conv2d_weight_gradient_form(call.in, call.attrs);
  if (!supported(call, f)) return nullptr;
  return std::make_unique<TapsWeightGradient>(f, call.backend.threads());
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
