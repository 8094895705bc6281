// Kinds of JPEG and PNG, each with Pillow's pixels (tests/golden/image_kinds.py).
#include <gtest/gtest.h>

#include "data/image/image.h"
#include "tests/data_files.h"

namespace pl::image_kinds_test {
namespace {

std::string bytes_of(const Tensor& tensor) {
  return {tensor.data_as<const char>(), static_cast<size_t>(tensor.meta().bytes())};
}

TEST(ImageKinds, HavePillowsPixels) {
  int kinds = 0;
  for (const auto& entry : std::filesystem::directory_iterator(test::golden_file("kinds"))) {
    const std::string path = entry.path().string();
    if (path.ends_with(".rgb")) continue;
    ++kinds;
    const std::string wanted = test::read_bytes(path + ".rgb");
    const Tensor image = read_image(path);
    ASSERT_EQ(image.shape(), (Shape{13, 19, 3})) << path;
    EXPECT_EQ(bytes_of(image), wanted) << path;
    // A part of it has the pixels that the whole has there.
    const Tensor part = crop_image(image, 4, 5, {6, 7});
    Tensor alone(Meta{Dtype::uint8, Shape{6, 7, 3}});
    decode_image(path,
                 {.size = {6, 7},
                  .region =
                      [](ImageSize) {
                        return ImageRegion{4, 5, {6, 7}};
                      }},
                 alone.data_as<uint8_t>());
    EXPECT_EQ(bytes_of(alone), bytes_of(part)) << path;
    // What it becomes when it is made smaller is near what the pixels become.
    const Tensor small = resize_image(image, {5, 7}, ResizeMethod::bilinear, true);
    Tensor decoded(Meta{Dtype::uint8, Shape{5, 7, 3}});
    decode_image(path, {.size = {5, 7}}, decoded.data_as<uint8_t>());
    double sum = 0;
    for (int64_t i = 0; i < decoded.shape().elements(); ++i)
      sum += std::abs(decoded.data_as<uint8_t>()[i] - small.data_as<uint8_t>()[i]);
    EXPECT_LT(sum / static_cast<double>(decoded.shape().elements()), 10) << path;
  }
  EXPECT_EQ(kinds, 19);
}

}  // namespace
}  // namespace pl::image_kinds_test
