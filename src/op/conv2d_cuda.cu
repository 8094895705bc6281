// Plain CUDA kernels of convolutions, for what cuDNN does not take (float64, odd forms), and of
// conv2d_pool: a thread for each result, sums in one order.
#include "op/conv2d.h"
#include "op/conv2d_pool.h"
#include "op/cuda/device-inl.cuh"
#include "op/cuda/kernels.h"
#include "op/cuda/product.h"

namespace pl::cuda {
namespace {

// body(row of w, x pixel) for the taps of output (oh, ow) of image b that are not padding.
template <class Body>
__device__ void each_tap(const Window& win, int64_t b, int64_t oh, int64_t ow, Body body) {
  const WindowAxis &h = win.h, &w = win.w;
  for (int64_t kh = 0; kh < h.kernel; ++kh) {
    const int64_t ih = oh * h.stride - h.before + kh * h.dilation;
    if (ih < 0 || ih >= h.in) continue;
    for (int64_t kw = 0; kw < w.kernel; ++kw) {
      const int64_t iw = ow * w.stride - w.before + kw * w.dilation;
      if (iw < 0 || iw >= w.in) continue;
      body(kh * w.kernel + kw, (b * h.in + ih) * w.in + iw);
    }
  }
}

template <class T>
__global__ void conv_elements(Conv2dForm f, const T* x, const T* w, const Wide<T>* bias, T* y,
                              int64_t total) {
  const int64_t depth = f.channels / f.groups, width = f.filters / f.groups;
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const int64_t o = i % f.filters, pixel = i / f.filters, group = o / width;
    const int64_t ow = pixel % f.window.w.out, oh = pixel / f.window.w.out % f.window.h.out;
    Wide<T> sum = bias ? bias[o] : Wide<T>(0);
    each_tap(f.window, pixel / f.window.w.out / f.window.h.out, oh, ow,
             [&](int64_t tap, int64_t at) {
               const T* from = x + at * f.channels + group * depth;
               const T* row = w + tap * depth * f.filters + o;
               for (int64_t c = 0; c < depth; ++c)
                 sum += widen(from[c]) * widen(row[c * f.filters]);
             });
    y[i] = static_cast<T>(f.relu && sum <= Wide<T>(0) ? Wide<T>(0) : sum);
  }
}

template <class T>
__global__ void conv_input_gradient_elements(Conv2dForm f, const T* w, const T* dy, T* dx,
                                             int64_t total) {
  const int64_t depth = f.channels / f.groups, width = f.filters / f.groups;
  const WindowAxis h = f.window.h, v = f.window.w;
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const int64_t c = i % f.channels, pixel = i / f.channels, group = c / depth;
    const int64_t iw = pixel % v.in, ih = pixel / v.in % h.in, b = pixel / v.in / h.in;
    Wide<T> sum = 0;
    for (int64_t kh = 0; kh < h.kernel; ++kh) {
      const int64_t down = ih + h.before - kh * h.dilation;
      if (down < 0 || down % h.stride != 0 || down / h.stride >= h.out) continue;
      for (int64_t kw = 0; kw < v.kernel; ++kw) {
        const int64_t across = iw + v.before - kw * v.dilation;
        if (across < 0 || across % v.stride != 0 || across / v.stride >= v.out) continue;
        const int64_t to = (b * h.out + down / h.stride) * v.out + across / v.stride;
        const T* row = w + ((kh * v.kernel + kw) * depth + c % depth) * f.filters + group * width;
        const T* from = dy + to * f.filters + group * width;
        for (int64_t o = 0; o < width; ++o) sum += widen(row[o]) * widen(from[o]);
      }
    }
    dx[i] = static_cast<T>(sum);
  }
}

// A warp for each element of dw: its lanes share out the output pixels.
template <class T, class Out>
__global__ void conv_weight_gradient_elements(Conv2dForm f, const T* x, const T* dy, Out* dw,
                                              int64_t total) {
  const int64_t depth = f.channels / f.groups, width = f.filters / f.groups;
  const WindowAxis h = f.window.h, v = f.window.w;
  const int64_t pixels = f.batch * h.out * v.out;
  for (int64_t i = thread_index() / 32; i < total; i += thread_count() / 32) {
    const int64_t o = i % f.filters, c = i / f.filters % depth, tap = i / f.filters / depth;
    const int64_t kh = tap / v.kernel, kw = tap % v.kernel, group = o / width;
    Wide<T> sum = 0;
    for (int64_t p = threadIdx.x % 32; p < pixels; p += 32) {
      const int64_t ih = p / v.out % h.out * h.stride - h.before + kh * h.dilation;
      const int64_t iw = p % v.out * v.stride - v.before + kw * v.dilation;
      if (ih < 0 || ih >= h.in || iw < 0 || iw >= v.in) continue;
      const int64_t at = (p / v.out / h.out * h.in + ih) * v.in + iw;
      sum += widen(x[at * f.channels + group * depth + c]) * widen(dy[p * f.filters + o]);
    }
    sum = warp_all(sum, Plus{});
    if (threadIdx.x % 32 == 0) dw[i] = static_cast<Out>(static_cast<Wide<Out>>(sum));
  }
}

template <class T, class Out>
std::unique_ptr<Kernel> weight_gradient_kernel(const PrepareCall& call, const Conv2dForm& f) {
  const int64_t total = call.out[0].elements();
  const int64_t pixels = f.batch * f.window.h.out * f.window.w.out;
  const Dtype dtype = call.in[0].dtype;
  CudaBackend& backend = backend_of(call);
  return make_kernel(
      call,
      [=, &backend](const Launch& launch, void* const* in, void* const* out, char* workspace) {
        if (total > 0)
          conv_weight_gradient_elements<T, Out><<<launch.blocks(total, 4), 128, 0, launch.stream>>>(
              f, input<T>(in, 0), input<T>(in, 1), output<Out>(out, 0), total);
        if (f.bias)
          launch_bias_gradient(backend, dtype, in[1], out[1], pixels, f.filters, false, workspace);
      },
      f.bias ? bias_gradient_bytes(backend, dtype, pixels, f.filters) : 0);
}

}  // namespace

std::unique_ptr<Kernel> conv2d(const PrepareCall& call) {
  const Conv2dForm f = conv2d_form(call.in, call.attrs);
  const int64_t total = call.out[0].elements();
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (total > 0)
        conv_elements<T><<<launch.blocks(total, 128), 128, 0, launch.stream>>>(
            f, input<T>(in, 0), input<T>(in, 1), f.bias ? input<Wide<T>>(in, 2) : nullptr,
            output<T>(out, 0), total);
    });
  });
}
std::unique_ptr<Kernel> conv2d_input_gradient(const PrepareCall& call) {
  const Conv2dForm f = conv2d_input_gradient_form(call.in, call.attrs);
  const int64_t total = call.out[0].elements();
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (total > 0)
        conv_input_gradient_elements<T><<<launch.blocks(total, 128), 128, 0, launch.stream>>>(
            f, input<T>(in, 0), input<T>(in, 1), output<T>(out, 0), total);
    });
  });
}
std::unique_ptr<Kernel> conv2d_weight_gradient(const PrepareCall& call) {
  const Conv2dForm f = conv2d_weight_gradient_form(call.in, call.attrs);
  return dispatch_real(call.in[0].dtype, [&]<class T>() -> std::unique_ptr<Kernel> {
    if (call.out[0].dtype != call.in[0].dtype) return weight_gradient_kernel<T, Wide<T>>(call, f);
    return weight_gradient_kernel<T, T>(call, f);
  });
}

namespace {

template <class T, class B>
__global__ void conv_pool_elements(Conv2dPoolForm f, const T* x, const T* w, const B* bias, T* y,
                                   uint8_t* index, int64_t total) {
  using W = Wide<T>;
  const int64_t filters = f.conv.filters, channels = f.conv.channels;
  const WindowAxis ph = f.pool.window.h, pw = f.pool.window.w;
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const int64_t o = i % filters, pixel = i / filters;
    const int64_t c = pixel % pw.out, r = pixel / pw.out % ph.out, b = pixel / pw.out / ph.out;
    W best = 0;
    int where = 0;
    for (int p = 0; p < ph.kernel * pw.kernel; ++p) {
      W sum = bias ? static_cast<W>(widen(bias[o])) : W(0);
      each_tap(f.conv.window, b, r * ph.stride + p / pw.kernel, c * pw.stride + p % pw.kernel,
               [&](int64_t tap, int64_t at) {
                 for (int64_t k = 0; k < channels; ++k)
                   sum +=
                       widen(x[at * channels + k]) * widen(w[(tap * channels + k) * filters + o]);
               });
      if (p > 0 && !(sum > best || sum != sum)) continue;
      best = sum;
      where = p;
    }
    y[i] = static_cast<T>(f.conv.relu && best <= W(0) ? W(0) : best);
    index[i] = static_cast<uint8_t>(f.masked && !(best > W(0)) ? kNoPosition : where);
  }
}

constexpr int kPoolDown = 8;

// Rows of dw (taps, channels) by filters, and one more row for db; pieces of output pixels. A block
// has 32 filters across and shares the pixels of its piece out to kPoolDown rows of threads.
template <class T>
__global__ void __launch_bounds__(32 * kPoolDown)
    conv_pool_parts(Conv2dPoolForm f, const T* x, const uint8_t* index, const T* dy, Wide<T>* parts,
                    int64_t pixels, int64_t piece) {
  using W = Wide<T>;
  __shared__ W shared[kPoolDown][33];
  const WindowAxis h = f.conv.window.h, w = f.conv.window.w;
  const WindowAxis ph = f.pool.window.h, pw = f.pool.window.w;
  const int64_t filters = f.conv.filters, channels = f.conv.channels;
  const int64_t rows = h.kernel * w.kernel * channels, row = blockIdx.y;
  const int64_t k = row % channels, tap = row / channels;
  const int64_t o = static_cast<int64_t>(blockIdx.x) * 32 + threadIdx.x;
  const int64_t first = blockIdx.z * piece, last = min(pixels, first + piece);
  W sum = 0;
  if (o < filters)
    for (int64_t i = first + threadIdx.y; i < last; i += kPoolDown) {
      const int64_t p = index[i * filters + o];
      if (p >= ph.kernel * pw.kernel) continue;
      const W gradient = widen(dy[i * filters + o]);
      if (row == rows) {
        sum += gradient;
        continue;
      }
      const int64_t c = i % pw.out, r = i / pw.out % ph.out, b = i / pw.out / ph.out;
      const int64_t oh = r * ph.stride + p / pw.kernel, ow = c * pw.stride + p % pw.kernel;
      const int64_t ih = oh * h.stride - h.before + tap / w.kernel * h.dilation;
      const int64_t iw = ow * w.stride - w.before + tap % w.kernel * w.dilation;
      if (ih < 0 || ih >= h.in || iw < 0 || iw >= w.in) continue;
      sum += gradient * widen(x[((b * h.in + ih) * w.in + iw) * channels + k]);
    }
  shared[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y > 0 || o >= filters) return;
  sum = 0;
  for (int y = 0; y < kPoolDown; ++y) sum += shared[y][threadIdx.x];
  parts[(blockIdx.z * gridDim.y + row) * filters + o] = sum;
}
template <class T>
__global__ void conv_pool_ends(const Wide<T>* parts, T* dw, T* db, int64_t pieces, int64_t weights,
                               int64_t total) {
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    double sum = 0;
    for (int64_t p = 0; p < pieces; ++p) sum += static_cast<double>(parts[p * total + i]);
    (i < weights ? dw[i] : db[i - weights]) = static_cast<T>(static_cast<Wide<T>>(sum));
  }
}

template <class T>
std::unique_ptr<Kernel> conv_pool_gradient_kernel(const PrepareCall& call,
                                                  const Conv2dPoolForm& f) {
  const WindowAxis &ph = f.pool.window.h, &pw = f.pool.window.w;
  const int64_t pixels = f.pool.batch * ph.out * pw.out, filters = f.conv.filters;
  const int64_t rows =
      f.conv.window.h.kernel * f.conv.window.w.kernel * f.conv.channels + (f.conv.bias ? 1 : 0);
  const int64_t across = (filters + 31) / 32;
  const int64_t most = std::max<int64_t>(1, pixels / (kPoolDown * 16));
  const int64_t pieces =
      std::clamp<int64_t>(backend_of(call).multiprocessors() * int64_t{8} / (across * rows), 1,
                          std::min<int64_t>(most, 512));
  const int64_t piece = (pixels + pieces - 1) / pieces;
  return make_kernel(
      call,
      [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
        if (rows * filters == 0) return;
        Wide<T>* parts = reinterpret_cast<Wide<T>*>(workspace);
        const dim3 grid(static_cast<unsigned>(across), static_cast<unsigned>(rows),
                        static_cast<unsigned>(pieces));
        conv_pool_parts<T><<<grid, dim3(32, kPoolDown), 0, launch.stream>>>(
            f, input<T>(in, 0), input<uint8_t>(in, 1), input<T>(in, 2), parts, pixels, piece);
        const int64_t bias = f.conv.bias ? filters : 0;
        conv_pool_ends<T><<<launch.blocks(rows * filters, 128), 128, 0, launch.stream>>>(
            parts, output<T>(out, 0), f.conv.bias ? output<T>(out, 1) : nullptr, pieces,
            rows * filters - bias, rows * filters);
      },
      pieces * rows * filters * static_cast<Bytes>(sizeof(Wide<T>)));
}

}  // namespace

std::unique_ptr<Kernel> conv2d_pool(const PrepareCall& call) {
  const Conv2dPoolForm f = conv2d_pool_form(call.in, call.attrs);
  const int64_t total = call.out[0].elements();
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    auto body = [&]<class B>() {
      return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
        if (total > 0)
          conv_pool_elements<T, B><<<launch.blocks(total, 128), 128, 0, launch.stream>>>(
              f, input<T>(in, 0), input<T>(in, 1), f.conv.bias ? input<B>(in, 2) : nullptr,
              output<T>(out, 0), output<uint8_t>(out, 1), total);
      });
    };
    if (f.conv.bias && call.in[2].dtype != call.in[0].dtype)
      return body.template operator()<Wide<T>>();
    return body.template operator()<T>();
  });
}
std::unique_ptr<Kernel> conv2d_pool_weight_gradient(const PrepareCall& call) {
  const Conv2dPoolForm f = conv2d_pool_weight_gradient_form(call.in, call.attrs);
  return dispatch_real(call.in[0].dtype,
                       [&]<class T>() { return conv_pool_gradient_kernel<T>(call, f); });
}

}  // namespace pl::cuda
