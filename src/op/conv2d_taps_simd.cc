// Loops of conv2d tap by tap (conv2d_taps.h), float32 and bfloat16, compiled once for each SIMD
// target. Images are packed into panels of 64 channels, [panel][pixel][sample][channel], so that
// one pixel of all samples, or a run of pixels, is a matrix with rows next to each other. Sums run
// over taps, then channels, or over pixels, then samples: bits depend neither on threads nor on the
// vector width, only on whether the target fuses multiplication and addition.
#include "op/conv2d_taps.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/conv2d_taps_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>

#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"
#include "op/simd_product-inl.h"

// Rows of `columns` numbers, a multiple of 16, `stride` apart, to rows of terms across them; there
// are `rows` of them, zeros behind.
HWY_INLINE void pack_across(const float* from, Dim rows, Dim stride, Dim columns, float* to) {
  for (Dim r = 0; r < rows; ++r) std::copy_n(from + r * stride, columns, to + r * columns);
}
HWY_INLINE void pack_across(const Bfloat16* from, Dim rows, Dim stride, Dim columns,
                            BfloatPair* to) {
  const PairWords words;
  const hn::Rebind<uint16_t, PairWords> halves;
  auto numbers = [&](const Bfloat16* x) HWY_ATTR {
    return hn::PromoteTo(words, hn::LoadU(halves, reinterpret_cast<const uint16_t*>(x)));
  };
  for (Dim r = 0; r < rows; r += 2)
    for (Dim c = 0; c < columns; c += kWidth) {
      const Bfloat16* at = from + r * stride + c;
      auto pair = numbers(at);
      if (r + 1 < rows) pair = hn::Or(pair, hn::ShiftLeft<16>(numbers(at + stride)));
      hn::StoreU(pair, words, reinterpret_cast<uint32_t*>(to + r / 2 * columns + c));
    }
}

template <class T>
void pack_pixels(const T* images, Dim batch, const TapPixels& pixels, Dim channels, bool across,
                 Dim begin, Dim end, Term<T>* packed) {
  const Dim image = pixels.total * channels;
  const Dim rows = across ? (batch + kTermSize<T> - 1) / kTermSize<T> * kTermSize<T> : batch;
  for (Dim pixel = begin; pixel < end; ++pixel)
    for (Dim c = 0; c < channels; c += kTapsPanel) {
      const Dim some = std::min(kTapsPanel, channels - c);
      const T* from = images + pixels.used[static_cast<size_t>(pixel)] * channels + c;
      Term<T>* to = packed + (c * pixels.count() + pixel * some) * rows / kTermSize<T>;
      if (across) {
        pack_across(from, batch, image, some, to);
        continue;
      }
      for (Dim b = 0; b < batch; ++b)
        std::memcpy(to + b * some / kTermSize<T>, from + b * image,
                    static_cast<size_t>(some) * sizeof(T));
    }
}

// A block of weights (deep, columns) with terms along the depth, from w (taps, depth, width) or,
// turned, (taps, width, depth).
template <class T>
HWY_INLINE void pack_weights(const TapsForm& f, const T* w, bool turned, Dim tap, Dim k, Dim deep,
                             Dim first, Dim columns, Term<T>* block) {
  if (turned)
    transpose_block(reinterpret_cast<const Term<T>*>(w + (tap * f.width + first) * f.depth + k),
                    f.depth / kTermSize<T>, columns, deep / kTermSize<T>, block);
  else
    pack_across(w + (tap * f.depth + k) * f.width + first, deep, f.width, columns, block);
}

template <class T>
void add_taps(const TapsForm& f, const Term<T>* in, const T* w, bool turned, Dim panel,
              Term<T>* block, float* out) {
  const Dim first = panel * kTapsPanel, columns = std::min(kTapsPanel, f.width - first);
  std::fill(out, out + f.out.count() * f.batch * columns, 0.0f);
  for (size_t begin = 0, end = 0; begin < f.runs.size(); begin = end) {
    const Dim tap = f.runs[begin].tap;
    while (end < f.runs.size() && f.runs[end].tap == tap) ++end;
    for (Dim k = 0; k < f.depth; k += kTapsPanel) {
      const Dim deep = std::min(kTapsPanel, f.depth - k), terms = deep / kTermSize<T>;
      pack_weights(f, w, turned, tap, k, deep, first, columns, block);
      const Term<T>* part = in + k * f.in.count() * f.batch / kTermSize<T>;
      for (size_t r = begin; r < end; ++r) {
        const TapRun& run = f.runs[r];
        const Term<T>* a = part + run.from * f.batch * terms;
        float* c = out + run.to * f.batch * columns;
        const Dim rows = run.count * f.batch;
        for (Dim row = 0; row < rows; row += kRows)
          band<false>(std::min<Dim>(kRows, rows - row), a + row * terms, terms, block, columns,
                      terms, c + row * columns, columns, columns, true);
      }
    }
  }
}

template <class T>
void unpack_panel(const TapsForm& f, const float* packed, Dim panel, const float* bias, bool relu,
                  T* images) {
  const auto zero = hn::Zero(Floats());
  const Dim first = panel * kTapsPanel, count = std::min(kTapsPanel, f.width - first);
  const float zeros[kTapsPanel] = {};
  for (Dim b = 0; b < f.batch; ++b) {
    Dim next = 0;  // packed pixel
    for (Dim pixel = 0; pixel < f.out.total; ++pixel) {
      const bool used = next < f.out.count() && f.out.used[static_cast<size_t>(next)] == pixel;
      const float* from = used ? packed + (next++ * f.batch + b) * count : zeros;
      T* to = images + (b * f.out.total + pixel) * f.width + first;
      for (Dim c = 0; c < count; c += kWidth) {
        auto v = load(from + c);
        if (bias) v = hn::Add(v, load(bias + first + c));
        if (relu) v = hn::IfThenElse(hn::Le(v, zero), zero, v);
        store_numbers(v, to + c);
      }
    }
  }
}

template <class T>
void sum_taps(const TapsForm& f, const Term<T>* x, const Term<T>* dy, Dim x_panel, Dim dy_panel,
              float* dw) {
  const Dim c0 = x_panel * kTapsPanel, rows = std::min(kTapsPanel, f.depth - c0);
  const Dim o0 = dy_panel * kTapsPanel, columns = std::min(kTapsPanel, f.width - o0);
  const Dim batch = (f.batch + kTermSize<T> - 1) / kTermSize<T>;  // terms
  const Term<T>* a = x + c0 * f.in.count() * batch;
  const Term<T>* b = dy + o0 * f.out.count() * batch;
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
        band<true>(some, a + run.from * batch * rows + r, rows, b + run.to * batch * columns,
                   columns, run.count * batch, sums, f.width, columns, i > begin);
      }
    }
    begin = end;
  }
}

template <class T>
TapsLoops<T> taps_loops_of(const char* key, bool native) {
  return {pack_pixels<T>, add_taps<T>, unpack_panel<T>, sum_taps<T>, key, native};
}
TapsLoops<float> taps_loops_f32() {
  return taps_loops_of<float>(HWY_NATIVE_FMA ? "taps:fused" : "taps:unfused", true);
}
TapsLoops<Bfloat16> taps_loops_bf16() {
  return taps_loops_of<Bfloat16>("taps:bfloat16", kHasPairs);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(taps_loops_f32);
HWY_EXPORT(taps_loops_bf16);

TapsLoops<float> taps_loops(float) { return HWY_DYNAMIC_DISPATCH(taps_loops_f32)(); }
TapsLoops<Bfloat16> taps_loops(Bfloat16) { return HWY_DYNAMIC_DISPATCH(taps_loops_bf16)(); }

}  // namespace pl::cpu
#endif  // HWY_ONCE
