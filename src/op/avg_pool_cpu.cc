// CPU kernels of avg_pool. Channels are the inner loop, and little is done to each element: this is
// as fast as memory.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/avg_pool.h"
#include "op/kernel.h"

namespace pl::cpu {
namespace {

// The input positions [first, last) under output position `o`.
struct Span {
  Dim first, last;
  Dim size() const { return last - first; }
};
Span inside(const WindowAxis& a, Dim o) {
  const Dim start = o * a.stride - a.before;
  return {std::max<Dim>(0, start), std::min(a.in, start + a.kernel)};
}

// The output positions [first, last) whose windows hold input position `i`.
Span above(const WindowAxis& a, Dim i) {
  const Dim past = i + a.before - a.kernel;  // the last start that does not reach i
  return {past < 0 ? 0 : past / a.stride + 1, std::min(a.out, (i + a.before) / a.stride + 1)};
}

template <class T>
void add(const T* from, T factor, Dim count, T* to) {
  for (Dim c = 0; c < count; ++c) to[c] += from[c] * factor;
}

template <class T>
std::unique_ptr<Kernel> forward(const PoolForm& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out[0]);
    const auto& [h, w] = f.window;
    const Dim lines = f.batch * h.out;
    parallel_ranges(threads, lines, f.batch * h.in * w.in * f.channels, [&](Dim begin, Dim end) {
      for (Dim line = begin; line < end; ++line)
        for (Dim ow = 0; ow < w.out; ++ow) {
          const Span rows = inside(h, line % h.out), cols = inside(w, ow);
          const T share = T(1) / static_cast<T>(rows.size() * cols.size());
          T* to = y + (line * w.out + ow) * f.channels;
          std::fill(to, to + f.channels, T(0));
          for (Dim ih = rows.first; ih < rows.last; ++ih)
            for (Dim iw = cols.first; iw < cols.last; ++iw)
              add(x + ((line / h.out * h.in + ih) * w.in + iw) * f.channels, T(1), f.channels, to);
          for (Dim c = 0; c < f.channels; ++c) to[c] *= share;
        }
    });
  });
}

// Each element of dx is the sum over the windows that hold it, in the order of the output.
template <class T>
std::unique_ptr<Kernel> gradient(const PoolForm& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const T* dy = static_cast<const T*>(in[0]);
    T* dx = static_cast<T*>(out[0]);
    const auto& [h, w] = f.window;
    const Dim lines = f.batch * h.in;
    parallel_ranges(threads, lines, lines * w.in * f.channels, [&](Dim begin, Dim end) {
      for (Dim line = begin; line < end; ++line)
        for (Dim iw = 0; iw < w.in; ++iw) {
          const Span rows = above(h, line % h.in), cols = above(w, iw);
          T* to = dx + (line * w.in + iw) * f.channels;
          std::fill(to, to + f.channels, T(0));
          for (Dim oh = rows.first; oh < rows.last; ++oh)
            for (Dim ow = cols.first; ow < cols.last; ++ow)
              add(dy + ((line / h.in * h.out + oh) * w.out + ow) * f.channels,
                  T(1) / static_cast<T>(inside(h, oh).size() * inside(w, ow).size()), f.channels,
                  to);
        }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> avg_pool_reference(const PrepareCall& call) {
  const PoolForm f = avg_pool_form(call.in, call.attrs);
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return forward<T>(f, call.backend.threads()); });
}

std::unique_ptr<Kernel> avg_pool_gradient_reference(const PrepareCall& call) {
  const PoolForm f = avg_pool_gradient_form(call.in, call.attrs);
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return gradient<T>(f, call.backend.threads()); });
}

}  // namespace pl::cpu
