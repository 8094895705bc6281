// Reference kernels of max_pool. The fast ones are in max_pool_simd.cc.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/max_pool.h"

namespace pl::cpu {
namespace {

// The kernel positions [first, last) of output position `o` that are not padding.
struct Span {
  Dim first, last;
};
Span inside(const WindowAxis& a, Dim o) {
  const Dim start = o * a.stride - a.before;
  return {std::max<Dim>(0, -start), std::min(a.kernel, a.in - start)};
}

template <class T, class Index>
std::unique_ptr<Kernel> forward(const PoolForm& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out[0]);
    Index* index = static_cast<Index*>(out[1]);
    const auto& [h, w] = f.window;
    const Dim lines = f.batch * h.out;
    parallel_ranges(threads, lines, lines * w.out * f.channels, [&](Dim begin, Dim end) {
      for (Dim line = begin; line < end; ++line)
        for (Dim ow = 0; ow < w.out; ++ow) {
          const Dim b = line / h.out, oh = line % h.out;
          const Span rows = inside(h, oh), cols = inside(w, ow);
          for (Dim c = 0; c < f.channels; ++c) {
            const Dim to = (line * w.out + ow) * f.channels + c;
            bool found = false;
            for (Dim kh = rows.first; kh < rows.last; ++kh)
              for (Dim kw = cols.first; kw < cols.last; ++kw) {
                const Dim ih = oh * h.stride - h.before + kh, iw = ow * w.stride - w.before + kw;
                const T value = x[((b * h.in + ih) * w.in + iw) * f.channels + c];
                if (found && !(value > y[to] || value != value)) continue;
                found = true;
                y[to] = value;
                index[to] = static_cast<Index>(kh * w.kernel + kw);
              }
          }
        }
    });
  });
}

// Adds each dy to the position its index names; a position on padding takes nothing.
template <class T, class Index>
std::unique_ptr<Kernel> gradient(const PoolForm& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const Index* index = static_cast<const Index*>(in[0]);
    const T* dy = static_cast<const T*>(in[1]);
    T* dx = static_cast<T*>(out[0]);
    const auto& [h, w] = f.window;
    const Dim image = h.in * w.in * f.channels;
    parallel_ranges(threads, f.batch, f.batch * image, [&](Dim begin, Dim end) {
      std::fill(dx + begin * image, dx + end * image, T(0));
      for (Dim b = begin; b < end; ++b)
        for (Dim oh = 0; oh < h.out; ++oh)
          for (Dim ow = 0; ow < w.out; ++ow)
            for (Dim c = 0; c < f.channels; ++c) {
              const Dim from = ((b * h.out + oh) * w.out + ow) * f.channels + c;
              const Dim ih = oh * h.stride - h.before + index[from] / w.kernel;
              const Dim iw = ow * w.stride - w.before + index[from] % w.kernel;
              if (ih < 0 || ih >= h.in || iw < 0 || iw >= w.in) continue;
              dx[((b * h.in + ih) * w.in + iw) * f.channels + c] += dy[from];
            }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> max_pool_reference(const PrepareCall& call) {
  const PoolForm f = max_pool_form(call.in, call.attrs);
  const int threads = call.backend.threads();
  auto body = [&]<class T>() {
    return call.out[1].dtype == Dtype::uint8 ? forward<T, uint8_t>(f, threads)
                                             : forward<T, int32_t>(f, threads);
  };
  if (call.in[0].dtype == Dtype::uint8) return body.template operator()<uint8_t>();
  return dispatch_number(call.in[0].dtype, body);
}

std::unique_ptr<Kernel> max_pool_gradient_reference(const PrepareCall& call) {
  const PoolForm f = max_pool_gradient_form(call.in, call.attrs);
  const int threads = call.backend.threads();
  return dispatch_float(call.in[1].dtype, [&]<class T>() {
    return call.in[0].dtype == Dtype::uint8 ? gradient<T, uint8_t>(f, threads)
                                            : gradient<T, int32_t>(f, threads);
  });
}

}  // namespace pl::cpu
