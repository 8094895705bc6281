// What encode_png writes is what the decoder reads.
#include "data/image/encode_png.h"

#include <gtest/gtest.h>

#include "data/image/image.h"
#include "tests/data_files.h"

namespace pl::encode_png_test {
namespace {

TEST(EncodePng, IsReadBack) {
  const test::TempFolder folder;
  for (const int channels : {1, 3}) {
    std::vector<uint8_t> pixels;
    for (int i = 0; i < 6 * 5 * channels; ++i) pixels.push_back(static_cast<uint8_t>(i * 7));
    const std::string path =
        test::write_bytes(folder / "a.png", encode_png(pixels.data(), {6, 5}, channels));
    EXPECT_EQ(image_header(path).size, (ImageSize{6, 5}));
    std::vector<uint8_t> back(6 * 5 * 3);
    decode_image(path, {.size = {6, 5}}, back.data());
    for (size_t i = 0; i < back.size(); ++i)
      EXPECT_EQ(back[i], pixels[channels == 3 ? i : i / 3]) << i;
  }
}

TEST(EncodePng, Base64AsInTheStandard) {
  EXPECT_EQ(base64(""), "");
  EXPECT_EQ(base64("f"), "Zg==");
  EXPECT_EQ(base64("fo"), "Zm8=");
  EXPECT_EQ(base64("foo"), "Zm9v");
  EXPECT_EQ(base64("foobar"), "Zm9vYmFy");
  EXPECT_EQ(base64("\xff\xfe\xfd\xfc"), "//79/A==");
}

}  // namespace
}  // namespace pl::encode_png_test
