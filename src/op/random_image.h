// random_image: each image flipped, cropped, turned, moved or zoomed at random; and the gradient,
// which sends each pixel back where it came from. What is done to an image is a pure function of
// seed, step, stream and the image's index in the *full* batch.
#pragma once

#include <array>
#include <string>

#include "op/op.h"

namespace pl {

extern const Op kRandomImage;
extern const Op kRandomImageGradient;

struct RandomImageOptions {
  // "flip": first[1] > 0: left to right, second[1] > 0: upside down, both together, half of the
  // time. "crop": to `size`, at one place for the whole batch. "rotation": by a part of a turn in
  // `first`. "translation": down by a part of the height in `first`, right by one of the width in
  // `second`. "zoom": 1 + a number in `first` times the height is seen, and the same for the width
  // with `second`, or with the same number where `joint`.
  std::string kind = "flip";
  std::array<double, 2> first = {0, 0}, second = {0, 0};
  bool joint = false;
  std::array<Dim, 2> size = {};       // of the result; 0: as the images
  std::string fill_mode = "reflect";  // or "constant", "nearest", "wrap"
  double fill_value = 0;
  std::string interpolation = "bilinear";  // or "nearest"
};

// x (B, H, W, C). Result (B, size[0], size[1], C).
Tensor random_image(const Tensor& x, const Tensor& step_params, int64_t stream,
                    const RandomImageOptions& options);

namespace cpu {
std::unique_ptr<Kernel> random_image_reference(const PrepareCall&);
std::unique_ptr<Kernel> random_image_gradient_reference(const PrepareCall&);
}  // namespace cpu

}  // namespace pl
