// max_pool and its gradient, float32, vectorised over channels, compiled once for each SIMD target.
// Lines of the output, (b, oh), are what threads share out.
#include "op/max_pool.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/max_pool_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <cstring>
#include <type_traits>

#include "backend/cpu/parallel.h"
#include "hwy/highway.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

constexpr Dim kMostHolders = 255;  // windows that hold one pixel: no more than a window's elements

// The part of one window that is not padding.
struct Patch {
  Dim rows, cols;  // its size
  Dim first;       // window position of its first element
  Dim width;       // of the whole window
  Dim line;        // floats from one input row to the next
};

// Maxima of `channels` channels over a patch at x, and their window positions. The sizes of a 2x2
// patch are known to the compiler.
template <bool two_by_two, class Index>
void pool_patch(const float* x, const Patch& p, Dim channels, float* y, Index* index) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const Dim rows = two_by_two ? 2 : p.rows, cols = two_by_two ? 2 : p.cols;
  const Dim width = two_by_two ? 2 : p.width, first = two_by_two ? 0 : p.first;
  const Dim lanes = static_cast<Dim>(hn::Lanes(d));
  Dim c = 0;
  for (; c + lanes <= channels; c += lanes) {
    auto best = hn::LoadU(d, x + c);
    auto at = hn::Set(di, static_cast<int32_t>(first));
    for (Dim r = 0; r < rows; ++r)
      for (Dim k = r == 0 ? 1 : 0; k < cols; ++k) {
        const auto value = hn::LoadU(d, x + r * p.line + k * channels + c);
        // NaN wins, wherever it stands.
        const auto larger = hn::Or(hn::Gt(value, best), hn::Ne(value, value));
        best = hn::IfThenElse(larger, value, best);
        const auto position = hn::Set(di, static_cast<int32_t>(first + r * width + k));
        at = hn::IfThenElse(hn::RebindMask(di, larger), position, at);
      }
    hn::StoreU(best, d, y + c);
    if constexpr (std::is_same_v<Index, uint8_t>) {
      const hn::Rebind<uint8_t, decltype(d)> du8;
      hn::StoreU(hn::DemoteTo(du8, at), du8, index + c);
    } else {
      hn::StoreU(at, di, index + c);
    }
  }
  for (; c < channels; ++c) {
    float best = x[c];
    Dim at = first;
    for (Dim r = 0; r < rows; ++r)
      for (Dim k = 0; k < cols; ++k) {
        const float value = x[r * p.line + k * channels + c];
        if (!(value > best || value != value)) continue;
        best = value;
        at = first + r * width + k;
      }
    y[c] = best;
    index[c] = static_cast<Index>(at);
  }
}

template <class Index>
void pool_lines_of(const PoolForm& f, const float* x, float* y, Index* index, Dim begin, Dim end) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  const Dim pitch = w.in * f.channels;
  const bool two_by_two = h.kernel == 2 && w.kernel == 2;
  for (Dim line = begin; line < end; ++line) {
    const Dim top = line % h.out * h.stride - h.before;
    const Dim first_row = std::max<Dim>(0, -top), last_row = std::min(h.kernel, h.in - top);
    const float* rows = x + (line / h.out * h.in + top + first_row) * pitch;
    for (Dim ow = 0; ow < w.out; ++ow) {
      const Dim left = ow * w.stride - w.before;
      const Dim first_col = std::max<Dim>(0, -left), last_col = std::min(w.kernel, w.in - left);
      const Patch patch{last_row - first_row, last_col - first_col,
                        first_row * w.kernel + first_col, w.kernel, pitch};
      const float* from = rows + (left + first_col) * f.channels;
      const Dim to = (line * w.out + ow) * f.channels;
      if (two_by_two && patch.rows == 2 && patch.cols == 2)
        pool_patch<true, Index>(from, patch, f.channels, y + to, index + to);
      else
        pool_patch<false, Index>(from, patch, f.channels, y + to, index + to);
    }
  }
}

void pool_lines(const PoolForm& f, const float* x, float* y, void* index, Dim begin, Dim end) {
  if (max_pool_index(f) == Dtype::uint8)
    pool_lines_of(f, x, y, static_cast<uint8_t*>(index), begin, end);
  else
    pool_lines_of(f, x, y, static_cast<int32_t*>(index), begin, end);
}

// dx[c] = dy[c] where index[c] is `position`, else 0.
void pool_put(const uint8_t* index, const float* dy, Dim position, Dim channels, float* dx) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> du8;
  const auto positions = hn::Set(di, static_cast<int32_t>(position));
  const Dim lanes = static_cast<Dim>(hn::Lanes(d));
  Dim c = 0;
  for (; c + lanes <= channels; c += lanes) {
    const auto here = hn::Eq(hn::PromoteTo(di, hn::LoadU(du8, index + c)), positions);
    hn::StoreU(hn::IfThenElseZero(hn::RebindMask(d, here), hn::LoadU(d, dy + c)), d, dx + c);
  }
  for (; c < channels; ++c) dx[c] = index[c] == position ? dy[c] : 0.0f;
}

// Windows that share nothing: every element of dx is written once, by the line whose stride it is
// in.
void disjoint_gradient_lines(const PoolForm& f, const uint8_t* index, const float* dy, float* dx,
                             Dim begin, Dim end) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  const size_t pixel = static_cast<size_t>(f.channels) * sizeof(float);
  for (Dim line = begin; line < end; ++line) {
    const Dim b = line / h.out, oh = line % h.out;
    const Dim top = oh * h.stride - h.before;
    const Dim first = oh == 0 ? 0 : top, last = oh == h.out - 1 ? h.in : top + h.stride;
    for (Dim ih = first; ih < last; ++ih) {
      float* row = dx + (b * h.in + ih) * w.in * f.channels;
      if (ih < top || ih >= top + h.kernel) {
        std::memset(row, 0, pixel * static_cast<size_t>(w.in));
        continue;
      }
      for (Dim ow = 0; ow < w.out; ++ow) {
        const Dim left = ow * w.stride - w.before, from = (line * w.out + ow) * f.channels;
        const Dim stop = ow == w.out - 1 ? w.in : left + w.stride;
        for (Dim iw = ow == 0 ? 0 : left; iw < stop; ++iw) {
          if (iw < left || iw >= left + w.kernel)
            std::memset(row + iw * f.channels, 0, pixel);
          else
            pool_put(index + from, dy + from, (ih - top) * w.kernel + iw - left, f.channels,
                     row + iw * f.channels);
        }
      }
    }
  }
}

// The windows that hold one input position along an axis: output positions [first, last).
struct PoolAbove {
  Dim first, last;
};
PoolAbove pool_above(const WindowAxis& a, Dim i) {
  const Dim past = i + a.before - a.kernel;  // the last start that does not reach i
  return {past < 0 ? 0 : past / a.stride + 1, std::min(a.out, (i + a.before) / a.stride + 1)};
}

// One window that holds a pixel: its first channel in index and dy, and the pixel's place in it.
struct PoolHolder {
  Dim from, position;
};

// dx[c] = the sum, over the windows in order, of dy[c] where index[c] is the pixel's place.
void pool_gather(const PoolHolder* holders, Dim count, const uint8_t* index, const float* dy,
                 Dim channels, float* dx) {
  const hn::ScalableTag<float> d;
  const hn::RebindToSigned<decltype(d)> di;
  const hn::Rebind<uint8_t, decltype(d)> du8;
  const Dim lanes = static_cast<Dim>(hn::Lanes(d));
  Dim c = 0;
  for (; c + lanes <= channels; c += lanes) {
    auto sum = hn::Zero(d);
    for (Dim i = 0; i < count; ++i) {
      const Dim at = holders[i].from + c;
      const auto position = hn::Set(di, static_cast<int32_t>(holders[i].position));
      const auto here = hn::Eq(hn::PromoteTo(di, hn::LoadU(du8, index + at)), position);
      sum = hn::Add(sum, hn::IfThenElseZero(hn::RebindMask(d, here), hn::LoadU(d, dy + at)));
    }
    hn::StoreU(sum, d, dx + c);
  }
  for (; c < channels; ++c) {
    dx[c] = 0;
    for (Dim i = 0; i < count; ++i) {
      const Dim at = holders[i].from + c;
      dx[c] += index[at] == holders[i].position ? dy[at] : 0.0f;
    }
  }
}

// Any windows, lines [begin, end) of dx: each element is summed in the order of the output's
// positions.
void pool_gradient_lines(const PoolForm& f, const uint8_t* index, const float* dy, float* dx,
                         Dim begin, Dim end) {
  const WindowAxis &h = f.window.h, &w = f.window.w;
  PoolHolder holders[kMostHolders];
  for (Dim line = begin; line < end; ++line) {
    const Dim b = line / h.in, ih = line % h.in;
    const PoolAbove rows = pool_above(h, ih);
    for (Dim iw = 0; iw < w.in; ++iw) {
      const PoolAbove cols = pool_above(w, iw);
      Dim count = 0;
      for (Dim oh = rows.first; oh < rows.last; ++oh)
        for (Dim ow = cols.first; ow < cols.last; ++ow) {
          const Dim row = ih - (oh * h.stride - h.before), col = iw - (ow * w.stride - w.before);
          holders[count++] = {((b * h.out + oh) * w.out + ow) * f.channels, row * w.kernel + col};
        }
      pool_gather(holders, count, index, dy, f.channels, dx + (line * w.in + iw) * f.channels);
    }
  }
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(pool_lines);
HWY_EXPORT(disjoint_gradient_lines);
HWY_EXPORT(pool_gradient_lines);

std::unique_ptr<Kernel> max_pool_simd(const PrepareCall& call) {
  if (call.in[0].dtype != Dtype::float32) return nullptr;
  const PoolForm f = max_pool_form(call.in, call.attrs);
  const int64_t lines = f.batch * f.window.h.out, work = call.in[0].elements();
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const float* x = static_cast<const float*>(in[0]);
    float* y = static_cast<float*>(out[0]);
    parallel_ranges(threads, lines, work, [&](Dim begin, Dim end) {
      HWY_DYNAMIC_DISPATCH(pool_lines)(f, x, y, out[1], begin, end);
    });
  });
}

std::unique_ptr<Kernel> max_pool_gradient_simd(const PrepareCall& call) {
  if (call.in[1].dtype != Dtype::float32 || call.in[0].dtype != Dtype::uint8) return nullptr;
  const PoolForm f = max_pool_gradient_form(call.in, call.attrs);
  const int64_t lines = f.batch * f.window.h.out, work = call.out[0].elements();
  const int threads = call.backend.threads();
  return make_kernel([=](void* const* in, void* const* out, void*) {
    const uint8_t* index = static_cast<const uint8_t*>(in[0]);
    const float* dy = static_cast<const float*>(in[1]);
    float* dx = static_cast<float*>(out[0]);
    if (f.disjoint())
      parallel_ranges(threads, lines, work, [&](Dim begin, Dim end) {
        HWY_DYNAMIC_DISPATCH(disjoint_gradient_lines)(f, index, dy, dx, begin, end);
      });
    else
      parallel_ranges(threads, f.batch * f.window.h.in, work, [&](Dim begin, Dim end) {
        HWY_DYNAMIC_DISPATCH(pool_gradient_lines)(f, index, dy, dx, begin, end);
      });
  });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
