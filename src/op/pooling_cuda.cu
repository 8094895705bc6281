// CUDA kernels of the pools and of resize and upsample: a thread for each result, channels side by
// side; gradients look up what reached them, so that sums have one order.
#include <climits>

#include "op/avg_pool.h"
#include "op/cuda/columns-inl.cuh"
#include "op/cuda/kernels.h"
#include "op/max_pool.h"
#include "op/resize.h"

namespace pl::cuda {
namespace {

// Where element i of images (B, H, W, C) lies.
struct Place {
  int64_t b, h, w, c;
};
__device__ inline Place place_of(int64_t i, int64_t height, int64_t width, int64_t channels) {
  Place p;
  if (i <= 0xffffffff) {  // 32-bit divisions are several times faster
    auto rest = static_cast<uint32_t>(i);
    const auto c = static_cast<uint32_t>(channels), w = static_cast<uint32_t>(width);
    const auto h = static_cast<uint32_t>(height);
    p.c = rest % c;
    rest /= c;
    p.w = rest % w;
    rest /= w;
    p.h = rest % h;
    p.b = rest / h;
    return p;
  }
  p.c = i % channels;
  i /= channels;
  p.w = i % width;
  i /= width;
  p.h = i % height;
  p.b = i / height;
  return p;
}

template <class Index, int N>
struct alignas(N * sizeof(Index) < 16 ? N * sizeof(Index) : 16) Positions {
  Index at[N];
};

// Rows of pooled or of whole images: a block has some, its threads the pixels and channels of one
// beside each other, so that divisions by their number stay few. N: channels of a thread.
constexpr int kPoolThreads = 128;

// In 32 bits: sides of images, whose divisions are several times faster.
struct PoolAxis {
  int in, out, kernel, stride, before;
  __device__ explicit PoolAxis(const WindowAxis& a)
      : in(static_cast<int>(a.in)),
        out(static_cast<int>(a.out)),
        kernel(static_cast<int>(a.kernel)),
        stride(static_cast<int>(a.stride)),
        before(static_cast<int>(a.before)) {}
  // Windows [first, last) that hold input position i.
  __device__ void above(int i, int* first, int* last) const {
    const int at = i + before, past = at - kernel;  // the last start that does not reach i
    *first = past < 0 ? 0 : past / stride + 1;
    *last = min(out, at / stride + 1);
  }
};

template <int N, class T, class Index>
__global__ void __launch_bounds__(kPoolThreads)
    max_pool_rows(PoolForm f, const T* x, T* y, Index* index) {
  const PoolAxis h(f.window.h), w(f.window.w);
  const int packs = static_cast<int>(f.channels) / N, across = w.out * packs;
  const auto lines = static_cast<unsigned>(f.batch * h.out), height = static_cast<unsigned>(h.out);
  for (unsigned line = blockIdx.x; line < lines; line += gridDim.x) {
    const unsigned b = line / height;
    const int top = static_cast<int>(line - b * height) * h.stride - h.before;
    const T* image = x + static_cast<int64_t>(b) * h.in * w.in * f.channels;
    const int rows = min(h.kernel, h.in - top);
    for (int j = static_cast<int>(threadIdx.x); j < across; j += kPoolThreads) {
      const int column = j / packs, c = (j - column * packs) * N;
      const int left = column * w.stride - w.before, columns = min(w.kernel, w.in - left);
      bool found = false;
      Wide<T> best[N] = {};
      Positions<Index, N> where = {};
      for (int kh = max(0, -top); kh < rows; ++kh)
        for (int kw = max(0, -left); kw < columns; ++kw) {
          Wide<T> v[N];
          const int64_t pixel = static_cast<int64_t>(top + kh) * w.in + left + kw;
          load_wide<N>(image + pixel * f.channels + c, v);
#pragma unroll
          for (int i = 0; i < N; ++i)
            if (!found || v[i] > best[i] || v[i] != v[i]) {
              best[i] = v[i];
              where.at[i] = static_cast<Index>(kh * w.kernel + kw);
            }
          found = true;
        }
      const int64_t at = (static_cast<int64_t>(line) * across + j) * N;
      store_narrow<N>(y + at, best);
      *reinterpret_cast<Positions<Index, N>*>(index + at) = where;
    }
  }
}

// M: windows along an axis that may hold a position; their loads do not wait for each other. 0: any.
template <int N, int M, class T, class Index>
__global__ void __launch_bounds__(kPoolThreads)
    max_pool_gradient_rows(PoolForm f, const Index* index, const T* dy, T* dx) {
  const PoolAxis h(f.window.h), w(f.window.w);
  const int packs = static_cast<int>(f.channels) / N, across = w.in * packs;
  const auto lines = static_cast<unsigned>(f.batch * h.in), height = static_cast<unsigned>(h.in);
  for (unsigned line = blockIdx.x; line < lines; line += gridDim.x) {
    const unsigned b = line / height;
    const int row = static_cast<int>(line - b * height);
    const int64_t image = static_cast<int64_t>(b) * h.out * w.out * f.channels;
    int top, bottom;
    h.above(row, &top, &bottom);
    for (int j = static_cast<int>(threadIdx.x); j < across; j += kPoolThreads) {
      const int column = j / packs, c = (j - column * packs) * N;
      int left, right;
      w.above(column, &left, &right);
      Wide<T> sum[N] = {};
      auto take = [&](int oh, int ow) {
        const int64_t from = image + (static_cast<int64_t>(oh) * w.out + ow) * f.channels + c;
        const int tap =
            (row + h.before - oh * h.stride) * w.kernel + column + w.before - ow * w.stride;
        const auto where = *reinterpret_cast<const Positions<Index, N>*>(index + from);
        Wide<T> v[N];
        load_wide<N>(dy + from, v);
#pragma unroll
        for (int i = 0; i < N; ++i)
          if (where.at[i] == tap) sum[i] += v[i];
      };
      if constexpr (M > 0) {
#pragma unroll
        for (int p = 0; p < M; ++p)
#pragma unroll
          for (int q = 0; q < M; ++q)
            if (top + p < bottom && left + q < right) take(top + p, left + q);
      } else {
        for (int oh = top; oh < bottom; ++oh)
          for (int ow = left; ow < right; ++ow) take(oh, ow);
      }
      store_narrow<N>(dx + (static_cast<int64_t>(line) * across + j) * N, sum);
    }
  }
}

// Windows [first, last) along an axis that hold input position i.
__device__ inline void windows_above(const WindowAxis& a, int64_t i, int64_t* first,
                                     int64_t* last) {
  int from, to;
  PoolAxis(a).above(static_cast<int>(i), &from, &to);
  *first = from;
  *last = to;
}

__device__ inline int64_t inside_count(const WindowAxis& a, int64_t o) {
  const int64_t start = o * a.stride - a.before;
  return min(a.in, start + a.kernel) - max(int64_t{0}, start);
}

template <class T>
__global__ void avg_pool_elements(PoolForm f, const T* x, T* y, int64_t total) {
  const WindowAxis h = f.window.h, w = f.window.w;
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const Place at = place_of(i, h.out, w.out, f.channels);
    const int64_t top = at.h * h.stride - h.before, left = at.w * w.stride - w.before;
    Wide<T> sum = 0;
    for (int64_t ih = max(int64_t{0}, top); ih < min(h.in, top + h.kernel); ++ih)
      for (int64_t iw = max(int64_t{0}, left); iw < min(w.in, left + w.kernel); ++iw)
        sum += widen(x[((at.b * h.in + ih) * w.in + iw) * f.channels + at.c]);
    y[i] = static_cast<T>(
        sum * (Wide<T>(1) / static_cast<Wide<T>>(inside_count(h, at.h) * inside_count(w, at.w))));
  }
}
template <class T>
__global__ void avg_pool_gradient_elements(PoolForm f, const T* dy, T* dx, int64_t total) {
  const WindowAxis h = f.window.h, w = f.window.w;
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const Place at = place_of(i, h.in, w.in, f.channels);
    int64_t top, bottom, left, right;
    windows_above(h, at.h, &top, &bottom);
    windows_above(w, at.w, &left, &right);
    Wide<T> sum = 0;
    for (int64_t oh = top; oh < bottom; ++oh)
      for (int64_t ow = left; ow < right; ++ow)
        sum += widen(dy[((at.b * h.out + oh) * w.out + ow) * f.channels + at.c]) *
               (Wide<T>(1) / static_cast<Wide<T>>(inside_count(h, oh) * inside_count(w, ow)));
    dx[i] = static_cast<T>(sum);
  }
}

template <class Go>
std::unique_ptr<Kernel> pool_kernel(const PrepareCall& call, Dtype dtype, Go go) {
  const int64_t total = call.out[0].elements();
  return dispatch_real(dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (total > 0)
        go.template operator()<T>(launch.blocks(total, 256), launch.stream, in, out, total);
    });
  });
}

constexpr int64_t kMostLines = 8192;
unsigned lines(int64_t count) { return static_cast<unsigned>(std::min(count, kMostLines)); }

// Whether 32 bits count what a thread has of a row of an image, and the rows of all.
bool short_rows(const PoolForm& f, Dtype dtype) {
  const int64_t size = 16 / size_of(dtype), packs = f.channels / (f.channels % size == 0 ? size : 1);
  const WindowAxis &h = f.window.h, &w = f.window.w;
  return std::max(w.in, w.out) * packs < INT_MAX - kPoolThreads &&
         f.batch * std::max(h.in, h.out) < int64_t{UINT_MAX} - kMostLines;
}

template <class T, class Index>
std::unique_ptr<Kernel> max_pool_kernel(const PrepareCall& call, const PoolForm& f) {
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    constexpr int kSize = Pack<T>::kSize;
    const int64_t rows = f.batch * f.window.h.out;
    auto* kernel =
        f.channels % kSize == 0 ? max_pool_rows<kSize, T, Index> : max_pool_rows<1, T, Index>;
    if (rows * f.window.w.out * f.channels > 0)
      kernel<<<lines(rows), kPoolThreads, 0, launch.stream>>>(f, input<T>(in, 0), output<T>(out, 0),
                                                              output<Index>(out, 1));
  });
}

// Windows above 255 elements, whose gradient is rarely wanted, have one kernel a dtype.
template <class T, class Index>
std::unique_ptr<Kernel> max_pool_gradient_kernel(const PrepareCall& call, const PoolForm& f) {
  return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
    constexpr int kSize = Pack<T>::kSize;
    const WindowAxis &h = f.window.h, &w = f.window.w;
    auto* kernel = max_pool_gradient_rows<1, 0, T, Index>;
    if constexpr (sizeof(Index) == 1) {
      const int64_t above =
          std::max((h.kernel + h.stride - 1) / h.stride, (w.kernel + w.stride - 1) / w.stride);
      if (f.channels % kSize == 0)
        kernel = above == 1   ? max_pool_gradient_rows<kSize, 1, T, Index>
                 : above == 2 ? max_pool_gradient_rows<kSize, 2, T, Index>
                              : max_pool_gradient_rows<kSize, 0, T, Index>;
    }
    if (f.batch * h.in * w.in * f.channels > 0)
      kernel<<<lines(f.batch * h.in), kPoolThreads, 0, launch.stream>>>(
          f, input<Index>(in, 0), input<T>(in, 1), output<T>(out, 0));
  });
}

}  // namespace

std::unique_ptr<Kernel> max_pool(const PrepareCall& call) {
  const PoolForm f = max_pool_form(call.in, call.attrs);
  if (!short_rows(f, call.in[0].dtype)) return nullptr;
  auto body = [&]<class T>() {
    return call.out[1].dtype == Dtype::uint8 ? max_pool_kernel<T, uint8_t>(call, f)
                                             : max_pool_kernel<T, int32_t>(call, f);
  };
  if (call.in[0].dtype == Dtype::uint8) return body.template operator()<uint8_t>();
  return dispatch_number(call.in[0].dtype, body);
}
std::unique_ptr<Kernel> max_pool_gradient(const PrepareCall& call) {
  const PoolForm f = max_pool_gradient_form(call.in, call.attrs);
  if (!short_rows(f, call.in[1].dtype)) return nullptr;
  return dispatch_real(call.in[1].dtype, [&]<class T>() {
    return call.in[0].dtype == Dtype::uint8 ? max_pool_gradient_kernel<T, uint8_t>(call, f)
                                            : max_pool_gradient_kernel<T, int32_t>(call, f);
  });
}
std::unique_ptr<Kernel> avg_pool(const PrepareCall& call) {
  const PoolForm f = avg_pool_form(call.in, call.attrs);
  return pool_kernel(call, call.in[0].dtype,
                     [f]<class T>(unsigned blocks, cudaStream_t stream, void* const* in,
                                  void* const* out, int64_t total) {
                       avg_pool_elements<T><<<blocks, 256, 0, stream>>>(f, input<T>(in, 0),
                                                                        output<T>(out, 0), total);
                     });
}
std::unique_ptr<Kernel> avg_pool_gradient(const PrepareCall& call) {
  const PoolForm f = avg_pool_gradient_form(call.in, call.attrs);
  return pool_kernel(call, call.in[0].dtype,
                     [f]<class T>(unsigned blocks, cudaStream_t stream, void* const* in,
                                  void* const* out, int64_t total) {
                       avg_pool_gradient_elements<T><<<blocks, 256, 0, stream>>>(
                           f, input<T>(in, 0), output<T>(out, 0), total);
                     });
}

namespace {

struct ResizeForm {
  int64_t batch, height, width, channels;  // of the images that are resized
  int64_t tall, wide;                      // of those made of them
  bool bilinear;
};
template <class W>
struct Around {
  int64_t first, second;
  W share;
};
// As cpu's: (o + 1/2) * from / to - 1/2 in old pixels.
template <class W>
__device__ Around<W> around(int64_t o, int64_t from, int64_t to, bool bilinear) {
  if (!bilinear) {
    const int64_t at = (2 * o + 1) * from / (2 * to);
    return {at, at, W(0)};
  }
  const int64_t scaled = (2 * o + 1) * from - to + 2 * to;
  const int64_t first = scaled / (2 * to) - 1;
  const W share = static_cast<W>(scaled % (2 * to)) / static_cast<W>(2 * to);
  auto clamp = [&](int64_t i) { return min(max(i, int64_t{0}), from - 1); };
  return {clamp(first), clamp(first + 1), share};
}

template <class T>
__global__ void resize_elements(ResizeForm f, const T* x, T* y, int64_t total) {
  using W = Wide<T>;
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const Place at = place_of(i, f.tall, f.wide, f.channels);
    const auto rows = around<W>(at.h, f.height, f.tall, f.bilinear);
    const auto cols = around<W>(at.w, f.width, f.wide, f.bilinear);
    auto value = [&](int64_t r, int64_t c) {
      return x[((at.b * f.height + r) * f.width + c) * f.channels + at.c];
    };
    if (!f.bilinear) {
      y[i] = value(rows.first, cols.first);
      continue;
    }
    W sum = 0;
    auto take = [&](int64_t r, int64_t c, W share) {
      if (share != W(0)) sum += widen(value(r, c)) * share;
    };
    take(rows.first, cols.first, (1 - rows.share) * (1 - cols.share));
    take(rows.first, cols.second, (1 - rows.share) * cols.share);
    take(rows.second, cols.first, rows.share * (1 - cols.share));
    take(rows.second, cols.second, rows.share * cols.share);
    y[i] = static_cast<T>(sum);
  }
}

// New positions that may be made of old position i, along an axis: [first, last).
__device__ inline void made_of(int64_t i, int64_t from, int64_t to, int64_t* first, int64_t* last) {
  // (o + 1/2) * from / to is within one and a half of i + 1/2; the ends reach further.
  *first = i == 0 ? 0 : max(int64_t{0}, (2 * i - 2) * to / (2 * from) - 1);
  *last = i == from - 1 ? to : min(to, (2 * i + 4) * to / (2 * from) + 2);
}

template <class T>
__global__ void resize_gradient_elements(ResizeForm f, const T* dy, T* dx, int64_t total) {
  using W = Wide<T>;
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const Place at = place_of(i, f.height, f.width, f.channels);
    int64_t top, bottom, left, right;
    made_of(at.h, f.height, f.tall, &top, &bottom);
    made_of(at.w, f.width, f.wide, &left, &right);
    W sum = 0;
    for (int64_t oh = top; oh < bottom; ++oh) {
      const auto rows = around<W>(oh, f.height, f.tall, f.bilinear);
      W down = 0;
      if (rows.first == at.h) down += 1 - rows.share;
      if (rows.second == at.h) down += rows.share;
      if (down == W(0) || (!f.bilinear && rows.first != at.h)) continue;
      if (!f.bilinear) down = 1;
      for (int64_t ow = left; ow < right; ++ow) {
        const auto cols = around<W>(ow, f.width, f.wide, f.bilinear);
        W across = 0;
        if (cols.first == at.w) across += 1 - cols.share;
        if (cols.second == at.w) across += cols.share;
        if (across == W(0)) continue;
        if (!f.bilinear) across = 1;
        sum +=
            widen(dy[((at.b * f.tall + oh) * f.wide + ow) * f.channels + at.c]) * (down * across);
      }
    }
    dx[i] = static_cast<T>(sum);
  }
}

// Filters of the other interpolations, as cpu's; the shares of a pixel are computed where it is.
__device__ inline double filter_at(int reach, double x) {
  x = fabs(x);
  if (reach == 1) return fmax(0.0, 1 - x);
  if (reach == 2) {
    if (x >= 2) return 0;
    return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : ((-0.5 * x + 2.5) * x - 4) * x + 2;
  }
  if (x <= 1e-3) return 1;
  return x > reach ? 0 : reach * sinpi(x) * sinpi(x / reach) / (9.8696044010893586 * x * x);
}

// Along an axis: the old positions that a new one is made of, and the sum of their shares.
struct Span {
  int64_t first, last;
  double centre, width, sum;
  int reach;
  __device__ double share(int64_t i) const {
    if (i < first || i > last) return 0;
    return filter_at(reach, (static_cast<double>(i) - centre) / width) / sum;
  }
};
__device__ inline Span span_of(int64_t o, int64_t from, int64_t to, int reach, bool antialias) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double width = antialias ? fmax(scale, 1.0) : 1.0;
  const double centre = (static_cast<double>(o) + 0.5) * scale - 0.5;
  Span span{max(static_cast<int64_t>(ceil(centre - reach * width)), int64_t{0}),
            min(static_cast<int64_t>(floor(centre + reach * width)), from - 1),
            centre,
            width,
            1,
            reach};
  double sum = 0;
  for (int64_t i = span.first; i <= span.last; ++i) sum += span.share(i);
  span.sum = sum;
  return span;
}

template <class T>
__global__ void filter_elements(ResizeForm f, int reach, bool antialias, const T* x, T* y,
                                int64_t total) {
  using W = Wide<T>;
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const Place at = place_of(i, f.tall, f.wide, f.channels);
    const Span rows = span_of(at.h, f.height, f.tall, reach, antialias);
    const Span cols = span_of(at.w, f.width, f.wide, reach, antialias);
    W sum = 0;
    for (int64_t r = rows.first; r <= rows.last; ++r)
      for (int64_t c = cols.first; c <= cols.last; ++c)
        sum += widen(x[((at.b * f.height + r) * f.width + c) * f.channels + at.c]) *
               static_cast<W>(rows.share(r) * cols.share(c));
    y[i] = static_cast<T>(sum);
  }
}

// New positions that may be made of old position i: [first, last).
__device__ inline void filtered_from(int64_t i, int64_t from, int64_t to, int reach, bool antialias,
                                     int64_t* first, int64_t* last) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double far = reach * (antialias ? fmax(scale, 1.0) : 1.0) + 1;
  const double at = static_cast<double>(i) + 0.5;
  *first = max(static_cast<int64_t>(floor((at - far) / scale)) - 1, int64_t{0});
  *last = min(static_cast<int64_t>(ceil((at + far) / scale)) + 1, to);
}

template <class T>
__global__ void filter_gradient_elements(ResizeForm f, int reach, bool antialias, const T* dy,
                                         T* dx, int64_t total) {
  using W = Wide<T>;
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const Place at = place_of(i, f.height, f.width, f.channels);
    int64_t top, bottom, left, right;
    filtered_from(at.h, f.height, f.tall, reach, antialias, &top, &bottom);
    filtered_from(at.w, f.width, f.wide, reach, antialias, &left, &right);
    W sum = 0;
    for (int64_t oh = top; oh < bottom; ++oh) {
      const double down = span_of(oh, f.height, f.tall, reach, antialias).share(at.h);
      if (down == 0) continue;
      for (int64_t ow = left; ow < right; ++ow) {
        const double across = span_of(ow, f.width, f.wide, reach, antialias).share(at.w);
        sum += widen(dy[((at.b * f.tall + oh) * f.wide + ow) * f.channels + at.c]) *
               static_cast<W>(down * across);
      }
    }
    dx[i] = static_cast<T>(sum);
  }
}

std::unique_ptr<Kernel> filter_kernel(const PrepareCall& call, const ResizeForm& f, bool gradient,
                                      int reach, bool antialias) {
  return pool_kernel(
      call, call.in[0].dtype,
      [f, gradient, reach, antialias]<class T>(unsigned blocks, cudaStream_t stream,
                                               void* const* in, void* const* out, int64_t total) {
        if (gradient)
          filter_gradient_elements<T><<<blocks, 256, 0, stream>>>(
              f, reach, antialias, input<T>(in, 0), output<T>(out, 0), total);
        else
          filter_elements<T><<<blocks, 256, 0, stream>>>(f, reach, antialias, input<T>(in, 0),
                                                         output<T>(out, 0), total);
      });
}

std::unique_ptr<Kernel> resize_kernel(const PrepareCall& call, bool gradient,
                                      const char* otherwise) {
  const Shape& s = gradient ? call.out[0].shape : call.in[0].shape;
  const Shape& t = gradient ? call.in[0].shape : call.out[0].shape;
  const bool bilinear = call.attrs.text("interpolation", otherwise) == "bilinear";
  const ResizeForm f{s[0], s[1], s[2], s[3], t[1], t[2], bilinear};
  const int reach = resize_reach(call.attrs.text("interpolation", otherwise));
  const bool antialias = call.attrs.integer("antialias", 0) != 0;
  if (reach > 1 || (reach == 1 && antialias))
    return filter_kernel(call, f, gradient, reach, antialias);
  return pool_kernel(call, call.in[0].dtype,
                     [f, gradient]<class T>(unsigned blocks, cudaStream_t stream, void* const* in,
                                            void* const* out, int64_t total) {
                       if (gradient)
                         resize_gradient_elements<T><<<blocks, 256, 0, stream>>>(
                             f, input<T>(in, 0), output<T>(out, 0), total);
                       else
                         resize_elements<T><<<blocks, 256, 0, stream>>>(f, input<T>(in, 0),
                                                                        output<T>(out, 0), total);
                     });
}

}  // namespace

std::unique_ptr<Kernel> resize(const PrepareCall& call) {
  return resize_kernel(call, false, "bilinear");
}
std::unique_ptr<Kernel> resize_gradient(const PrepareCall& call) {
  return resize_kernel(call, true, "bilinear");
}
std::unique_ptr<Kernel> upsample(const PrepareCall& call) {
  return resize_kernel(call, false, "nearest");
}
std::unique_ptr<Kernel> upsample_gradient(const PrepareCall& call) {
  return resize_kernel(call, true, "nearest");
}

}  // namespace pl::cuda
