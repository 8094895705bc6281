// Loops of conv2d by Winograd's algorithm (conv2d_winograd.h), float32 and bfloat16, compiled once
// for each SIMD target. With d a 4x4 patch of the input, g the kernel and y a 2x2 tile of the
// output:
//
//     y  = A' ((G g G') * (B' d B)) A           * is element by element, summed over channels:
//     dg = G' ((B' d B) * (A dy A')) G          16 matrix products, one for each plane
//
// All of it is computed in float32. bfloat16 is rounded three times: as the planes of d (or dy) and
// of g are stored, which are the terms of the products, and at the end. Sums run in order of the
// inner index: bits depend neither on threads nor on the vector width, only on whether the target
// fuses multiplication and addition.
#include "op/conv2d_winograd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/conv2d_winograd_simd.cc"
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

HWY_INLINE FloatVector half(FloatVector v) { return hn::Mul(hn::Set(Floats(), 0.5f), v); }

// The five small matrices, each applied to a row of vectors `step` apart. Input: B' d.
struct FromInput {
  static constexpr int in = 4, out = 4;
  static HWY_INLINE void apply(const FloatVector* d, int step, FloatVector* v) {
    const auto d0 = d[0], d1 = d[step], d2 = d[2 * step], d3 = d[3 * step];
    v[0] = hn::Sub(d0, d2);
    v[1] = hn::Add(d1, d2);
    v[2] = hn::Sub(d2, d1);
    v[3] = hn::Sub(d1, d3);
  }
};
// G g
struct FromKernel {
  static constexpr int in = 3, out = 4;
  static HWY_INLINE void apply(const FloatVector* g, int step, FloatVector* u) {
    const auto g0 = g[0], g1 = g[step], g2 = g[2 * step];
    const auto even = half(hn::Add(g0, g2)), odd = half(g1);
    u[0] = g0;
    u[1] = hn::Add(even, odd);
    u[2] = hn::Sub(even, odd);
    u[3] = g2;
  }
};
// A' m
struct ToOutput {
  static constexpr int in = 4, out = 2;
  static HWY_INLINE void apply(const FloatVector* m, int step, FloatVector* y) {
    const auto m1 = m[step], m2 = m[2 * step];
    y[0] = hn::Add(hn::Add(m[0], m1), m2);
    y[1] = hn::Sub(hn::Sub(m1, m2), m[3 * step]);
  }
};
// A y
struct FromOutput {
  static constexpr int in = 2, out = 4;
  static HWY_INLINE void apply(const FloatVector* y, int step, FloatVector* z) {
    const auto y0 = y[0], y1 = y[step];
    z[0] = y0;
    z[1] = hn::Add(y0, y1);
    z[2] = hn::Sub(y0, y1);
    z[3] = hn::Neg(y1);
  }
};
// G' s
struct ToKernel {
  static constexpr int in = 4, out = 3;
  static HWY_INLINE void apply(const FloatVector* s, int step, FloatVector* g) {
    const auto s1 = s[step], s2 = s[2 * step];
    const auto even = half(hn::Add(s1, s2));
    g[0] = hn::Add(s[0], even);
    g[1] = half(hn::Sub(s1, s2));
    g[2] = hn::Add(even, s[3 * step]);
  }
};

// T x T' for a square of vectors x (in, in); the result is (out, out).
template <class T>
HWY_INLINE void both_sides(const FloatVector* x, FloatVector* result) {
  FloatVector once[T::in * T::out];  // (in columns of x, out)
  for (int column = 0; column < T::in; ++column)
    T::apply(x + column, T::in, once + column * T::out);
  for (int row = 0; row < T::out; ++row) T::apply(once + row, T::out, result + row * T::out);
}

// Where rows of planes come from: `seek` a row, then `load` a vector of its channels as a square.
// Tiles of images (batch, height, width, channels): row i is tile first + i, beginning at pixel
// (2 r - before_h, 2 c - before_w) of its image; zeros outside, and from row `count` on.
template <class T, int size>
struct TileRows {
  const T* images;
  Dim rows, columns;  // of tiles in an image
  Dim height, width, channels, before_h, before_w;
  Dim first, count;
  const T* image = nullptr;
  Dim top = 0, left = 0;
  bool real = false, inside = false;

  HWY_INLINE void seek(Dim i) {
    const Dim tile = first + i;
    real = i < count;
    image = images + tile / (rows * columns) * height * width * channels;
    top = tile / columns % rows * kTile - before_h;
    left = tile % columns * kTile - before_w;
    inside = top >= 0 && left >= 0 && top + size <= height && left + size <= width;
  }
  HWY_INLINE void load_square(Dim channel, FloatVector* to) const {
    if (inside && real) {
      const T* from = image + (top * width + left) * channels + channel;
      for (int r = 0; r < size; ++r)
        for (int c = 0; c < size; ++c) to[r * size + c] = load(from + (r * width + c) * channels);
      return;
    }
    for (int r = 0; r < size; ++r)
      for (int c = 0; c < size; ++c) {
        const Dim y = top + r, x = left + c;
        const bool here = real && y >= 0 && y < height && x >= 0 && x < width;
        to[r * size + c] =
            here ? load(image + (y * width + x) * channels + channel) : hn::Zero(Floats());
      }
  }
};

template <class T>
TileRows<T, kPatch> input_rows(const WinogradForm& f, const T* x, Dim first, Dim count) {
  return {x, f.rows(), f.columns(), f.h_in, f.w_in, f.depth, f.before_h, f.before_w, first, count};
}
template <class T>
TileRows<T, kTile> output_rows(const WinogradForm& f, const T* dy, Dim first, Dim count) {
  return {dy, f.rows(), f.columns(), f.h_out, f.w_out, f.width, 0, 0, first, count};
}

// Kernels (3, 3, channels, filters); a row is a channel, a square the 3x3 of a vector of filters.
template <class T>
struct KernelRows {
  const T* w;
  Dim channels, filters;
  Dim row = 0;
  HWY_INLINE void seek(Dim i) { row = i; }
  HWY_INLINE void load_square(Dim filter, FloatVector* to) const {
    for (int tap = 0; tap < 9; ++tap) to[tap] = load(w + (tap * channels + row) * filters + filter);
  }
};

// Planes (rows, columns) from `source`, with terms along the columns.
template <class M, class E, class Source>
HWY_INLINE void planes_along(Source source, Dim rows, Dim columns, const WinogradPlanes<E>& to) {
  for (Dim i = 0; i < rows; ++i) {
    source.seek(i);
    for (Dim c = 0; c < columns; c += kWidth) {
      FloatVector x[M::in * M::in], y[M::out * M::out];
      source.load_square(c, x);
      both_sides<M>(x, y);
      for (int p = 0; p < M::out * M::out; ++p) store_within(y[p], to.plane(p), i * columns + c);
    }
  }
}

// The same for rows [begin, end), with terms across them.
template <class M, class Source>
HWY_INLINE void planes_across(Source source, Dim begin, Dim end, Dim columns, Dim pitch,
                              const WinogradPlanes<float>& to) {
  for (Dim i = begin; i < end; ++i) {
    source.seek(i);
    for (Dim c = 0; c < columns; c += kWidth) {
      FloatVector x[M::in * M::in], y[M::out * M::out];
      source.load_square(c, x);
      both_sides<M>(x, y);
      for (int p = 0; p < M::out * M::out; ++p) store_terms(y[p], to.plane(p) + i * pitch + c);
    }
  }
}
template <class M, class Source>
HWY_INLINE void planes_across(Source source, Dim begin, Dim end, Dim columns, Dim pitch,
                              const WinogradPlanes<BfloatPair>& to) {
  Source next = source;
  for (Dim i = begin; i < end; i += 2) {
    source.seek(i);
    next.seek(i + 1);
    for (Dim c = 0; c < columns; c += kWidth) {
      FloatVector x[M::in * M::in], y[M::out * M::out], z[M::out * M::out];
      source.load_square(c, x);
      both_sides<M>(x, y);
      next.load_square(c, x);
      both_sides<M>(x, z);
      for (int p = 0; p < M::out * M::out; ++p)
        store_terms(y[p], z[p], to.plane(p) + i / 2 * pitch + c);
    }
  }
}

template <class T>
void kernel_planes(const WinogradForm& f, const T* w, Dim begin, Dim end,
                   const WinogradPlanes<Term<T>>& to) {
  planes_across<FromKernel>(KernelRows<T>{w, f.depth, f.width}, begin, end, f.width, f.width, to);
}

// With the kernel turned round and its axes exchanged: w is (3, 3, width, depth). In blocks of 16
// by 16.
template <class T>
void turned_planes(const WinogradForm& f, const T* w, Dim begin, Dim end,
                   const WinogradPlanes<Term<T>>& to) {
  float plain[kLanes * kLanes], part[9 * kLanes * kLanes];  // part: [tap][depth][width]
  for (Dim o = begin; o < end; o += kLanes)
    for (Dim c = 0; c < f.width; c += kLanes) {
      for (int tap = 0; tap < 9; ++tap) {
        for (Dim j = 0; j < kLanes; ++j)
          for (Dim i = 0; i < kLanes; i += kWidth)
            store(load(w + (tap * f.width + c + j) * f.depth + o + i), plain + j * kLanes + i);
        transpose_block(plain, kLanes, kLanes, kLanes, part + (8 - tap) * kLanes * kLanes);
      }
      const WinogradPlanes<Term<T>> here{to.data + o / kTermSize<T> * f.width + c, to.stride};
      planes_across<FromKernel>(KernelRows<float>{part, kLanes, kLanes}, 0, kLanes, kLanes, f.width,
                                here);
    }
}

template <class T>
void weight_planes(const WinogradForm& f, bool turned, const T* w, Dim begin, Dim end,
                   const WinogradPlanes<Term<T>>& to) {
  turned ? turned_planes(f, w, begin, end, to) : kernel_planes(f, w, begin, end, to);
}

// Tiles of the output from planes (count, width), with bias (or null) and relu.
template <class T>
HWY_INLINE void output_tiles(const WinogradForm& f, const WinogradBlock<T>& b, Dim first,
                             Dim count) {
  const Floats d;
  const auto zero = hn::Zero(d);
  for (Dim i = 0; i < count; ++i) {
    const Dim tile = first + i, image = tile / (f.rows() * f.columns());
    const Dim top = tile / f.columns() % f.rows() * kTile, left = tile % f.columns() * kTile;
    const Dim rows = std::min(kTile, f.h_out - top), columns = std::min(kTile, f.w_out - left);
    T* to = b.y + ((image * f.h_out + top) * f.w_out + left) * f.width;
    for (Dim o = 0; o < f.width; o += kWidth) {
      FloatVector m[kPlanes], y[kTile * kTile];
      for (int p = 0; p < kPlanes; ++p) m[p] = load(b.after.plane(p) + i * f.width + o);
      both_sides<ToOutput>(m, y);
      const auto add = b.bias ? load(b.bias + o) : zero;
      for (Dim r = 0; r < rows; ++r)
        for (Dim c = 0; c < columns; ++c) {
          auto v = hn::Add(y[r * kTile + c], add);
          if (b.relu) v = hn::IfThenElse(hn::Le(v, zero), zero, v);
          store_numbers(v, to + (r * f.w_out + c) * f.width + o);
        }
    }
  }
}

// c (rows, columns) = a (rows, depth) x b (depth, columns), in panels of 64 columns and 64 of the
// inner index, which the first-level cache holds.
constexpr Dim kPanel = 64;
template <class E>
void multiply_plane(const E* a, const E* b, Dim rows, Dim depth, Dim columns, float* c) {
  for (Dim j = 0; j < columns; j += kPanel)
    for (Dim k = 0; k < depth; k += kPanel)
      for (Dim r = 0; r < rows; r += kRows)
        band<false>(std::min<Dim>(kRows, rows - r), a + r * depth + k, depth, b + k * columns + j,
                    columns, std::min(kPanel, depth - k), c + r * columns + j, columns,
                    std::min(kPanel, columns - j), k > 0);
}

// c (rows, columns) (+)= a' b with a (depth, rows), b (depth, columns).
template <class E>
void multiply_across(const E* a, const E* b, Dim rows, Dim depth, Dim columns, bool add, float* c) {
  for (Dim j = 0; j < columns; j += kPanel)
    for (Dim r = 0; r < rows; r += kRows)
      band<true>(std::min<Dim>(kRows, rows - r), a + r, rows, b + j, columns, depth,
                 c + r * columns + j, columns, std::min(kPanel, columns - j), add);
}

template <class T>
void run_block(const WinogradForm& f, const WinogradBlock<T>& b, Dim first, Dim count) {
  planes_along<FromInput>(input_rows(f, b.x, first, count), count, f.depth, b.before);
  for (Dim p = 0; p < kPlanes; ++p)
    multiply_plane(b.before.plane(p), b.weights.plane(p), count, f.depth / kTermSize<T>, f.width,
                   b.after.plane(p));
  output_tiles(f, b, first, count);
}

template <class T>
void chunk_planes(const WinogradForm& f, const WinogradChunk<T>& c, Dim first, Dim begin, Dim end) {
  planes_across<FromInput>(input_rows(f, c.x, first, end), begin, end, f.depth, f.depth,
                           c.x_planes);
  planes_across<FromOutput>(output_rows(f, c.dy, first, end), begin, end, f.width, f.width,
                            c.dy_planes);
}

template <class T>
void sum_plane(const WinogradForm& f, const WinogradChunk<T>& c, Dim p, Dim count, bool add) {
  const Dim terms = (count + kTermSize<T> - 1) / kTermSize<T>;
  multiply_across(c.x_planes.plane(p), c.dy_planes.plane(p), f.depth, terms, f.width, add,
                  c.sums.plane(p));
}

template <class T>
void kernel_of_planes(const WinogradForm& f, const WinogradPlanes<float>& sums, Dim begin, Dim end,
                      T* dw) {
  for (Dim c = begin; c < end; ++c)
    for (Dim o = 0; o < f.width; o += kWidth) {
      FloatVector s[kPlanes], g[9];
      for (int p = 0; p < kPlanes; ++p) s[p] = load(sums.plane(p) + c * f.width + o);
      both_sides<ToKernel>(s, g);
      for (int tap = 0; tap < 9; ++tap)
        store_numbers(g[tap], dw + (tap * f.depth + c) * f.width + o);
    }
}

template <class T>
void sum_pixels(const WinogradForm& f, const T* dy, Dim begin, Dim end, float* sums) {
  const Dim pixels = f.batch * f.h_out * f.w_out;
  for (Dim o = begin; o < end; o += kWidth) {
    auto sum = hn::Zero(Floats());
    for (Dim i = 0; i < pixels; ++i) sum = hn::Add(sum, load(dy + i * f.width + o));
    store(sum, sums + o);
  }
}

template <class T>
WinogradLoops<T> winograd_loops_of(const char* key, bool native) {
  return {weight_planes<T>,
          run_block<T>,
          chunk_planes<T>,
          sum_plane<T>,
          kernel_of_planes<float>,
          kernel_of_planes<T>,
          sum_pixels<T>,
          key,
          native};
}
WinogradLoops<float> winograd_loops_f32() {
  return winograd_loops_of<float>(HWY_NATIVE_FMA ? "winograd-2x2:fused" : "winograd-2x2:unfused",
                                  true);
}
WinogradLoops<Bfloat16> winograd_loops_bf16() {
  return winograd_loops_of<Bfloat16>("winograd-2x2:bfloat16", kHasPairs);
}

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(winograd_loops_f32);
HWY_EXPORT(winograd_loops_bf16);

WinogradLoops<float> winograd_loops(float) { return HWY_DYNAMIC_DISPATCH(winograd_loops_f32)(); }
WinogradLoops<Bfloat16> winograd_loops(Bfloat16) {
  return HWY_DYNAMIC_DISPATCH(winograd_loops_bf16)();
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
