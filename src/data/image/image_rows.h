// Images as tensors (H, W, C): what the functions of augment.h share.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/error.h"
#include "data/image/resize.h"
#include "tensor/tensor.h"

namespace pl {

struct ImageFacts {
  int64_t height, width, channels;
  size_t pixel;  // bytes

  const char* at(const Tensor& image, int64_t y, int64_t x) const {
    return image.data_as<char>() + static_cast<size_t>(y * width + x) * pixel;
  }
};

// Throws UserError unless it is (H, W, C), uint8 or float32, and not empty.
ImageFacts image_facts(const char* function, const Tensor& image);

inline Tensor image_like(const Tensor& image, ImageSize size) {
  return Tensor(Meta{image.dtype(), Shape{size.height, size.width, image.shape()[2]}});
}

// Calls `f` with the type of the image's numbers.
template <class F>
void with_pixels(const Tensor& image, const F& f) {
  if (image.dtype() == Dtype::uint8)
    f.template operator()<uint8_t>();
  else
    f.template operator()<float>();
}

// To nearest, within the range of the type.
template <class T>
T to_pixel(double value) {
  if constexpr (std::is_same_v<T, uint8_t>)
    return static_cast<uint8_t>(std::clamp(std::floor(value + 0.5), 0.0, 255.0));
  else
    return static_cast<float>(value);
}

}  // namespace pl
