// CPU kernels of upsample. Channels are the inner loop, and little is done to each element: this is
// as fast as memory.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/upsample.h"

namespace pl::cpu {
namespace {

struct Form {
  Dim batch, height, width, channels;  // of the small images
  Dim times_h, times_w;
  bool bilinear;
};

Form form_of(const Meta& small, const Attrs& attrs) {
  const Shape& s = small.shape;
  const auto& size = attrs.list("size");
  return {s[0],
          s[1],
          s[2],
          s[3],
          size[0],
          size[1],
          attrs.text("interpolation", "nearest") == "bilinear"};
}

// The two small positions that a large one lies between, and the second one's share. Nearest: all
// of the first's.
template <class T>
struct Between {
  Dim first, second;
  T share;
};

// (o + 1/2) / times - 1/2 in small pixels, with the outermost pixels going on for ever.
template <class T>
Between<T> between(Dim o, Dim times, Dim small, bool bilinear) {
  if (!bilinear) return {o / times, o / times, T(0)};
  const Dim twice = 2 * o + 1 - times + 2 * times;  // of one pixel further, so that it is positive
  const Dim first = twice / (2 * times) - 1;
  const T share = static_cast<T>(twice % (2 * times)) / static_cast<T>(2 * times);
  return {std::clamp<Dim>(first, 0, small - 1), std::clamp<Dim>(first + 1, 0, small - 1), share};
}

template <class T>
void add(const T* from, T factor, Dim count, T* to) {
  if (factor == T(0)) return;
  for (Dim c = 0; c < count; ++c) to[c] += from[c] * factor;
}

template <class T>
std::unique_ptr<Kernel> forward(const Form& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out[0]);
    const Dim tall = f.height * f.times_h, wide = f.width * f.times_w, lines = f.batch * tall;
    parallel_ranges(threads, lines, lines * wide * f.channels, [&](Dim begin, Dim end) {
      for (Dim line = begin; line < end; ++line)
        for (Dim ow = 0; ow < wide; ++ow) {
          const auto rows = between<T>(line % tall, f.times_h, f.height, f.bilinear);
          const auto cols = between<T>(ow, f.times_w, f.width, f.bilinear);
          auto at = [&](Dim row, Dim col) {
            return x + ((line / tall * f.height + row) * f.width + col) * f.channels;
          };
          T* to = y + (line * wide + ow) * f.channels;
          if (!f.bilinear) {
            std::copy_n(at(rows.first, cols.first), f.channels, to);
            continue;
          }
          std::fill(to, to + f.channels, T(0));
          add(at(rows.first, cols.first), (1 - rows.share) * (1 - cols.share), f.channels, to);
          add(at(rows.first, cols.second), (1 - rows.share) * cols.share, f.channels, to);
          add(at(rows.second, cols.first), rows.share * (1 - cols.share), f.channels, to);
          add(at(rows.second, cols.second), rows.share * cols.share, f.channels, to);
        }
    });
  });
}

// Whole images are what threads share out, since neighbouring lines add to the same pixels.
template <class T>
std::unique_ptr<Kernel> gradient(const Form& f, int threads) {
  return make_kernel([f, threads](void* const* in, void* const* out, void*) {
    const T* dy = static_cast<const T*>(in[0]);
    T* dx = static_cast<T*>(out[0]);
    const Dim tall = f.height * f.times_h, wide = f.width * f.times_w;
    const Dim image = f.height * f.width * f.channels;
    parallel_ranges(threads, f.batch, f.batch * tall * wide * f.channels, [&](Dim begin, Dim end) {
      std::fill(dx + begin * image, dx + end * image, T(0));
      for (Dim line = begin * tall; line < end * tall; ++line)
        for (Dim ow = 0; ow < wide; ++ow) {
          const auto rows = between<T>(line % tall, f.times_h, f.height, f.bilinear);
          const auto cols = between<T>(ow, f.times_w, f.width, f.bilinear);
          const T* from = dy + (line * wide + ow) * f.channels;
          auto put = [&](Dim row, Dim col, T share) {
            add(from, share, f.channels,
                dx + ((line / tall * f.height + row) * f.width + col) * f.channels);
          };
          put(rows.first, cols.first, (1 - rows.share) * (1 - cols.share));
          put(rows.first, cols.second, (1 - rows.share) * cols.share);
          put(rows.second, cols.first, rows.share * (1 - cols.share));
          put(rows.second, cols.second, rows.share * cols.share);
        }
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> upsample_reference(const PrepareCall& call) {
  const Form f = form_of(call.in[0], call.attrs);
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return forward<T>(f, call.backend.threads()); });
}

std::unique_ptr<Kernel> upsample_gradient_reference(const PrepareCall& call) {
  const Form f = form_of(call.out[0], call.attrs);
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return gradient<T>(f, call.backend.threads()); });
}

}  // namespace pl::cpu
