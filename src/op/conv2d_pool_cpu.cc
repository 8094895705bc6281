// Reference kernels of conv2d_pool: plain loops, float32 and float64. The fast ones are in
// conv2d_pool_simd.cc.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/conv2d_pool.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

// Calls body(row of w, x element) for the taps of output (oh, ow) of image b that are not padding.
template <class Body>
void for_each_tap(const Conv2dForm& f, Dim b, Dim oh, Dim ow, const Body& body) {
  const auto& [h, w] = f.window;
  for (Dim kh = 0; kh < h.kernel; ++kh)
    for (Dim kw = 0; kw < w.kernel; ++kw) {
      const Dim ih = oh * h.stride - h.before + kh * h.dilation;
      const Dim iw = ow * w.stride - w.before + kw * w.dilation;
      if (ih < 0 || ih >= h.in || iw < 0 || iw >= w.in) continue;
      for (Dim c = 0; c < f.channels; ++c)
        body((kh * w.kernel + kw) * f.channels + c, ((b * h.in + ih) * w.in + iw) * f.channels + c);
    }
}

template <class T>
std::unique_ptr<Kernel> forward(const Conv2dPoolForm& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    const T* w = static_cast<const T*>(in[1]);
    const T* bias = f.conv.bias ? static_cast<const T*>(in[2]) : nullptr;
    T* y = static_cast<T*>(out[0]);
    uint8_t* index = static_cast<uint8_t*>(out[1]);
    const Dim filters = f.conv.filters;
    const auto& [ph, pw] = f.pool.window;
    const Dim lines = f.pool.batch * ph.out;
    parallel_ranges(threads, lines, lines * pw.out * filters, [&](Dim begin, Dim end) {
      for (Dim i = begin * pw.out; i < end * pw.out; ++i)
        for (Dim o = 0; o < filters; ++o) {
          const Dim b = i / (ph.out * pw.out), r = i / pw.out % ph.out, c = i % pw.out;
          T best{};
          for (Dim p = 0; p < ph.kernel * pw.kernel; ++p) {
            T sum = bias ? bias[o] : T(0);
            for_each_tap(f.conv, b, r * ph.stride + p / pw.kernel, c * pw.stride + p % pw.kernel,
                         [&](Dim row, Dim at) { sum += x[at] * w[row * filters + o]; });
            if (p > 0 && !(sum > best || sum != sum)) continue;
            best = sum;
            index[i * filters + o] = static_cast<uint8_t>(p);
          }
          y[i * filters + o] = f.conv.relu && best <= T(0) ? T(0) : best;
          if (f.masked && !(best > T(0))) index[i * filters + o] = kNoPosition;
        }
    });
  });
}

template <class T>
std::unique_ptr<Kernel> weight_gradient(const Conv2dPoolForm& f) {
  return make_kernel([f](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    const uint8_t* index = static_cast<const uint8_t*>(in[1]);
    const T* dy = static_cast<const T*>(in[2]);
    T* dw = static_cast<T*>(out[0]);
    T* db = f.conv.bias ? static_cast<T*>(out[1]) : nullptr;
    const Dim filters = f.conv.filters;
    const auto& [ph, pw] = f.pool.window;
    const Dim taps = f.conv.window.h.kernel * f.conv.window.w.kernel * f.conv.channels;
    std::fill(dw, dw + taps * filters, T(0));
    if (db) std::fill(db, db + filters, T(0));
    for (Dim i = 0; i < f.pool.batch * ph.out * pw.out; ++i)
      for (Dim o = 0; o < filters; ++o) {
        const Dim b = i / (ph.out * pw.out), r = i / pw.out % ph.out, c = i % pw.out;
        const Dim p = index[i * filters + o];
        if (p >= ph.kernel * pw.kernel) continue;
        const T gradient = dy[i * filters + o];
        if (db) db[o] += gradient;
        for_each_tap(f.conv, b, r * ph.stride + p / pw.kernel, c * pw.stride + p % pw.kernel,
                     [&](Dim row, Dim at) { dw[row * filters + o] += x[at] * gradient; });
      }
  });
}

}  // namespace

std::unique_ptr<Kernel> conv2d_pool_reference(const PrepareCall& call) {
  const Conv2dPoolForm f = conv2d_pool_form(call.in, call.attrs);
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return forward<T>(f, call.backend.threads()); });
}

std::unique_ptr<Kernel> conv2d_pool_weight_gradient_reference(const PrepareCall& call) {
  const Conv2dPoolForm f = conv2d_pool_weight_gradient_form(call.in, call.attrs);
  return dispatch_float(call.in[0].dtype, [&]<class T>() { return weight_gradient<T>(f); });
}

}  // namespace pl::cpu
