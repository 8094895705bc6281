// BMP: files that Pillow wrote (tests/golden/bitmaps.py), hand-made ones of other kinds, damaged
// ones.
#include <gtest/gtest.h>

#include <array>

#include "data/image/image.h"
#include "tests/data_files.h"

namespace pl::bmp_test {
namespace {

using test::little;
using test::TempFolder;
using test::write_bytes;
using Pixel = std::array<int, 3>;

// Without a resize: the file's pixels.
std::vector<Pixel> pixels(const std::string& path, ImageSize size) {
  std::vector<uint8_t> bytes(static_cast<size_t>(size.height * size.width * 3));
  decode_image(path, {.size = size}, bytes.data());
  std::vector<Pixel> list;
  for (size_t i = 0; i < bytes.size(); i += 3)
    list.push_back({bytes[i], bytes[i + 1], bytes[i + 2]});
  return list;
}

// Bits a pixel, compression, signed height, the rest of the header, palette, and the rows.
std::string bmp(int bits, int compression, int width, int height, const std::string& rest,
                const std::string& rows) {
  const std::string header = little(40, 4) + little(static_cast<uint32_t>(width), 4) +
                             little(static_cast<uint32_t>(height), 4) + little(1, 2) +
                             little(static_cast<uint64_t>(bits), 2) +
                             little(static_cast<uint64_t>(compression), 4) + little(0, 12) +
                             little(0, 8) + rest;
  const uint64_t at = 14 + header.size();
  return "BM" + little(at + rows.size(), 4) + little(0, 4) + little(at, 4) + header + rows;
}

TEST(Bmp, AsPillowWritesThem) {
  const auto color = [](int i) { return Pixel{i * 3 % 256, i * 5 % 256, i * 7 % 256}; };
  for (const std::string mode : {"1", "L", "P", "RGB", "RGBA"}) {
    const std::string path = test::golden_file("formats/pillow_" + mode + ".bmp");
    EXPECT_EQ(image_header(path).kind, ImageKind::bmp);
    EXPECT_EQ(image_header(path).size, (ImageSize{5, 7}));
    std::vector<Pixel> expected;
    for (int y = 0; y < 5; ++y)
      for (int x = 0; x < 7; ++x) {
        const int i = (x * 31 + y * 17) % 256, bit = (x + y) % 2 * 255;
        expected.push_back(mode == "1"   ? Pixel{bit, bit, bit}
                           : mode == "L" ? Pixel{i, i, i}
                                         : color(i));
      }
    EXPECT_EQ(pixels(path, {5, 7}), expected) << mode;
  }
}

TEST(Bmp, FieldsOfBitsNibblesAndRowsFromTheTop) {
  const TempFolder folder;
  const std::string path = folder / "some.jpg";  // names lie
  // 16 bits: 5, 5 and 5 by default, 5, 6 and 5 by their masks.
  write_bytes(path, bmp(16, 0, 2, 1, "", little(0x7C00, 2) + little(0x3E0 | 0x10, 2)));
  EXPECT_EQ(pixels(path, {1, 2}), (std::vector<Pixel>{{255, 0, 0}, {0, 255, 132}}));
  const std::string masks = little(0xF800, 4) + little(0x7E0, 4) + little(0x1F, 4);
  write_bytes(path, bmp(16, 3, 1, 2, masks,
                        little(0x7E0, 2) + little(0, 2) + little(0xF81F, 2) + little(0, 2)));
  EXPECT_EQ(pixels(path, {2, 1}), (std::vector<Pixel>{{255, 0, 255}, {0, 255, 0}}));
  // From the top, four bits a pixel.
  std::string palette;
  for (uint64_t i = 0; i < 16; ++i) palette += little(i * 0x010203, 4);
  write_bytes(path, bmp(4, 0, 3, -2, palette, std::string("\x12\x30\0\0\xF0\x40\0\0", 8)));
  EXPECT_EQ(
      pixels(path, {2, 3}),
      (std::vector<Pixel>{{1, 2, 3}, {2, 4, 6}, {3, 6, 9}, {15, 30, 45}, {0, 0, 0}, {4, 8, 12}}));
}

TEST(Bmp, DamageIsNamed) {
  const TempFolder folder;
  const std::string path = folder / "broken.bmp";
  const auto refused = [&](const std::string& bytes, const char* part) {
    write_bytes(path, bytes);
    test::expect_data_error([&] { pixels(path, {2, 2}); }, part);
    test::expect_data_error([&] { pixels(path, {2, 2}); }, "broken.bmp");
  };
  const std::string rows(64, 'x'), good = bmp(24, 0, 4, 4, "", rows.substr(0, 48));
  write_bytes(path, good);
  EXPECT_EQ(pixels(path, {2, 2}).size(), 4u);
  for (size_t length = 2; length < good.size(); ++length)
    refused(good.substr(0, length), length < 54 ? "" : "the file ends in the middle");
  refused(bmp(24, 0, 2000000000, 2000000000, "", rows), "pixels");
  refused(bmp(24, 0, 0, 4, "", rows), "pixels");
  refused(bmp(24, 0, 4, INT32_MIN, "", rows), "pixels");
  refused(bmp(8, 1, 4, 4, "", rows), "without compression");
  refused(bmp(7, 0, 4, 4, "", rows), "bits a pixel");
  refused(bmp(16, 3, 2, 2, little(0x5, 4) + little(0, 8), rows), "neighbouring bits");
  // A header that promises more than memory may hold is refused before anything is allocated.
  refused(bmp(24, 0, 19999, 19999, "", rows), "");
}

}  // namespace
}  // namespace pl::bmp_test
