// CPU kernels of random_image: for each image where its pixels come from, then one walk over them.
#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "backend/cpu/parallel.h"
#include "op/kernel.h"
#include "op/philox.h"
#include "op/random_image.h"
#include "op/step_params.h"

namespace pl::cpu {
namespace {

enum class Kind : uint8_t { flip, crop, rotation, translation, zoom };
enum class FillMode : uint8_t { reflect, constant, nearest, wrap };

struct Form {
  Kind kind = Kind::flip;
  FillMode fill = FillMode::reflect;
  Dim batch, height, width, channels;  // of the images
  Dim tall, wide;                      // of the result
  double low[2], high[2];
  bool joint, nearest;
  double fill_value;
  uint64_t stream;
};

Form form_of(const Meta& images, const Attrs& attrs) {
  const auto &from = attrs.list("from"), &size = attrs.list("size");
  Form f{.batch = images.shape[0],
         .height = from[0],
         .width = from[1],
         .channels = images.shape[3],
         .tall = size[0],
         .wide = size[1],
         .low = {attrs.real("low0", 0), attrs.real("low1", 0)},
         .high = {attrs.real("high0", 0), attrs.real("high1", 0)},
         .joint = attrs.integer("joint", 0) != 0,
         .nearest = attrs.text("interpolation", "bilinear") == "nearest",
         .fill_value = attrs.real("fill_value", 0),
         .stream = static_cast<uint64_t>(attrs.integer("stream"))};
  constexpr const char* kinds[] = {"flip", "crop", "rotation", "translation", "zoom"};
  for (size_t k = 0; k < std::size(kinds); ++k)
    if (attrs.text("kind") == kinds[k]) f.kind = static_cast<Kind>(k);
  constexpr const char* fills[] = {"reflect", "constant", "nearest", "wrap"};
  for (size_t k = 0; k < std::size(fills); ++k)
    if (attrs.text("fill_mode", "reflect") == fills[k]) f.fill = static_cast<FillMode>(k);
  f.nearest = f.nearest || f.kind == Kind::flip || f.kind == Kind::crop;
  return f;
}

// Row and column that the pixel (y, x) of the result is taken from: row = yy * y + yx * x + y0, ...
struct Affine {
  double yy = 1, yx = 0, y0 = 0, xy = 0, xx = 1, x0 = 0;
};

double unit(uint32_t word) { return (static_cast<double>(word) + 0.5) * 0x1p-32; }  // in (0, 1)

Affine affine_of(const Form& f, const StepParams& params, Dim sample) {
  const PhiloxKey key = philox_stream(params.seed, f.stream);
  const Dim index = f.kind == Kind::crop ? 0 : params.row_offset + sample;
  const PhiloxWords words =
      philox_block(key, static_cast<uint64_t>(params.step), static_cast<uint64_t>(index));
  auto drawn = [&](size_t i) { return f.low[i] + (f.high[i] - f.low[i]) * unit(words[i]); };
  const double middle_y = static_cast<double>(f.height - 1) / 2;
  const double middle_x = static_cast<double>(f.width - 1) / 2;
  Affine a;
  switch (f.kind) {
    case Kind::flip:
      if (unit(words[0]) > 0.5) break;
      if (f.high[0] > 0) a.xx = -1, a.x0 = static_cast<double>(f.width - 1);
      if (f.high[1] > 0) a.yy = -1, a.y0 = static_cast<double>(f.height - 1);
      break;
    case Kind::crop:
      a.y0 = std::floor(unit(words[0]) * static_cast<double>(f.height - f.tall + 1));
      a.x0 = std::floor(unit(words[1]) * static_cast<double>(f.width - f.wide + 1));
      break;
    case Kind::rotation: {
      const double angle = 2 * std::numbers::pi * drawn(0);
      a.yy = a.xx = std::cos(angle);
      a.yx = std::sin(angle);
      a.xy = -a.yx;
      a.x0 = middle_x - middle_x * a.xx - middle_y * a.xy;
      a.y0 = middle_y - middle_x * a.yx - middle_y * a.yy;
      break;
    }
    case Kind::translation:
      a.y0 = -drawn(0) * static_cast<double>(f.height);
      a.x0 = -drawn(1) * static_cast<double>(f.width);
      break;
    case Kind::zoom:
      a.yy = 1 + drawn(0);
      a.xx = f.joint ? a.yy : 1 + drawn(1);
      a.y0 = middle_y * (1 - a.yy);
      a.x0 = middle_x * (1 - a.xx);
      break;
  }
  return a;
}

// The pixel that stands for position `at` along an axis of `size`; -1: none does.
Dim inside(Dim at, Dim size, FillMode mode) {
  if (at >= 0 && at < size) return at;
  switch (mode) {
    case FillMode::constant:
      return -1;
    case FillMode::nearest:
      return std::clamp<Dim>(at, 0, size - 1);
    case FillMode::wrap:
      return (at % size + size) % size;
    default: {  // c b a | a b c | c b a
      const Dim turn = (at % (2 * size) + 2 * size) % (2 * size);
      return turn < size ? turn : 2 * size - 1 - turn;
    }
  }
}

// Calls body(pixel of the image or -1, share) for what (y, x) of the result is made of.
template <class Body>
void each_source(const Form& f, const Affine& a, Dim y, Dim x, const Body& body) {
  const auto dy = static_cast<double>(y), dx = static_cast<double>(x);
  const double row = a.yy * dy + a.yx * dx + a.y0, col = a.xy * dy + a.xx * dx + a.x0;
  auto pixel = [&](double at_row, double at_col) {
    const Dim r = inside(static_cast<Dim>(at_row), f.height, f.fill);
    const Dim c = inside(static_cast<Dim>(at_col), f.width, f.fill);
    return r < 0 || c < 0 ? -1 : r * f.width + c;
  };
  if (f.nearest) {  // halves away from zero
    body(pixel(std::round(row), std::round(col)), 1.0);
    return;
  }
  const double top = std::floor(row), left = std::floor(col);
  const double below = row - top, right = col - left;
  body(pixel(top, left), (1 - below) * (1 - right));
  body(pixel(top, left + 1), (1 - below) * right);
  body(pixel(top + 1, left), below * (1 - right));
  body(pixel(top + 1, left + 1), below * right);
}

template <class T>
void forward_image(const Form& f, const Affine& a, const T* x, T* y) {
  for (Dim oy = 0; oy < f.tall; ++oy)
    for (Dim ox = 0; ox < f.wide; ++ox, y += f.channels) {
      std::fill(y, y + f.channels, T(0));
      each_source(f, a, oy, ox, [&](Dim pixel, double share) {
        const T part = static_cast<T>(share), value = static_cast<T>(f.fill_value);
        if (part == T(0)) return;
        for (Dim c = 0; c < f.channels; ++c)
          y[c] += part * (pixel < 0 ? value : x[pixel * f.channels + c]);
      });
    }
}

template <class T>
void gradient_image(const Form& f, const Affine& a, const T* dy, T* dx) {
  std::fill(dx, dx + f.height * f.width * f.channels, T(0));
  for (Dim oy = 0; oy < f.tall; ++oy)
    for (Dim ox = 0; ox < f.wide; ++ox, dy += f.channels)
      each_source(f, a, oy, ox, [&](Dim pixel, double share) {
        if (pixel < 0 || share == 0) return;
        for (Dim c = 0; c < f.channels; ++c)
          dx[pixel * f.channels + c] += static_cast<T>(share) * dy[c];
      });
}

template <class T, class Each>
std::unique_ptr<Kernel> image_kernel(const Form& f, int threads, Each each) {
  return make_kernel([=](void* const* in, void* const* out, void*) {
    StepParams params;
    std::memcpy(&params, in[1], sizeof params);
    const Dim work = f.batch * f.tall * f.wide * f.channels * 8;
    parallel_ranges(threads, f.batch, work, [&](Dim begin, Dim end) {
      for (Dim b = begin; b < end; ++b)
        each(f, affine_of(f, params, b), static_cast<const T*>(in[0]), static_cast<T*>(out[0]), b);
    });
  });
}

}  // namespace

std::unique_ptr<Kernel> random_image_reference(const PrepareCall& call) {
  const Form f = form_of(call.in[0], call.attrs);
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return image_kernel<T>(f, call.backend.threads(),
                           [](const Form& g, const Affine& a, const T* x, T* y, Dim b) {
                             forward_image(g, a, x + b * g.height * g.width * g.channels,
                                           y + b * g.tall * g.wide * g.channels);
                           });
  });
}

std::unique_ptr<Kernel> random_image_gradient_reference(const PrepareCall& call) {
  const Form f = form_of(call.in[0], call.attrs);
  return dispatch_float(call.in[0].dtype, [&]<class T>() {
    return image_kernel<T>(f, call.backend.threads(),
                           [](const Form& g, const Affine& a, const T* dy, T* dx, Dim b) {
                             gradient_image(g, a, dy + b * g.tall * g.wide * g.channels,
                                            dx + b * g.height * g.width * g.channels);
                           });
  });
}

}  // namespace pl::cpu
