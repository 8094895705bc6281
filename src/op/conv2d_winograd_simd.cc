// Kernels of conv2d by Winograd's algorithm (conv2d_winograd.h), float32, compiled once for each
// SIMD target. With d a 4x4 patch of the input, g the kernel and y a 2x2 tile of the output:
//
//     y  = A' ((G g G') * (B' d B)) A           * is element by element, summed over channels:
//     dg = G' ((B' d B) * (A dy A')) G          16 matrix products, one for each plane
//
// Tiles are what threads share out, and work on in blocks whose planes stay in the second-level
// cache; the weight gradient sums chunks of tiles of a fixed size, one after the other. Sums run in
// order of the inner index: bits depend neither on threads nor on the vector width, only on whether
// the target fuses multiplication and addition.
#include "op/conv2d_winograd.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "op/conv2d_winograd_simd.cc"
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

// A square of `size` pixels at (top, left), one vector of channels; zeros outside the image.
template <int size>
HWY_INLINE void load_square(const float* image, Dim top, Dim left, Dim height, Dim width,
                            Dim channels, FloatVector* to) {
  const Floats d;
  const bool inside = top >= 0 && left >= 0 && top + size <= height && left + size <= width;
  for (int r = 0; r < size; ++r)
    for (int c = 0; c < size; ++c) {
      const Dim y = top + r, x = left + c;
      const bool real = inside || (y >= 0 && y < height && x >= 0 && x < width);
      to[r * size + c] = real ? hn::LoadU(d, image + (y * width + x) * channels) : hn::Zero(d);
    }
}

// Planes of the tiles [first, first + count): T::out squared planes (count, channels), `stride`
// floats apart.
template <class T>
void planes_of(const WinogradTiles& t, const float* images, Dim first, Dim count, Dim stride,
               float* planes) {
  const Floats d;
  for (Dim i = 0; i < count; ++i) {
    const Dim tile = first + i, image = tile / (t.rows * t.columns);
    const Dim top = tile / t.columns % t.rows * kTile - t.before_h;
    const Dim left = tile % t.columns * kTile - t.before_w;
    const float* from = images + image * t.height * t.width * t.channels;
    for (Dim c = 0; c < t.channels; c += kWidth) {
      FloatVector x[T::in * T::in], y[T::out * T::out];
      load_square<T::in>(from + c, top, left, t.height, t.width, t.channels, x);
      both_sides<T>(x, y);
      for (int p = 0; p < T::out * T::out; ++p)
        hn::StoreU(y[p], d, planes + p * stride + i * t.channels + c);
    }
  }
}

void input_planes(const WinogradTiles& t, const float* images, Dim first, Dim count, Dim stride,
                  float* planes) {
  planes_of<FromInput>(t, images, first, count, stride, planes);
}
void output_planes(const WinogradTiles& t, const float* images, Dim first, Dim count, Dim stride,
                   float* planes) {
  planes_of<FromOutput>(t, images, first, count, stride, planes);
}

// Tiles of the output from planes (count, width), with bias (or null) and relu.
void output_tiles(const WinogradForm& f, const float* planes, Dim stride, Dim first, Dim count,
                  const float* bias, bool relu, float* images) {
  const Floats d;
  const auto zero = hn::Zero(d);
  for (Dim i = 0; i < count; ++i) {
    const Dim tile = first + i, image = tile / (f.rows() * f.columns());
    const Dim top = tile / f.columns() % f.rows() * kTile, left = tile % f.columns() * kTile;
    const Dim rows = std::min(kTile, f.h_out - top), columns = std::min(kTile, f.w_out - left);
    float* to = images + ((image * f.h_out + top) * f.w_out + left) * f.width;
    for (Dim o = 0; o < f.width; o += kWidth) {
      FloatVector m[kPlanes], y[kTile * kTile];
      for (int p = 0; p < kPlanes; ++p) m[p] = hn::LoadU(d, planes + p * stride + i * f.width + o);
      both_sides<ToOutput>(m, y);
      const auto add = bias ? hn::LoadU(d, bias + o) : zero;
      for (Dim r = 0; r < rows; ++r)
        for (Dim c = 0; c < columns; ++c) {
          auto v = hn::Add(y[r * kTile + c], add);
          if (relu) v = hn::IfThenElse(hn::Le(v, zero), zero, v);
          hn::StoreU(v, d, to + (r * f.w_out + c) * f.width + o);
        }
    }
  }
}

// Weights w (3, 3, channels, filters), rows [begin, end) of channels, to planes (channels,
// filters).
void kernel_planes(const float* w, Dim channels, Dim filters, Dim begin, Dim end, Dim stride,
                   float* planes) {
  const Floats d;
  for (Dim c = begin; c < end; ++c)
    for (Dim o = 0; o < filters; o += kWidth) {
      FloatVector g[9], u[kPlanes];
      for (int tap = 0; tap < 9; ++tap)
        g[tap] = hn::LoadU(d, w + (tap * channels + c) * filters + o);
      both_sides<FromKernel>(g, u);
      for (int p = 0; p < kPlanes; ++p) hn::StoreU(u[p], d, planes + p * stride + c * filters + o);
    }
}

// The same with the kernel turned round and its axes exchanged: planes (filters, channels), rows
// [begin, end) of filters, both multiples of 16.
void turned_planes(const float* w, Dim channels, Dim filters, Dim begin, Dim end, Dim stride,
                   float* planes) {
  const Floats d;
  float part[9 * kLanes * kLanes];  // [tap][filter][channel]
  for (Dim o = begin; o < end; o += kLanes)
    for (Dim c = 0; c < channels; c += kLanes) {
      for (int tap = 0; tap < 9; ++tap)
        for (Dim j = 0; j < kLanes; ++j)
          for (Dim i = 0; i < kLanes; ++i)
            part[((8 - tap) * kLanes + i) * kLanes + j] =
                w[(tap * channels + c + j) * filters + o + i];
      for (Dim i = 0; i < kLanes; ++i)
        for (Dim j = 0; j < kLanes; j += kWidth) {
          FloatVector g[9], u[kPlanes];
          for (int tap = 0; tap < 9; ++tap)
            g[tap] = hn::LoadU(d, part + (tap * kLanes + i) * kLanes + j);
          both_sides<FromKernel>(g, u);
          for (int p = 0; p < kPlanes; ++p)
            hn::StoreU(u[p], d, planes + p * stride + (o + i) * channels + c + j);
        }
    }
}

// dw (3, 3, channels, filters), rows [begin, end) of channels, from planes (channels, filters).
void kernel_of_planes(const float* planes, Dim stride, Dim channels, Dim filters, Dim begin,
                      Dim end, float* dw) {
  const Floats d;
  for (Dim c = begin; c < end; ++c)
    for (Dim o = 0; o < filters; o += kWidth) {
      FloatVector s[kPlanes], g[9];
      for (int p = 0; p < kPlanes; ++p) s[p] = hn::LoadU(d, planes + p * stride + c * filters + o);
      both_sides<ToKernel>(s, g);
      for (int tap = 0; tap < 9; ++tap)
        hn::StoreU(g[tap], d, dw + (tap * channels + c) * filters + o);
    }
}

// c (rows, columns) = a (rows, depth) x b (depth, columns), in panels of 64 columns and 64 of the
// inner index, which the first-level cache holds.
constexpr Dim kPanel = 64;
void multiply_plane(const float* a, const float* b, Dim rows, Dim depth, Dim columns, float* c) {
  for (Dim j = 0; j < columns; j += kPanel)
    for (Dim k = 0; k < depth; k += kPanel)
      for (Dim r = 0; r < rows; r += kRows)
        band<false>(std::min<Dim>(kRows, rows - r), a + r * depth + k, depth, b + k * columns + j,
                    columns, std::min(kPanel, depth - k), c + r * columns + j, columns,
                    std::min(kPanel, columns - j), k > 0);
}

// c (rows, columns) (+)= a' b with a (depth, rows), b (depth, columns).
void multiply_across(const float* a, const float* b, Dim rows, Dim depth, Dim columns, bool add,
                     float* c) {
  for (Dim j = 0; j < columns; j += kPanel)
    for (Dim r = 0; r < rows; r += kRows)
      band<true>(std::min<Dim>(kRows, rows - r), a + r, rows, b + j, columns, depth,
                 c + r * columns + j, columns, std::min(kPanel, columns - j), add);
}

// sums[o] = sum over pixels of dy (pixels, filters), for filters [begin, end).
void sum_pixels(const float* dy, Dim pixels, Dim filters, Dim begin, Dim end, float* sums) {
  const Floats d;
  for (Dim o = begin; o < end; o += kWidth) {
    auto sum = hn::Zero(d);
    for (Dim i = 0; i < pixels; ++i) sum = hn::Add(sum, hn::LoadU(d, dy + i * filters + o));
    hn::StoreU(sum, d, sums + o);
  }
}

bool winograd_fuses() { return HWY_NATIVE_FMA != 0; }

}  // namespace pl::cpu::HWY_NAMESPACE
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace pl::cpu {

HWY_EXPORT(winograd_fuses);
HWY_EXPORT(input_planes);
HWY_EXPORT(output_planes);
HWY_EXPORT(output_tiles);
HWY_EXPORT(kernel_planes);
HWY_EXPORT(turned_planes);
HWY_EXPORT(kernel_of_planes);
HWY_EXPORT(multiply_plane);
HWY_EXPORT(multiply_across);
HWY_EXPORT(sum_pixels);

namespace {

constexpr Dim kBlock = 48;  // tiles that a thread works on at a time
// Tiles that the weight gradient adds at a time.
Dim chunk_of(const WinogradForm& f) { return f.depth + f.width > 256 ? 96 : 192; }
constexpr Dim kMultiple = 6;

// Floats from one plane to the next. A line more than its size, so that an element's planes do not
// fall into one set of the cache.
Dim plane_stride(Dim rows, Dim columns) { return align_up(rows * columns, 16) + 16; }

WinogradTiles input_tiles(const WinogradForm& f) {
  return {f.rows(), f.columns(), f.h_in, f.w_in, f.depth, f.before_h, f.before_w};
}

const char* key_of() {
  return HWY_DYNAMIC_DISPATCH(winograd_fuses)() ? "winograd-2x2:fused" : "winograd-2x2:unfused";
}

// Forward, or from dy to dx. Workspace: planes of the weights, then for each thread those of a
// block of tiles, before and after the product.
class WinogradConv final : public Kernel {
 public:
  WinogradConv(const WinogradForm& f, const Conv2dForm& conv, bool turned, int threads)
      : f_(f), bias_(conv.bias), relu_(conv.relu), turned_(turned), threads_(threads) {
    weights_ = plane_stride(f.depth, f.width);
    before_ = plane_stride(kBlock, f.depth);
    after_ = plane_stride(kBlock, f.width);
    workspace_bytes =
        kPlanes * (weights_ + threads * (before_ + after_)) * static_cast<Bytes>(sizeof(float));
    key = key_of();
    library = "winograd";
    footprint = sizeof *this;
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const float* w = static_cast<const float*>(in[turned_ ? 0 : 1]);
    const float* x = static_cast<const float*>(in[turned_ ? 1 : 0]);
    const float* bias = bias_ && !turned_ ? static_cast<const float*>(in[2]) : nullptr;
    float* y = static_cast<float*>(out[0]);
    float* weights = static_cast<float*>(workspace);
    const Dim work = kPlanes * f_.depth * f_.width;
    parallel_ranges(
        threads_, f_.depth, work,
        [&](Dim begin, Dim end) {
          if (turned_) HWY_DYNAMIC_DISPATCH(turned_planes)
          (w, f_.width, f_.depth, begin, end, weights_, weights);
          else HWY_DYNAMIC_DISPATCH(kernel_planes)(w, f_.depth, f_.width, begin, end, weights_,
                                                   weights);
        },
        16);
    parallel_ranges(
        threads_, f_.tiles(), f_.tiles() * work,
        [&](Dim begin, Dim end) {
          float* own = weights + kPlanes * (weights_ + omp_get_thread_num() * (before_ + after_));
          for (Dim first = begin; first < end; first += kBlock)
            run_block(x, weights, own, first, std::min(kBlock, end - first), bias, y);
        },
        kMultiple);
  }

 private:
  void run_block(const float* x, const float* weights, float* before, Dim first, Dim count,
                 const float* bias, float* y) const {
    float* after = before + kPlanes * before_;
    HWY_DYNAMIC_DISPATCH(input_planes)(input_tiles(f_), x, first, count, before_, before);
    for (Dim p = 0; p < kPlanes; ++p) HWY_DYNAMIC_DISPATCH(multiply_plane)
    (before + p * before_, weights + p * weights_, count, f_.depth, f_.width, after + p * after_);
    HWY_DYNAMIC_DISPATCH(output_tiles)(f_, after, after_, first, count, bias, relu_, y);
  }

  WinogradForm f_;
  bool bias_, relu_, turned_;
  int threads_;
  Dim weights_, before_, after_;  // floats from one plane to the next
};

// Workspace: planes of the sums, then those of a chunk of tiles of x and of dy. Threads share out
// tiles while planes are made, and planes while they are multiplied.
class WinogradWeightGradient final : public Kernel {
 public:
  WinogradWeightGradient(const Conv2dForm& conv, int threads)
      : f_(winograd_forward(conv)), bias_(conv.bias), threads_(threads) {
    sums_ = plane_stride(f_.depth, f_.width);
    chunk_ = chunk_of(f_);
    x_ = plane_stride(chunk_, f_.depth);
    dy_ = plane_stride(chunk_, f_.width);
    workspace_bytes = kPlanes * (sums_ + x_ + dy_) * static_cast<Bytes>(sizeof(float));
    key = key_of();
    library = "winograd";
    footprint = sizeof *this;
  }

  void run(void* const* in, void* const* out, void* workspace) override {
    const float* x = static_cast<const float*>(in[0]);
    const float* dy = static_cast<const float*>(in[1]);
    float* dw = static_cast<float*>(out[0]);
    float* sums = static_cast<float*>(workspace);
    for (Dim first = 0; first < f_.tiles(); first += chunk_)
      add_chunk(x, dy, sums, first, std::min(chunk_, f_.tiles() - first));
    parallel_ranges(threads_, f_.depth, kPlanes * f_.depth * f_.width, [&](Dim begin, Dim end) {
      HWY_DYNAMIC_DISPATCH(kernel_of_planes)(sums, sums_, f_.depth, f_.width, begin, end, dw);
    });
    if (!bias_) return;
    const Dim pixels = f_.batch * f_.h_out * f_.w_out;
    parallel_ranges(
        threads_, f_.width, pixels * f_.width,
        [&](Dim begin, Dim end) {
          HWY_DYNAMIC_DISPATCH(sum_pixels)
          (dy, pixels, f_.width, begin, end, static_cast<float*>(out[1]));
        },
        16);
  }

 private:
  void add_chunk(const float* x, const float* dy, float* sums, Dim first, Dim count) const {
    float* x_planes = sums + kPlanes * sums_;
    float* dy_planes = x_planes + kPlanes * x_;
    const WinogradTiles from_x = input_tiles(f_);
    const WinogradTiles from_dy{f_.rows(), f_.columns(), f_.h_out, f_.w_out, f_.width, 0, 0};
    parallel_ranges(threads_, count, count * kPlanes * f_.depth, [&](Dim begin, Dim end) {
      HWY_DYNAMIC_DISPATCH(input_planes)
      (from_x, x, first + begin, end - begin, x_, x_planes + begin * f_.depth);
      HWY_DYNAMIC_DISPATCH(output_planes)
      (from_dy, dy, first + begin, end - begin, dy_, dy_planes + begin * f_.width);
    });
    parallel_ranges(threads_, kPlanes, kPlanes * count * f_.depth * f_.width,
                    [&](Dim begin, Dim end) {
                      for (Dim p = begin; p < end; ++p) HWY_DYNAMIC_DISPATCH(multiply_across)
                      (x_planes + p * x_, dy_planes + p * dy_, f_.depth, count, f_.width, first > 0,
                       sums + p * sums_);
                    });
  }

  WinogradForm f_;
  bool bias_;
  int threads_;
  Dim chunk_;          // tiles
  Dim sums_, x_, dy_;  // floats from one plane to the next
};

bool supported(const PrepareCall& call, const Conv2dForm& f, const WinogradForm& tiles) {
  return call.in[0].dtype == Dtype::float32 && f.batch > 0 && winograd_suits(f, tiles);
}

}  // namespace

std::unique_ptr<Kernel> conv2d_winograd(const PrepareCall& call) {
  const Conv2dForm f = conv2d_form(call.in, call.attrs);
  if (!supported(call, f, winograd_forward(f))) return nullptr;
  return std::make_unique<WinogradConv>(winograd_forward(f), f, false, call.backend.threads());
}

std::unique_ptr<Kernel> conv2d_input_gradient_winograd(const PrepareCall& call) {
  Conv2dForm f = conv2d_input_gradient_form(call.in, call.attrs);
  if (!supported(call, f, winograd_backward(f))) return nullptr;
  f.relu = false;
  return std::make_unique<WinogradConv>(winograd_backward(f), f, true, call.backend.threads());
}

std::unique_ptr<Kernel> conv2d_weight_gradient_winograd(const PrepareCall& call) {
  const Conv2dForm f = conv2d_weight_gradient_form(call.in, call.attrs);
  if (!supported(call, f, winograd_forward(f))) return nullptr;
  return std::make_unique<WinogradWeightGradient>(f, call.backend.threads());
}

}  // namespace pl::cpu
#endif  // HWY_ONCE
