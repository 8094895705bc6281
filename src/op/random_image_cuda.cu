// CUDA kernels of random_image: a thread for each element of the result. The gradient has a thread
// for each channel of an image, which walks over the result in order: few threads, one order.
#include "op/cuda/device-inl.cuh"
#include "op/cuda/kernels.h"

namespace pl::cuda {
namespace {

enum class ImageKind : uint8_t { flip, crop, rotation, translation, zoom };
enum class ImageFill : uint8_t { reflect, constant, nearest, wrap };

struct ImageForm {
  ImageKind kind = ImageKind::flip;
  ImageFill fill = ImageFill::reflect;
  int64_t batch, height, width, channels, tall, wide;
  double low[2], high[2];
  bool joint, nearest;
  double fill_value;
  uint64_t stream;
};

ImageForm image_form(const Meta& images, const Attrs& attrs) {
  const auto &from = attrs.list("from"), &size = attrs.list("size");
  ImageForm f{.batch = images.shape[0],
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
    if (attrs.text("kind") == kinds[k]) f.kind = static_cast<ImageKind>(k);
  constexpr const char* fills[] = {"reflect", "constant", "nearest", "wrap"};
  for (size_t k = 0; k < std::size(fills); ++k)
    if (attrs.text("fill_mode", "reflect") == fills[k]) f.fill = static_cast<ImageFill>(k);
  f.nearest = f.nearest || f.kind == ImageKind::flip || f.kind == ImageKind::crop;
  return f;
}

struct ImageAffine {
  double yy = 1, yx = 0, y0 = 0, xy = 0, xx = 1, x0 = 0;
};

__device__ ImageAffine affine_of(const ImageForm& f, const StepParams* params, int64_t sample) {
  const int64_t index = f.kind == ImageKind::crop ? 0 : params->row_offset + sample;
  const uint4 words =
      stream_block(stream_key(params->seed, f.stream), static_cast<uint64_t>(params->step),
                   static_cast<uint64_t>(index));
  const double u[2] = {unit_of(words.x), unit_of(words.y)};
  auto drawn = [&](int i) { return f.low[i] + (f.high[i] - f.low[i]) * u[i]; };
  const double middle_y = static_cast<double>(f.height - 1) / 2;
  const double middle_x = static_cast<double>(f.width - 1) / 2;
  ImageAffine a;
  switch (f.kind) {
    case ImageKind::flip:
      if (u[0] > 0.5) break;
      if (f.high[0] > 0) a.xx = -1, a.x0 = static_cast<double>(f.width - 1);
      if (f.high[1] > 0) a.yy = -1, a.y0 = static_cast<double>(f.height - 1);
      break;
    case ImageKind::crop:
      a.y0 = floor(u[0] * static_cast<double>(f.height - f.tall + 1));
      a.x0 = floor(u[1] * static_cast<double>(f.width - f.wide + 1));
      break;
    case ImageKind::rotation: {
      const double angle = 6.283185307179586 * drawn(0);
      a.yy = a.xx = cos(angle);
      a.yx = sin(angle);
      a.xy = -a.yx;
      a.x0 = middle_x - middle_x * a.xx - middle_y * a.xy;
      a.y0 = middle_y - middle_x * a.yx - middle_y * a.yy;
      break;
    }
    case ImageKind::translation:
      a.y0 = -drawn(0) * static_cast<double>(f.height);
      a.x0 = -drawn(1) * static_cast<double>(f.width);
      break;
    case ImageKind::zoom:
      a.yy = 1 + drawn(0);
      a.xx = f.joint ? a.yy : 1 + drawn(1);
      a.y0 = middle_y * (1 - a.yy);
      a.x0 = middle_x * (1 - a.xx);
      break;
  }
  return a;
}

__device__ int64_t image_inside(int64_t at, int64_t size, ImageFill mode) {
  if (at >= 0 && at < size) return at;
  switch (mode) {
    case ImageFill::constant:
      return -1;
    case ImageFill::nearest:
      return min(max(at, int64_t{0}), size - 1);
    case ImageFill::wrap:
      return (at % size + size) % size;
    default: {
      const int64_t turn = (at % (2 * size) + 2 * size) % (2 * size);
      return turn < size ? turn : 2 * size - 1 - turn;
    }
  }
}

template <class Body>
__device__ void each_image_source(const ImageForm& f, const ImageAffine& a, int64_t y, int64_t x,
                                  Body body) {
  const auto dy = static_cast<double>(y), dx = static_cast<double>(x);
  // Rounded after each operation, as on the CPU: halves must fall to the same side.
  const double row = __dadd_rn(__dadd_rn(__dmul_rn(a.yy, dy), __dmul_rn(a.yx, dx)), a.y0);
  const double col = __dadd_rn(__dadd_rn(__dmul_rn(a.xy, dy), __dmul_rn(a.xx, dx)), a.x0);
  auto pixel = [&](double at_row, double at_col) -> int64_t {
    const int64_t r = image_inside(static_cast<int64_t>(at_row), f.height, f.fill);
    const int64_t c = image_inside(static_cast<int64_t>(at_col), f.width, f.fill);
    return r < 0 || c < 0 ? -1 : r * f.width + c;
  };
  if (f.nearest) return body(pixel(round(row), round(col)), 1.0);
  const double top = floor(row), left = floor(col), below = row - top, right = col - left;
  body(pixel(top, left), (1 - below) * (1 - right));
  body(pixel(top, left + 1), (1 - below) * right);
  body(pixel(top + 1, left), below * (1 - right));
  body(pixel(top + 1, left + 1), below * right);
}

template <class T>
__global__ void image_elements(ImageForm f, const T* x, T* y, const StepParams* params,
                               int64_t total) {
  using W = Wide<T>;
  for (int64_t i = thread_index(); i < total; i += thread_count()) {
    const int64_t c = i % f.channels, pixel = i / f.channels, b = pixel / f.wide / f.tall;
    const T* image = x + b * f.height * f.width * f.channels;
    W sum = 0;
    each_image_source(f, affine_of(f, params, b), pixel / f.wide % f.tall, pixel % f.wide,
                      [&](int64_t from, double share) {
                        const W part = static_cast<W>(share);
                        if (part != W(0))
                          sum += part * (from < 0 ? static_cast<W>(f.fill_value)
                                                  : widen(image[from * f.channels + c]));
                      });
    y[i] = static_cast<T>(sum);
  }
}

// Sums of 16-bit floats are kept in workspace (as dx), in what they are computed in.
template <class T>
__global__ void image_gradient_channels(ImageForm f, const T* dy, Wide<T>* dx,
                                        const StepParams* params) {
  using W = Wide<T>;
  for (int64_t i = thread_index(); i < f.batch * f.channels; i += thread_count()) {
    const int64_t c = i % f.channels, b = i / f.channels;
    W* image = dx + b * f.height * f.width * f.channels;
    const T* from = dy + b * f.tall * f.wide * f.channels;
    for (int64_t p = 0; p < f.height * f.width; ++p) image[p * f.channels + c] = W(0);
    const ImageAffine a = affine_of(f, params, b);
    for (int64_t p = 0; p < f.tall * f.wide; ++p)
      each_image_source(f, a, p / f.wide, p % f.wide, [&](int64_t to, double share) {
        if (to >= 0 && share != 0)
          image[to * f.channels + c] += static_cast<W>(share) * widen(from[p * f.channels + c]);
      });
  }
}
template <class T>
__global__ void narrow_elements(const Wide<T>* x, T* y, int64_t total) {
  for (int64_t i = thread_index(); i < total; i += thread_count()) y[i] = static_cast<T>(x[i]);
}

}  // namespace

std::unique_ptr<Kernel> random_image(const PrepareCall& call) {
  const ImageForm f = image_form(call.in[0], call.attrs);
  const int64_t total = call.out[0].elements();
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    return make_kernel(call, [=](const Launch& launch, void* const* in, void* const* out, char*) {
      if (total > 0)
        image_elements<T><<<launch.blocks(total, 128), 128, 0, launch.stream>>>(
            f, input<T>(in, 0), output<T>(out, 0), input<StepParams>(in, 1), total);
    });
  });
}

std::unique_ptr<Kernel> random_image_gradient(const PrepareCall& call) {
  const ImageForm f = image_form(call.in[0], call.attrs);
  const int64_t total = call.out[0].elements();
  return dispatch_real(call.in[0].dtype, [&]<class T>() {
    using W = Wide<T>;
    return make_kernel(
        call,
        [=](const Launch& launch, void* const* in, void* const* out, char* workspace) {
          if (total == 0) return;
          W* sums =
              sizeof(W) == sizeof(T) ? static_cast<W*>(out[0]) : reinterpret_cast<W*>(workspace);
          image_gradient_channels<T>
              <<<launch.blocks(f.batch * f.channels, 32), 32, 0, launch.stream>>>(
                  f, input<T>(in, 0), sums, input<StepParams>(in, 1));
          if constexpr (sizeof(W) != sizeof(T))
            narrow_elements<T><<<launch.blocks(total, 256), 256, 0, launch.stream>>>(
                sums, output<T>(out, 0), total);
        },
        sizeof(W) == sizeof(T) ? 0 : total * static_cast<Bytes>(sizeof(W)));
  });
}

}  // namespace pl::cuda
