// Colours as tf.image changes them. Bytes go by way of numbers from 0 to 1, and back by truncating
// 255.5 times the number, which is TensorFlow's rounding.
#include <cmath>

#include "data/image/augment.h"
#include "data/image/image_rows.h"

namespace pl {
namespace {

template <class T>
float from_pixel(T value) {
  return std::is_same_v<T, uint8_t> ? static_cast<float>(value) * (1.0f / 255.0f)
                                    : static_cast<float>(value);
}
template <class T>
T to_color(float value) {
  if constexpr (std::is_same_v<T, uint8_t>)
    return static_cast<uint8_t>(std::clamp(value * 255.5f, 0.0f, 255.0f));
  else
    return value;
}

struct Rgb {
  float r, g, b;
};

ImageFacts color_facts(const char* function, const Tensor& image) {
  const ImageFacts in = image_facts(function, image);
  if (in.channels != 3)
    throw UserError("[data] " + std::string(function) + ": expected three channels, received " +
                    std::to_string(in.channels));
  return in;
}

// Every pixel through `change`.
template <class Change>
Tensor mapped(const char* function, const Tensor& image, const Change& change) {
  const ImageFacts in = color_facts(function, image);
  const Tensor out = image_like(image, {in.height, in.width});
  with_pixels(image, [&]<class T>() {
    const T* from = image.data_as<T>();
    T* to = out.data_as<T>();
    for (int64_t i = 0; i < in.height * in.width; ++i, from += 3, to += 3) {
      const Rgb made = change({from_pixel(from[0]), from_pixel(from[1]), from_pixel(from[2])});
      to[0] = to_color<T>(made.r), to[1] = to_color<T>(made.g), to[2] = to_color<T>(made.b);
    }
  });
  return out;
}

struct Hsv {
  float h, s, v;  // h of a circle of 1
};

Hsv to_hsv(const Rgb& p) {
  const float most = std::max({p.r, p.g, p.b}), least = std::min({p.r, p.g, p.b});
  const float range = most - least;
  Hsv hsv{0, most > 0 ? range / most : 0, most};
  if (range > 0) {
    const float unit = 1 / (6 * range);
    if (p.r == most)
      hsv.h = unit * (p.g - p.b);
    else if (p.g == most)
      hsv.h = unit * (p.b - p.r) + 2.0f / 6;
    else
      hsv.h = unit * (p.r - p.g) + 4.0f / 6;
    if (hsv.h < 0) hsv.h += 1;
  }
  return hsv;
}

Rgb to_rgb(const Hsv& p) {
  const auto part = [&](float shifted) { return std::clamp(shifted, 0.0f, 1.0f); };
  const float h = p.h * 6;
  const float r = part(std::fabs(h - 3) - 1), g = part(2 - std::fabs(h - 2)),
              b = part(2 - std::fabs(h - 4));
  return {((r - 1) * p.s + 1) * p.v, ((g - 1) * p.s + 1) * p.v, ((b - 1) * p.s + 1) * p.v};
}

}  // namespace

Tensor adjust_brightness(const Tensor& image, double delta) {
  const auto d = static_cast<float>(delta);
  return mapped("adjust_brightness", image, [&](const Rgb& p) {
    return Rgb{p.r + d, p.g + d, p.b + d};
  });
}

Tensor adjust_contrast(const Tensor& image, double factor) {
  const ImageFacts in = color_facts("adjust_contrast", image);
  const auto pixels = static_cast<double>(in.height * in.width);
  double sums[3] = {0, 0, 0};
  with_pixels(image, [&]<class T>() {
    const T* from = image.data_as<T>();
    for (int64_t i = 0; i < in.height * in.width; ++i)
      for (double& sum : sums) sum += static_cast<double>(from_pixel(*from++));
  });
  const auto f = static_cast<float>(factor);
  const Rgb mean{static_cast<float>(sums[0] / pixels), static_cast<float>(sums[1] / pixels),
                 static_cast<float>(sums[2] / pixels)};
  return mapped("adjust_contrast", image, [&](const Rgb& p) {
    return Rgb{(p.r - mean.r) * f + mean.r, (p.g - mean.g) * f + mean.g,
               (p.b - mean.b) * f + mean.b};
  });
}

Tensor adjust_saturation(const Tensor& image, double factor) {
  const auto f = static_cast<float>(factor);
  return mapped("adjust_saturation", image, [&](const Rgb& p) {
    Hsv hsv = to_hsv(p);
    hsv.s = std::clamp(hsv.s * f, 0.0f, 1.0f);
    return to_rgb(hsv);
  });
}

Tensor adjust_hue(const Tensor& image, double delta) {
  return mapped("adjust_hue", image, [&](const Rgb& p) {
    Hsv hsv = to_hsv(p);
    hsv.h = static_cast<float>(hsv.h + delta);
    hsv.h -= std::floor(hsv.h);
    return to_rgb(hsv);
  });
}

Tensor color_jitter(const Tensor& image, Chance& chance, const ColorJitterOptions& o) {
  Tensor out = image;
  if (o.brightness > 0) out = adjust_brightness(out, chance.uniform(-o.brightness, o.brightness));
  if (o.contrast > 0) out = adjust_contrast(out, chance.uniform(1 - o.contrast, 1 + o.contrast));
  if (o.saturation > 0)
    out = adjust_saturation(out, chance.uniform(1 - o.saturation, 1 + o.saturation));
  if (o.hue > 0) out = adjust_hue(out, chance.uniform(-o.hue, o.hue));
  return out;
}

}  // namespace pl
