// CPU kernels of resize and upsample. Channels are the inner loop, and little is done to each
// element: this is as fast as memory.
#include <algorithm>
#include <cmath>
#include <numbers>

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

// Of a new pixel at distance x from an old one, in units of the filter's width.
double filter_at(int reach, double x) {
  x = std::fabs(x);
  if (reach == 1) return std::max(0.0, 1 - x);
  if (reach == 2) {
    if (x >= 2) return 0;
    return x < 1 ? (1.5 * x - 2.5) * x * x + 1 : ((-0.5 * x + 2.5) * x - 4) * x + 2;
  }
  if (x <= 1e-3) return 1;
  const double pi_x = std::numbers::pi * x;
  return x > reach ? 0 : reach * std::sin(pi_x) * std::sin(pi_x / reach) / (pi_x * pi_x);
}

// Along one axis: new position o is made of old positions from first[o] on, with the shares that
// lie from begin[o] to begin[o + 1].
template <class T>
struct Taps {
  std::vector<Dim> first, begin;
  std::vector<T> shares;
};

template <class T>
Taps<T> taps_of(Dim from, Dim to, int reach, bool antialias) {
  const double scale = static_cast<double>(from) / static_cast<double>(to);
  const double width = antialias ? std::max(scale, 1.0) : 1.0;
  Taps<T> taps;
  for (Dim o = 0; o < to; ++o) {
    const double centre = (static_cast<double>(o) + 0.5) * scale - 0.5;
    const Dim first = std::max<Dim>(static_cast<Dim>(std::ceil(centre - reach * width)), 0);
    const Dim last = std::min<Dim>(static_cast<Dim>(std::floor(centre + reach * width)), from - 1);
    taps.first.push_back(first);
    taps.begin.push_back(static_cast<Dim>(taps.shares.size()));
    double sum = 0;
    for (Dim i = first; i <= last; ++i)
      sum += filter_at(reach, (static_cast<double>(i) - centre) / width);
    for (Dim i = first; i <= last; ++i)
      taps.shares.push_back(
          static_cast<T>(filter_at(reach, (static_cast<double>(i) - centre) / width) / sum));
  }
  taps.begin.push_back(static_cast<Dim>(taps.shares.size()));
  return taps;
}

// Calls body(row, column, share) for all old pixels that new pixel (oh, ow) is made of.
template <class T, class Body>
void each_tap(const Taps<T>& rows, const Taps<T>& cols, Dim oh, Dim ow, const Body& body) {
  const auto h = static_cast<size_t>(oh), w = static_cast<size_t>(ow);
  for (Dim r = rows.begin[h]; r < rows.begin[h + 1]; ++r)
    for (Dim c = cols.begin[w]; c < cols.begin[w + 1]; ++c)
      body(rows.first[h] + r - rows.begin[h], cols.first[w] + c - cols.begin[w],
           rows.shares[static_cast<size_t>(r)] * cols.shares[static_cast<size_t>(c)]);
}

template <class T>
std::unique_ptr<Kernel> filtered(const Form& f, int reach, bool antialias, int threads) {
  return make_kernel([f, threads, rows = taps_of<T>(f.height, f.tall, reach, antialias),
                      cols = taps_of<T>(f.width, f.wide, reach, antialias)](
                         void* const* in, void* const* out, void*) {
    const T* x = static_cast<const T*>(in[0]);
    T* y = static_cast<T*>(out[0]);
    const Dim lines = f.batch * f.tall;
    parallel_ranges(threads, lines, 16 * lines * f.wide * f.channels, [&](Dim begin, Dim end) {
      std::fill(y + begin * f.wide * f.channels, y + end * f.wide * f.channels, T(0));
      for (Dim line = begin; line < end; ++line)
        for (Dim ow = 0; ow < f.wide; ++ow)
          each_tap(rows, cols, line % f.tall, ow, [&](Dim row, Dim col, T share) {
            add(x + ((line / f.tall * f.height + row) * f.width + col) * f.channels, share,
                f.channels, y + (line * f.wide + ow) * f.channels);
          });
    });
  });
}

template <class T>
std::unique_ptr<Kernel> filtered_gradient(const Form& f, int reach, bool antialias, int threads) {
  return make_kernel([f, threads, rows = taps_of<T>(f.height, f.tall, reach, antialias),
                      cols = taps_of<T>(f.width, f.wide, reach, antialias)](
                         void* const* in, void* const* out, void*) {
    const T* dy = static_cast<const T*>(in[0]);
    T* dx = static_cast<T*>(out[0]);
    const Dim image = f.height * f.width * f.channels, work = f.tall * f.wide * f.channels;
    parallel_ranges(threads, f.batch, 16 * f.batch * work, [&](Dim begin, Dim end) {
      std::fill(dx + begin * image, dx + end * image, T(0));
      for (Dim line = begin * f.tall; line < end * f.tall; ++line)
        for (Dim ow = 0; ow < f.wide; ++ow)
          each_tap(rows, cols, line % f.tall, ow, [&](Dim row, Dim col, T share) {
            add(dy + (line * f.wide + ow) * f.channels, share, f.channels,
                dx + ((line / f.tall * f.height + row) * f.width + col) * f.channels);
          });
    });
  });
}

// Bilinear pixels between two others have kernels of their own.
bool needs_taps(int reach, bool antialias) { return reach > 1 || (reach == 1 && antialias); }

std::unique_ptr<Kernel> forward_kernel(const PrepareCall& call, const char* otherwise) {
  const Form f = form_of(call.in[0], call.out[0], call.attrs.text("interpolation", otherwise));
  const int reach = resize_reach(call.attrs.text("interpolation", otherwise));
  const bool antialias = call.attrs.integer("antialias", 0) != 0;
  const int threads = call.backend.threads();
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return needs_taps(reach, antialias) ? filtered<T>(f, reach, antialias, threads)
                                        : forward<T>(f, threads);
  });
}
std::unique_ptr<Kernel> gradient_kernel(const PrepareCall& call, const char* otherwise) {
  const Form f = form_of(call.out[0], call.in[0], call.attrs.text("interpolation", otherwise));
  const int reach = resize_reach(call.attrs.text("interpolation", otherwise));
  const bool antialias = call.attrs.integer("antialias", 0) != 0;
  const int threads = call.backend.threads();
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return needs_taps(reach, antialias) ? filtered_gradient<T>(f, reach, antialias, threads)
                                        : gradient<T>(f, threads);
  });
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
