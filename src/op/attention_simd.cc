// attention and its gradient, float32 or bfloat16 widened as it is packed, compiled once for each
// SIMD target. A thread works on one head of one sample at a time: keys and values are packed once,
// then queries come in tiles. All products run through one register-blocked loop, which adds in
// order of the inner index, so that bits depend neither on threads nor on the vector width; only on
// whether the target fuses multiplication and addition (the kernel's key says). Keys that no query
// of a block of six sees are skipped; those that some see have weight 0 for the others, where an
// infinite value makes NaN.
#include "op/attention.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/attention_simd.cc"
#include "hwy/foreach_target.h"
// After foreach_target.h, which includes this file again.
#include <algorithm>
#include <cmath>
#include <limits>

#include "backend/cpu/parallel.h"
#include "hwy/cache_control.h"
#include "hwy/highway.h"
#include "op/attention_head.h"
#include "op/bfloat_pair.h"
#include "op/kernel.h"

HWY_BEFORE_NAMESPACE();
namespace pl::cpu::HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;
#include "op/simd_math-inl.h"
#include "op/simd_product-inl.h"

// Rows of a head lie far apart, where the hardware does not expect the next one.
constexpr Dim kAhead = 8;
template <class T>
HWY_INLINE void prefetch_row(const T* row, Dim size) {
  constexpr Dim kLine = 64 / sizeof(T);
  for (Dim i = 0; i < size; i += kLine) hwy::Prefetch(row + i);
}

// Rows of d, `stride` apart, to rows of `padded`, times `factor`; zeros behind.
template <class T>
HWY_INLINE void pack_rows(const T* from, Dim rows, Dim stride, Dim size, Dim padded, float factor,
                          float* to) {
  for (Dim r = 0; r < rows; ++r, from += stride, to += padded) {
    if (r + kAhead < rows) prefetch_row(from + kAhead * stride, size);
    along_row(size, [&](Dim i, Dim n) HWY_ATTR {
      store(hn::Mul(load(from + i, n), hn::Set(Floats(), factor)), to + i, n);
    });
    for (Dim i = size; i < padded; ++i) to[i] = 0;
  }
}

// The transpose of keys (keys, d) in panels: [panel][i][key within the panel]; zeros behind.
template <class T>
HWY_INLINE void pack_panels(const T* from, Dim keys, Dim stride, Dim size, float* to) {
  for (Dim first = 0; first < keys; first += kPanel, to += size * kPanel) {
    const Dim count = std::min(kPanel, keys - first);
    for (Dim j = 0; j < count; ++j) {
      const T* row = from + (first + j) * stride;
      if (first + j + kAhead < keys) prefetch_row(row + kAhead * stride, size);
      for (Dim i = 0; i < size; ++i) to[i * kPanel + j] = static_cast<float>(row[i]);
    }
    for (Dim i = 0; count < kPanel && i < size; ++i)
      std::fill(to + i * kPanel + count, to + (i + 1) * kPanel, 0.0f);
  }
}

// A tile of queries [first, first + rows).
struct Tile {
  Dim first, rows;
};

// Keys that query `t` sees.
HWY_INLINE Dim seen_by(const AttentionHead& h, Dim t) {
  return h.causal ? std::min(t + 1, h.keys) : h.keys;
}

// to (rows, keys) = left (rows, d) x panels, as far as queries see.
void scores(const AttentionHead& h, Tile tile, const float* left, const float* panels, float* to) {
  const Dim last = seen_by(h, tile.first + tile.rows - 1);
  for (Dim key = 0; key < last; key += kPanel, panels += h.size * kPanel)
    for (Dim r = 0; r < tile.rows; r += kRows) {
      const Dim rows = std::min<Dim>(kRows, tile.rows - r);
      const Dim seen = seen_by(h, tile.first + r + rows - 1) - key;
      if (seen <= 0) continue;
      const Dim columns = std::min(kPanel, (seen + kLanes - 1) / kLanes * kLanes);
      band<false>(rows, left + r * h.padded, h.padded, panels, kPanel, h.size,
                  to + r * h.line + key, h.line, columns, false);
    }
}

// to (rows, padded) = weights (rows, keys) x values (keys, padded), as far as queries see.
void mix(const AttentionHead& h, Tile tile, const float* weights, const float* values, float* to) {
  for (Dim r = 0; r < tile.rows; r += kRows) {
    const Dim rows = std::min<Dim>(kRows, tile.rows - r);
    band<false>(rows, weights + r * h.line, h.line, values, h.padded,
                seen_by(h, tile.first + r + rows - 1), to + r * h.padded, h.padded, h.padded,
                false);
  }
}

// to (keys, padded) += weights^T (keys, rows) x right (rows, padded), over queries that see.
void spread(const AttentionHead& h, Tile tile, const float* weights, const float* right,
            float* to) {
  const Dim last = seen_by(h, tile.first + tile.rows - 1);
  for (Dim key = 0; key < last; key += kRows) {
    const Dim rows = std::min<Dim>(kRows, last - key);
    const Dim skip = h.causal ? std::max<Dim>(0, key - tile.first) : 0;
    band<true>(rows, weights + skip * h.line + key, h.line, right + skip * h.padded, h.padded,
               tile.rows - skip, to + key * h.padded, h.padded, h.padded, true);
  }
}

// Bands of rows read a few weights beyond what their first row sees: these are zeros.
HWY_INLINE void clear_behind(float* row, Dim count) {
  const Dim end = (count + kLanes - 1) / kLanes * kLanes;
  std::fill(row + end, row + end + kLanes, 0.0f);
}

HWY_INLINE float largest_of(const float* x, Dim count) {
  const Floats d;
  float largest = -std::numeric_limits<float>::infinity();
  Dim i = 0;
  if (count >= kWidth) {
    auto v = hn::LoadU(d, x);
    for (i = kWidth; i + kWidth <= count; i += kWidth) v = hn::Max(v, hn::LoadU(d, x + i));
    largest = hn::GetLane(hn::MaxOfLanes(d, v));
  }
  for (; i < count; ++i) largest = x[i] > largest ? x[i] : largest;
  return largest;
}

// row[0, count) = exp(row - shift), then zeros; returns the sum, in 16 lanes.
HWY_INLINE double exponentials(float* row, Dim count, float shift) {
  constexpr int kParts = static_cast<int>(kLanes / kWidth);
  const Floats d;
  const auto off = hn::Set(d, shift);
  FloatVector sums[kParts];
  for (int p = 0; p < kParts; ++p) sums[p] = hn::Zero(d);
  Dim i = 0;
  for (; i + kLanes <= count; i += kLanes)
    for (int p = 0; p < kParts; ++p) {
      const auto e = exp_of(hn::Sub(hn::LoadU(d, row + i + p * kWidth), off));
      hn::StoreU(e, d, row + i + p * kWidth);
      sums[p] = hn::Add(sums[p], e);
    }
  for (int p = 0; i < count && p < kParts; ++p) {
    const Dim left = std::max<Dim>(0, std::min(kWidth, count - i - p * kWidth));
    const auto inside = hn::FirstN(d, static_cast<size_t>(left));
    const auto e =
        hn::IfThenElseZero(inside, exp_of(hn::Sub(hn::LoadU(d, row + i + p * kWidth), off)));
    hn::StoreU(e, d, row + i + p * kWidth);
    sums[p] = hn::Add(sums[p], e);
  }
  clear_behind(row, count);
  float lanes[kLanes];
  for (int p = 0; p < kParts; ++p) hn::StoreU(sums[p], d, lanes + p * kWidth);
  double sum = 0;
  for (float lane : lanes) sum += static_cast<double>(lane);
  return sum;
}

// For the gradient: p = exp(scores - lse) over the scores, p * (slopes - flat) over the slopes.
HWY_INLINE void slopes_of(float* p, float* slopes, Dim count, float lse, float flat) {
  const Floats d;
  for (Dim i = 0; i < count; i += kWidth) {
    auto e = exp_of(hn::Sub(hn::LoadU(d, p + i), hn::Set(d, lse)));
    auto s = hn::Mul(e, hn::Sub(hn::LoadU(d, slopes + i), hn::Set(d, flat)));
    if (count - i < kWidth) {
      const auto inside = hn::FirstN(d, static_cast<size_t>(count - i));
      e = hn::IfThenElseZero(inside, e);
      s = hn::IfThenElseZero(inside, s);
    }
    hn::StoreU(e, d, p + i);
    hn::StoreU(s, d, slopes + i);
  }
  const Dim end = (count + kWidth - 1) / kWidth * kWidth;
  const Dim clear = (count + kLanes - 1) / kLanes * kLanes + kLanes - end;
  std::fill(p + end, p + end + clear, 0.0f);
  std::fill(slopes + end, slopes + end + clear, 0.0f);
}

// to[0, size) = from * factor.
template <class T>
HWY_INLINE void scale_row(const float* from, float factor, Dim size, T* to) {
  along_row(size, [&](Dim i, Dim n) HWY_ATTR {
    store(hn::Mul(load(from + i, n), hn::Set(Floats(), factor)), to + i, n);
  });
}

// space: AttentionHead::forward_space floats.
template <class T>
HWY_INLINE void attend(const AttentionData<T>& h, float* space) {
  float* panels = space;                       // K^T
  float* values = panels + h.all * h.size;     // (all, padded)
  float* q = values + h.all * h.padded;        // (tile, padded)
  float* mixed = q + h.tile * h.padded;        // (tile, padded)
  float* weights = mixed + h.tile * h.padded;  // (tile, line)
  pack_panels(h.k, h.keys, h.kv_stride, h.size, panels);
  pack_rows(h.v, h.keys, h.kv_stride, h.size, h.padded, 1.0f, values);
  for (Dim first = 0; first < h.queries; first += h.tile) {
    const Tile tile{first, std::min(h.tile, h.queries - first)};
    pack_rows(h.q + first * h.q_stride, tile.rows, h.q_stride, h.size, h.padded, h.scale, q);
    scores(h, tile, q, panels, weights);
    float sums[kMostTile];
    for (Dim r = 0; r < tile.rows; ++r) {
      float* row = weights + r * h.line;
      const Dim count = seen_by(h, first + r);
      const float largest = largest_of(row, count);
      const double sum = exponentials(row, count, largest);
      h.lse[first + r] = static_cast<float>(static_cast<double>(largest) + std::log(sum));
      sums[r] = static_cast<float>(1 / sum);
    }
    mix(h, tile, weights, values, mixed);
    for (Dim r = 0; r < tile.rows; ++r)
      scale_row(mixed + r * h.padded, sums[r], h.size, h.out + (first + r) * h.out_stride);
  }
}

// The inner product in 16 lanes; b is padded with zeros to a multiple of 16.
template <class T>
HWY_INLINE float dot(const T* a, const float* b, Dim count) {
  constexpr int kParts = static_cast<int>(kLanes / kWidth);
  const Floats d;
  FloatVector sums[kParts];
  for (int p = 0; p < kParts; ++p) sums[p] = hn::Zero(d);
  for (Dim i = 0; i < count; i += kLanes)
    for (int p = 0; p < kParts; ++p) {
      const Dim at = i + p * kWidth, left = count - at;
      const auto v = left >= kWidth ? load(a + at) : load_part(a + at, left);
      sums[p] = hn::Add(sums[p], hn::Mul(v, hn::LoadU(d, b + at)));
    }
  float lanes[kLanes], sum = 0;
  for (int p = 0; p < kParts; ++p) hn::StoreU(sums[p], d, lanes + p * kWidth);
  for (float lane : lanes) sum += lane;
  return sum;
}

// space: AttentionHead::backward_space floats. A tile's queries are overwritten once they are used
// up, keys and values at the end: dq, dk and dv may lie on q, k and v.
template <class T>
HWY_INLINE void attend_backward(const AttentionData<T>& h, float* space) {
  float* key_panels = space;                          // K^T
  float* value_panels = key_panels + h.all * h.size;  // V^T
  float* keys = value_panels + h.all * h.size;        // (all, padded)
  float* dk = keys + h.all * h.padded;                // (all, padded)
  float* dv = dk + h.all * h.padded;                  // (all, padded)
  float* q = dv + h.all * h.padded;                   // (tile, padded)
  float* dout = q + h.tile * h.padded;                // (tile, padded)
  float* dq = dout + h.tile * h.padded;               // (tile, padded)
  float* weights = dq + h.tile * h.padded;            // (tile, line)
  float* slopes = weights + h.tile * h.line;          // (tile, line)
  pack_panels(h.k, h.keys, h.kv_stride, h.size, key_panels);
  pack_panels(h.v, h.keys, h.kv_stride, h.size, value_panels);
  pack_rows(h.k, h.keys, h.kv_stride, h.size, h.padded, 1.0f, keys);
  std::fill(dk, dk + 2 * h.all * h.padded, 0.0f);
  for (Dim first = 0; first < h.queries; first += h.tile) {
    const Tile tile{first, std::min(h.tile, h.queries - first)};
    pack_rows(h.q + first * h.q_stride, tile.rows, h.q_stride, h.size, h.padded, h.scale, q);
    pack_rows(h.dout + first * h.out_stride, tile.rows, h.out_stride, h.size, h.padded, 1.0f, dout);
    scores(h, tile, q, key_panels, weights);
    scores(h, tile, dout, value_panels, slopes);
    for (Dim r = 0; r < tile.rows; ++r) {
      const T* y = h.out + (first + r) * h.out_stride;
      if (r + kAhead < tile.rows) prefetch_row(y + kAhead * h.out_stride, h.size);
      const float dlse = h.dlse ? h.dlse[first + r] : 0.0f;
      const float flat = dot(y, dout + r * h.padded, h.size) - dlse;
      slopes_of(weights + r * h.line, slopes + r * h.line, seen_by(h, first + r), h.lse[first + r],
                flat);
    }
    spread(h, tile, weights, dout, dv);
    spread(h, tile, slopes, q, dk);
    mix(h, tile, slopes, keys, dq);
    for (Dim r = 0; r < tile.rows; ++r)
      scale_row(dq + r * h.padded, h.scale, h.size, h.dq + (first + r) * h.q_stride);
  }
  for (Dim s = 0; s < h.keys; ++s) {
    scale_row(dk + s * h.padded, 1.0f, h.size, h.dk + s * h.kv_stride);
    scale_row(dv + s * h.padded, 1.0f, h.size, h.dv + s * h.kv_stride);
  }
}

void attend_f32(const AttentionData<float>& h, float* space) { attend(h, space); }
void attend_bf16(const AttentionData<Bfloat16>& h, float* space) { attend(h, space); }
void attend_backward_f32(const AttentionData<float>& h, float* space) { attend_backward(h, space); }
void attend_backward_bf16(const AttentionData<Bfloat16>& h, float* space) {
  attend_backward(h, space);
}

bool fuses() { return HWY_NATIVE_FMA; }

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(attend_f32);
HWY_EXPORT(attend_bf16);
HWY_EXPORT(attend_backward_f32);
HWY_EXPORT(attend_backward_bf16);
HWY_EXPORT(fuses);

namespace {

const char* key_of() { return HWY_DYNAMIC_DISPATCH(fuses)() ? "fused" : "unfused"; }

// Operands at the head `task` = sample * heads + head; `in` and `grad` hold q, k, v or qkv.
template <class T>
void place(const AttentionForm& f, Dim task, void* const* in, void* const* grad,
           AttentionData<T>* h) {
  const Dim b = task / f.heads, at = task % f.heads * f.size, width = f.heads * f.size;
  auto head = [&](void* const* operands, int which) {
    T* data = static_cast<T*>(operands[f.packed ? 0 : which]);
    const Dim rows = which == 0 ? f.queries : f.keys;
    const Dim stride = which == 0 ? f.q_stride : f.kv_stride;
    return data + b * rows * stride + at + (f.packed ? which * width : 0);
  };
  h->q = head(in, 0);
  h->k = head(in, 1);
  h->v = head(in, 2);
  if (!grad) return;
  h->dq = head(grad, 0);
  h->dk = head(grad, 1);
  h->dv = head(grad, 2);
}

void run_head(const AttentionData<float>& h, float* space) {
  HWY_DYNAMIC_DISPATCH(attend_f32)(h, space);
}
void run_head(const AttentionData<Bfloat16>& h, float* space) {
  HWY_DYNAMIC_DISPATCH(attend_bf16)(h, space);
}
void run_head_backward(const AttentionData<float>& h, float* space) {
  HWY_DYNAMIC_DISPATCH(attend_backward_f32)(h, space);
}
void run_head_backward(const AttentionData<Bfloat16>& h, float* space) {
  HWY_DYNAMIC_DISPATCH(attend_backward_bf16)(h, space);
}

template <class T>
std::unique_ptr<Kernel> forward(const PrepareCall& call) {
  const AttentionForm f = attention_form(call.in, call.attrs);
  const AttentionHead plan(f);
  const int threads = call.backend.threads();
  const Dim tasks = f.queries > 0 ? f.batch * f.heads : 0, space = plan.forward_space();
  auto kernel = make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        parallel_ranges(threads, tasks, tasks * f.queries * f.keys, [&](Dim begin, Dim end) {
          float* own = static_cast<float*>(workspace) + omp_get_thread_num() * space;
          for (Dim task = begin; task < end; ++task) {
            AttentionData<T> h(plan);
            place(f, task, in, nullptr, &h);
            const Dim at = task / f.heads * f.queries * h.out_stride + task % f.heads * f.size;
            h.out = static_cast<T*>(out[0]) + at;
            h.lse = static_cast<float*>(out[1]) + task * f.queries;
            run_head(h, own);
          }
        });
      },
      tasks > 0 ? threads * space * static_cast<Bytes>(sizeof(float)) : 0);
  kernel->key = key_of();
  return kernel;
}

template <class T>
std::unique_ptr<Kernel> backward(const PrepareCall& call) {
  const AttentionForm f = attention_form(call.in, call.attrs);
  const AttentionHead plan(f);
  const int threads = call.backend.threads();
  const Dim tasks = f.batch * f.heads, space = plan.backward_space();
  const size_t first = f.packed ? 1 : 3;
  const bool with_dlse = call.in.size() > first + 3;
  auto kernel = make_kernel(
      [=](void* const* in, void* const* out, void* workspace) {
        parallel_ranges(threads, tasks, tasks * f.queries * f.keys, [&](Dim begin, Dim end) {
          float* own = static_cast<float*>(workspace) + omp_get_thread_num() * space;
          for (Dim task = begin; task < end; ++task) {
            AttentionData<T> h(plan);
            place(f, task, in, out, &h);
            const Dim at = task / f.heads * f.queries * h.out_stride + task % f.heads * f.size;
            h.out = static_cast<T*>(in[first]) + at;
            h.lse = static_cast<float*>(in[first + 1]) + task * f.queries;
            h.dout = static_cast<T*>(in[first + 2]) + at;
            if (with_dlse) h.dlse = static_cast<float*>(in[first + 3]) + task * f.queries;
            run_head_backward(h, own);
          }
        });
      },
      tasks > 0 ? threads * space * static_cast<Bytes>(sizeof(float)) : 0);
  kernel->key = key_of();
  return kernel;
}

}  // namespace

std::unique_ptr<Kernel> attention_simd(const PrepareCall& call) {
  return dispatch_simd(call.in[0].dtype, [&]<class T>() { return forward<T>(call); });
}

std::unique_ptr<Kernel> attention_gradient_simd(const PrepareCall& call) {
  return dispatch_simd(call.in[0].dtype, [&]<class T>() { return backward<T>(call); });
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
