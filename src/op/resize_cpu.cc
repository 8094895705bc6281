// CPU kernels of resize and upsample. Channels are the inner loop, and little is done to each
// element: this is as fast as memory.
#include <algorithm>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/resize.h"
#include "op/upsample.h"

namespace pl::cpu {
namespace {

struct Form {
  Dim batch, height, width, channels;  // of the images that are resized
  Dim tall, wide;                      // of those made of them
  bool bilinear;
};

Form form_of(const Meta& from, const Meta& to, const std::string& interpolation) {
  const Shape &s = from.shape, &t = to.shape;
  return {s[0], s[1], s[2], s[3], t[1], t[2], interpolation == "bilinear"};
}

// The two positions that a new one lies between, and the second one's share. Nearest: all of the
// first's.
template <class T>
struct Between {
  Dim first, second;
  T share;
};

// (o + 1/2) * from / to - 1/2 in old pixels, with the outermost pixels going on for ever.
template <class T>
Between<T> between(Dim o, Dim from, Dim to, bool bilinear) {
  if (!bilinear) {
    const Dim at = (2 * o + 1) * from / (2 * to);
    return {at, at, T(0)};
  }
  const Dim scaled = (2 * o + 1) * from - to + 2 * to;  // of one pixel further: positive
  const Dim first = scaled / (2 * to) - 1;
  const T share = static_cast<T>(scaled % (2 * to)) / static_cast<T>(2 * to);
  return {std::clamp<Dim>(first, 0, from - 1), std::clamp<Dim>(first + 1, 0, from - 1), share};
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
    const Dim lines = f.batch * f.tall;
    parallel_ranges(threads, lines, lines * f.wide * f.channels, [&](Dim begin, Dim end) {
      for (Dim line = begin; line < end; ++line)
        for (Dim ow = 0; ow < f.wide; ++ow) {
          const auto rows = between<T>(line % f.tall, f.height, f.tall, f.bilinear);
          const auto cols = between<T>(ow, f.width, f.wide, f.bilinear);
          auto at = [&](Dim row, Dim col) {
            return x + ((line / f.tall * f.height + row) * f.width + col) * f.channels;
          };
          T* to = y + (line * f.wide + ow) * f.channels;
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
    const Dim image = f.height * f.width * f.channels, work = f.tall * f.wide * f.channels;
    parallel_ranges(threads, f.batch, f.batch * work, [&](Dim begin, Dim end) {
      std::fill(dx + begin * image, dx + end * image, T(0));
      for (Dim line = begin * f.tall; line < end * f.tall; ++line)
        for (Dim ow = 0; ow < f.wide; ++ow) {
          const auto rows = between<T>(line % f.tall, f.height, f.tall, f.bilinear);
          const auto cols = between<T>(ow, f.width, f.wide, f.bilinear);
          const T* from = dy + (line * f.wide + ow) * f.channels;
          auto put = [&](Dim row, Dim col, T share) {
            add(from, share, f.channels,
                dx + ((line / f.tall * f.height + row) * f.width + col) * f.channels);
          };
          put(rows.first, cols.first, (1 - rows.share) * (1 - cols.share));
          put(rows.first, cols.second, (1 - rows.share) * cols.share);
          put(rows.second, cols.first, rows.share * (1 - cols.share));
          put(rows.second, cols.second, rows.share * cols.share);
        }
    });
  });
}

std::unique_ptr<Kernel> forward_kernel(const PrepareCall& call, const char* otherwise) {
  const Form f = form_of(call.in[0], call.out[0], call.attrs.text("interpolation", otherwise));
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return forward<T>(f, call.backend.threads()); });
}
std::unique_ptr<Kernel> gradient_kernel(const PrepareCall& call, const char* otherwise) {
  const Form f = form_of(call.out[0], call.in[0], call.attrs.text("interpolation", otherwise));
  return dispatch_float(call.in[0].dtype,
                        [&]<class T>() { return gradient<T>(f, call.backend.threads()); });
}

}  // namespace

std::unique_ptr<Kernel> resize_reference(const PrepareCall& call) {
  return forward_kernel(call, "bilinear");
}
std::unique_ptr<Kernel> resize_gradient_reference(const PrepareCall& call) {
  return gradient_kernel(call, "bilinear");
}
std::unique_ptr<Kernel> upsample_reference(const PrepareCall& call) {
  return forward_kernel(call, "nearest");
}
std::unique_ptr<Kernel> upsample_gradient_reference(const PrepareCall& call) {
  return gradient_kernel(call, "nearest");
}

}  // namespace pl::cpu
