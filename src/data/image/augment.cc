#include "data/image/augment.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numbers>

#include "base/error.h"
#include "data/image/image_rows.h"

namespace pl {

uint64_t Chance::bits() {
  state_ += 0x9E3779B97F4A7C15u;
  uint64_t z = state_;
  z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
  z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
  return z ^ (z >> 31);
}

double Chance::uniform(double low, double high) {
  return low + (high - low) * static_cast<double>(bits() >> 11) * 0x1p-53;
}

int64_t Chance::below(int64_t count) {
  check(count > 0, "a number below a positive one");
  return std::min(count - 1, static_cast<int64_t>(uniform() * static_cast<double>(count)));
}

double Chance::normal() {
  const double radius = std::sqrt(-2 * std::log(1 - uniform()));
  return radius * std::cos(2 * std::numbers::pi * uniform());
}

// Marsaglia and Tsang; shapes below one by way of the next one.
double Chance::gamma(double shape) {
  if (shape < 1) return gamma(shape + 1) * std::pow(1 - uniform(), 1 / shape);
  const double d = shape - 1.0 / 3, c = 1 / std::sqrt(9 * d);
  for (;;) {
    const double x = normal(), v = std::pow(1 + c * x, 3);
    if (v > 0 && std::log(1 - uniform()) < x * x / 2 + d - d * v + d * std::log(v)) return d * v;
  }
}

double Chance::beta(double alpha) {
  const double a = gamma(alpha), b = gamma(alpha);
  return a + b > 0 ? a / (a + b) : 0.5;
}

Tensor crop_image(const Tensor& image, int64_t top, int64_t left, ImageSize size) {
  const ImageFacts in = image_facts("crop_image", image);
  if (size.height <= 0 || size.width <= 0 || top < 0 || left < 0 || top > in.height - size.height ||
      left > in.width - size.width)
    throw UserError("[data] crop_image: expected a part of an image of " +
                    std::to_string(in.height) + "x" + std::to_string(in.width) +
                    " pixels, received " + std::to_string(size.height) + "x" +
                    std::to_string(size.width) + " at " + std::to_string(top) + ", " +
                    std::to_string(left) + "; resize or pad it first");
  const Tensor out = image_like(image, size);
  const auto row = static_cast<size_t>(size.width) * in.pixel;
  for (int64_t y = 0; y < size.height; ++y)
    std::memcpy(out.data_as<char>() + static_cast<size_t>(y) * row, in.at(image, top + y, left),
                row);
  return out;
}

Tensor center_crop(const Tensor& image, ImageSize size) {
  const ImageFacts in = image_facts("center_crop", image);
  return crop_image(image, (in.height - size.height) / 2, (in.width - size.width) / 2, size);
}

Tensor pad_image(const Tensor& image, int64_t border) {
  const ImageFacts in = image_facts("pad_image", image);
  if (border < 0 || border > (1 << 20))
    throw UserError("[data] pad_image: expected a border of 0 to 1048576 pixels, received " +
                    std::to_string(border));
  const Tensor out = image_like(image, {in.height + 2 * border, in.width + 2 * border});
  const auto row = static_cast<size_t>(in.width + 2 * border) * in.pixel;
  std::memset(out.data(), 0, static_cast<size_t>(out.meta().bytes()));
  for (int64_t y = 0; y < in.height; ++y)
    std::memcpy(out.data_as<char>() + static_cast<size_t>(y + border) * row +
                    static_cast<size_t>(border) * in.pixel,
                in.at(image, y, 0), static_cast<size_t>(in.width) * in.pixel);
  return out;
}

Tensor flip_up_down(const Tensor& image) {
  const ImageFacts in = image_facts("flip_up_down", image);
  const Tensor out = image_like(image, {in.height, in.width});
  const auto row = static_cast<size_t>(in.width) * in.pixel;
  for (int64_t y = 0; y < in.height; ++y)
    std::memcpy(out.data_as<char>() + static_cast<size_t>(y) * row,
                in.at(image, in.height - 1 - y, 0), row);
  return out;
}

Tensor flip_left_right(const Tensor& image) {
  const ImageFacts in = image_facts("flip_left_right", image);
  const Tensor out = image_like(image, {in.height, in.width});
  char* to = out.data_as<char>();
  for (int64_t y = 0; y < in.height; ++y) {
    const char* from = in.at(image, y, in.width - 1);
    for (int64_t x = 0; x < in.width; ++x, to += in.pixel, from -= in.pixel)
      std::memcpy(to, from, in.pixel);
  }
  return out;
}

Tensor rotate_image(const Tensor& image, double radians, double fill) {
  const ImageFacts in = image_facts("rotate_image", image);
  const Tensor out = image_like(image, {in.height, in.width});
  const double sine = std::sin(radians), cosine = std::cos(radians);
  const double middle_y = (static_cast<double>(in.height) - 1) / 2;
  const double middle_x = (static_cast<double>(in.width) - 1) / 2;
  with_pixels(image, [&]<class T>() {
    const T* from = image.data_as<T>();
    T* to = out.data_as<T>();
    const auto value = [&](int64_t y, int64_t x, int64_t c) {
      const bool inside = y >= 0 && y < in.height && x >= 0 && x < in.width;
      return inside ? static_cast<double>(from[(y * in.width + x) * in.channels + c]) : fill;
    };
    for (int64_t y = 0; y < in.height; ++y)
      for (int64_t x = 0; x < in.width; ++x) {
        const double dy = static_cast<double>(y) - middle_y, dx = static_cast<double>(x) - middle_x;
        const double sx = middle_x + cosine * dx - sine * dy,
                     sy = middle_y + sine * dx + cosine * dy;
        const double fy = std::floor(sy), fx = std::floor(sx), wy = sy - fy, wx = sx - fx;
        const auto iy = static_cast<int64_t>(fy), ix = static_cast<int64_t>(fx);
        for (int64_t c = 0; c < in.channels; ++c)
          *to++ =
              to_pixel<T>((1 - wy) * ((1 - wx) * value(iy, ix, c) + wx * value(iy, ix + 1, c)) +
                          wy * ((1 - wx) * value(iy + 1, ix, c) + wx * value(iy + 1, ix + 1, c)));
      }
  });
  return out;
}

Tensor random_crop(const Tensor& image, ImageSize size, Chance& chance) {
  const ImageFacts in = image_facts("random_crop", image);
  const int64_t top = in.height > size.height ? chance.below(in.height - size.height + 1) : 0;
  const int64_t left = in.width > size.width ? chance.below(in.width - size.width + 1) : 0;
  return crop_image(image, top, left, size);
}

ImageRegion random_region(ImageSize image, Chance& chance, const ResizedCropOptions& o) {
  const double area = static_cast<double>(image.height) * static_cast<double>(image.width);
  for (int attempt = 0; attempt < 10; ++attempt) {
    const double part = area * chance.uniform(o.scale[0], o.scale[1]);
    const double ratio = std::exp(chance.uniform(std::log(o.ratio[0]), std::log(o.ratio[1])));
    const auto width = static_cast<int64_t>(std::lround(std::sqrt(part * ratio)));
    const auto height = static_cast<int64_t>(std::lround(std::sqrt(part / ratio)));
    if (width < 1 || height < 1 || width > image.width || height > image.height) continue;
    const int64_t top = image.height > height ? chance.below(image.height - height + 1) : 0;
    const int64_t left = image.width > width ? chance.below(image.width - width + 1) : 0;
    return {top, left, {height, width}};
  }
  const int64_t edge = std::min(image.height, image.width);
  return {(image.height - edge) / 2, (image.width - edge) / 2, {edge, edge}};
}

Tensor random_resized_crop(const Tensor& image, ImageSize size, Chance& chance,
                           const ResizedCropOptions& o) {
  const ImageFacts in = image_facts("random_resized_crop", image);
  const ImageRegion part = random_region({in.height, in.width}, chance, o);
  return resize_image(crop_image(image, part.top, part.left, part.size), size, o.method,
                      o.antialias);
}

Tensor random_flip(const Tensor& image, Chance& chance) {
  return chance.uniform() < 0.5 ? flip_left_right(image) : image;
}

Tensor random_rotation(const Tensor& image, double most, Chance& chance, double fill) {
  return rotate_image(image, chance.uniform(-most, most), fill);
}

Tensor normalize_image(const Tensor& image, const std::vector<double>& mean,
                       const std::vector<double>& deviation) {
  const ImageFacts in = image_facts("normalize_image", image);
  const auto one_of = [&](const std::vector<double>& list, const char* name) {
    if (list.size() != 1 && static_cast<int64_t>(list.size()) != in.channels)
      throw UserError("[data] normalize_image " + std::string(name) + ": expected 1 or " +
                      std::to_string(in.channels) + " numbers, received " +
                      std::to_string(list.size()));
    return [&list](int64_t c) { return list[list.size() == 1 ? 0 : static_cast<size_t>(c)]; };
  };
  const auto means = one_of(mean, "mean"), deviations = one_of(deviation, "deviation");
  const Tensor out(Meta{Dtype::float32, image.shape()});
  with_pixels(image, [&]<class T>() {
    const T* from = image.data_as<T>();
    float* to = out.data_as<float>();
    const double unit = std::is_same_v<T, uint8_t> ? 255 : 1;
    for (int64_t c = 0; c < in.channels; ++c) {
      const auto scale = static_cast<float>(1 / (unit * deviations(c)));
      const auto shift = static_cast<float>(-means(c) / deviations(c));
      for (int64_t i = c; i < in.height * in.width * in.channels; i += in.channels)
        to[i] = static_cast<float>(from[i]) * scale + shift;
    }
  });
  return out;
}

}  // namespace pl
