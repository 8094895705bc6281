// What pipelines do to images: (H, W, C) tensors, uint8 or float32, as functions for Dataset::map
// and map_random. Numbers are tf.image's. The random ones are functions of the number they are
// given, so that a resumed run sees the same images.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "data/image/resize.h"
#include "data/pipeline/spec.h"

namespace pl {

// Random numbers out of the one that map_random gives.
class Chance {
 public:
  explicit Chance(uint64_t seed) : state_(seed) {}
  uint64_t bits();
  double uniform(double low = 0, double high = 1);  // low <= x < high
  int64_t below(int64_t count);                     // 0 <= i < count
  double beta(double alpha);                        // Beta(alpha, alpha)

 private:
  double normal();
  double gamma(double shape);

  uint64_t state_;
};

// ---- shape

enum class ResizeMethod : uint8_t { bilinear, area, bicubic };
// Pixels have their centre at one half. antialias widens the filter where the image shrinks.
Tensor resize_image(const Tensor& image, ImageSize size,
                    ResizeMethod method = ResizeMethod::bilinear, bool antialias = false);
Tensor crop_image(const Tensor& image, int64_t top, int64_t left, ImageSize size);
Tensor center_crop(const Tensor& image, ImageSize size);
Tensor pad_image(const Tensor& image, int64_t border);  // zeros on all sides
Tensor flip_left_right(const Tensor& image);
Tensor flip_up_down(const Tensor& image);
// By so many radians against the clock around the middle, between pixels linearly; what comes from
// outside is `fill`.
Tensor rotate_image(const Tensor& image, double radians, double fill = 0);

Tensor random_crop(const Tensor& image, ImageSize size, Chance& chance);
// Inception's: a part of the image with `scale` of its area and a ratio of width to height within
// `ratio`, resized.
struct ResizedCropOptions {
  std::array<double, 2> scale{0.08, 1.0}, ratio{0.75, 4.0 / 3};
  ResizeMethod method = ResizeMethod::bilinear;
  bool antialias = true;
};
// The part alone.
ImageRegion random_region(ImageSize image, Chance& chance, const ResizedCropOptions& options = {});
Tensor random_resized_crop(const Tensor& image, ImageSize size, Chance& chance,
                           const ResizedCropOptions& options = {});
Tensor random_flip(const Tensor& image, Chance& chance);  // left and right, every other time
Tensor random_rotation(const Tensor& image, double most_radians, Chance& chance, double fill = 0);

// ---- colour: three channels; uint8 from 0 to 255, float32 from 0 to 1

Tensor adjust_brightness(const Tensor& image, double delta);  // of the range, as tf.image has it
Tensor adjust_contrast(const Tensor& image, double factor);   // around each channel's mean
Tensor adjust_saturation(const Tensor& image, double factor);
Tensor adjust_hue(const Tensor& image, double delta);  // of the whole circle
struct ColorJitterOptions {
  double brightness = 0.2, contrast = 0.2, saturation = 0.2, hue = 0.02;
};
Tensor color_jitter(const Tensor& image, Chance& chance, const ColorJitterOptions& options = {});

// float32: (x / 255 - mean) / deviation, x as it is if it is float32 already. One number for all
// channels or one for each.
Tensor normalize_image(const Tensor& image, const std::vector<double>& mean,
                       const std::vector<double>& deviation);

// ---- batches: x (B, H, W, C), y integers (B,) or float32 (B, classes). The result's x has x's
// dtype, its y is float32 (B, classes).

// Each image with a share of another one of the batch, the labels likewise; the share is
// Beta(alpha, alpha)'s.
Element mixup(const Element& batch, int64_t classes, Chance& chance, double alpha = 0.2);
// Each image with a rectangle of another one.
Element cutmix(const Element& batch, int64_t classes, Chance& chance, double alpha = 1.0);

}  // namespace pl
