// Reference kernels of conv2d: plain loops, float32 and float64. The fast ones are in
// conv2d_onednn.cc.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/conv2d.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

// Calls body(kernel position, input pixel, output pixel) for every pair of an output and a kernel
// position of image `b` that does not fall on padding.
template <class Body>
void for_each_tap(const Window& win, Dim b, const Body& body) {
  for (Dim oh = 0; oh < win.h.out; ++oh)
    for (Dim ow = 0; ow < win.w.out; ++ow)
      for (Dim kh = 0; kh < win.h.kernel; ++kh)
        for (Dim kw = 0; kw < win.w.kernel; ++kw) {
          const Dim ih = oh * win.h.stride - win.h.before + kh * win.h.dilation;
          const Dim iw = ow * win.w.stride - win.w.before + kw * win.w.dilation;
          if (ih < 0 || ih >= win.h.in || iw < 0 || iw >= win.w.in) continue;
          body(kh * win.w.kernel + kw, (b * win.h.in + ih) * win.w.in + iw,
               (b * win.h.out + oh) * win.w.out + ow);
        }
}

int64_t work_of(const Conv2dForm& f) {
  return f.batch * f.window.h.out * f.window.w.out * f.filters;
}

template <class T>
std::unique_ptr<Kernel> forward(const Conv2dForm& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    const T* w = static_cast<const T*>(in[1]);
    const T* bias = f.bias ? static_cast<const T*>(in[2]) : nullptr;
    T* y = static_cast<T*>(out[0]);
    const Dim depth = f.channels / f.groups, width = f.filters / f.groups;
    const Dim pixels = f.window.h.out * f.window.w.out;
    parallel_ranges(threads, f.batch, work_of(f), [&](Dim begin, Dim end) {
      for (Dim i = begin * pixels; i < end * pixels; ++i)
        for (Dim o = 0; o < f.filters; ++o) y[i * f.filters + o] = bias ? bias[o] : T(0);
      for (Dim b = begin; b < end; ++b)
        for_each_tap(f.window, b, [&](Dim tap, Dim at, Dim to) {
          for (Dim g = 0; g < f.groups; ++g)
            for (Dim c = 0; c < depth; ++c) {
              const T value = x[at * f.channels + g * depth + c];
              const T* row = w + (tap * depth + c) * f.filters + g * width;
              T* sum = y + to * f.filters + g * width;
              for (Dim o = 0; o < width; ++o) sum[o] += value * row[o];
            }
        });
      if (!f.relu) return;
      for (Dim i = begin * pixels * f.filters; i < end * pixels * f.filters; ++i)
        y[i] = y[i] <= T(0) ? T(0) : y[i];
    });
  });
}

template <class T>
std::unique_ptr<Kernel> input_gradient(const Conv2dForm& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const T* w = static_cast<const T*>(in[0]);
    const T* dy = static_cast<const T*>(in[1]);
    T* dx = static_cast<T*>(out[0]);
    const Dim depth = f.channels / f.groups, width = f.filters / f.groups;
    const Dim image = f.window.h.in * f.window.w.in * f.channels;
    parallel_ranges(threads, f.batch, work_of(f), [&](Dim begin, Dim end) {
      std::fill(dx + begin * image, dx + end * image, T(0));
      for (Dim b = begin; b < end; ++b)
        for_each_tap(f.window, b, [&](Dim tap, Dim at, Dim to) {
          for (Dim g = 0; g < f.groups; ++g)
            for (Dim c = 0; c < depth; ++c) {
              const T* row = w + (tap * depth + c) * f.filters + g * width;
              const T* from = dy + to * f.filters + g * width;
              T sum = 0;
              for (Dim o = 0; o < width; ++o) sum += row[o] * from[o];
              dx[at * f.channels + g * depth + c] += sum;
            }
        });
    });
  });
}

// Threads share out the rows (tap, c) of dw, so that the order of each sum does not depend on them.
template <class T>
std::unique_ptr<Kernel> weight_gradient(const Conv2dForm& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    const T* dy = static_cast<const T*>(in[1]);
    T* dw = static_cast<T*>(out[0]);
    const Dim depth = f.channels / f.groups, width = f.filters / f.groups;
    const Dim rows = f.window.h.kernel * f.window.w.kernel * depth;
    parallel_ranges(threads, rows, work_of(f), [&](Dim begin, Dim end) {
      std::fill(dw + begin * f.filters, dw + end * f.filters, T(0));
      for (Dim b = 0; b < f.batch; ++b)
        for_each_tap(f.window, b, [&](Dim tap, Dim at, Dim to) {
          const Dim first = std::max(begin, tap * depth), last = std::min(end, (tap + 1) * depth);
          for (Dim row = first; row < last; ++row)
            for (Dim g = 0; g < f.groups; ++g) {
              const T value = x[at * f.channels + g * depth + row - tap * depth];
              const T* from = dy + to * f.filters + g * width;
              T* sum = dw + row * f.filters + g * width;
              for (Dim o = 0; o < width; ++o) sum[o] += value * from[o];
            }
        });
    });
    if (!f.bias) return;
    T* db = static_cast<T*>(out[1]);
    const Dim pixels = f.batch * f.window.h.out * f.window.w.out;
    std::fill(db, db + f.filters, T(0));
    for (Dim i = 0; i < pixels; ++i)
      for (Dim o = 0; o < f.filters; ++o) db[o] += dy[i * f.filters + o];
  });
}

}  // namespace

std::unique_ptr<Kernel> conv2d_reference(const PrepareCall& call) {
  const Conv2dForm f = conv2d_form(call.in, call.attrs);
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return forward<T>(f, call.backend.threads()); });
}

std::unique_ptr<Kernel> conv2d_input_gradient_reference(const PrepareCall& call) {
  const Conv2dForm f = conv2d_input_gradient_form(call.in, call.attrs);
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return input_gradient<T>(f, call.backend.threads()); });
}

std::unique_ptr<Kernel> conv2d_weight_gradient_reference(const PrepareCall& call) {
  const Conv2dForm f = conv2d_weight_gradient_form(call.in, call.attrs);
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return weight_gradient<T>(f, call.backend.threads()); });
}

}  // namespace pl::cpu
