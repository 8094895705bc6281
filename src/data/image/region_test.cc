// Parts of images: what is decoded of a part is what a crop of the whole would be.
#include <gtest/gtest.h>
// jpeglib.h wants FILE to be known.
#include <cstdio>

#include <jpeglib.h>

#include <cstring>

#include "data/image/encode_png.h"
#include "data/image/image.h"
#include "data/pipeline/testing.h"
#include "tests/data_files.h"

namespace pl::region_test {
namespace {

using test::TempFolder;
using test::write_bytes;

constexpr ImageSize kWhole{61, 83};

// Noise on a gradient, so that no two places are alike.
std::vector<uint8_t> noise() {
  std::vector<uint8_t> pixels;
  for (int64_t y = 0; y < kWhole.height; ++y)
    for (int64_t x = 0; x < kWhole.width; ++x)
      for (int64_t c = 0; c < 3; ++c)
        pixels.push_back(
            static_cast<uint8_t>((y * 3 + x * (c + 1) + (x * y * 7 + c * 31) % 23) % 256));
  return pixels;
}

// `samples`: of the luma for one of a colour, across and down.
std::string jpeg(const std::vector<uint8_t>& pixels, int samples, bool progressive) {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* out = nullptr;
  unsigned long size = 0;
  jpeg_mem_dest(&info, &out, &size);
  info.image_height = static_cast<JDIMENSION>(kWhole.height);
  info.image_width = static_cast<JDIMENSION>(kWhole.width);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  info.comp_info[0].h_samp_factor = info.comp_info[0].v_samp_factor = samples;
  if (progressive) jpeg_simple_progression(&info);
  jpeg_start_compress(&info, TRUE);
  for (int64_t y = 0; y < kWhole.height; ++y) {
    auto* row = const_cast<JSAMPROW>(pixels.data() + y * kWhole.width * 3);
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  std::string bytes(reinterpret_cast<char*>(out), size);
  jpeg_destroy_compress(&info);
  std::free(out);
  return bytes;
}

std::string bmp(const std::vector<uint8_t>& pixels) {
  std::string rows;
  for (int64_t y = kWhole.height; y-- > 0;) {
    for (int64_t x = 0; x < kWhole.width; ++x)
      for (int64_t c = 3; c-- > 0;)
        rows += static_cast<char>(pixels[static_cast<size_t>((y * kWhole.width + x) * 3 + c)]);
    rows.resize((rows.size() + 3) / 4 * 4);
  }
  using test::little;
  return "BM" + little(54 + rows.size(), 4) + little(0, 4) + little(54, 4) + little(40, 4) +
         little(kWhole.width, 4) + little(kWhole.height, 4) + little(1, 2) + little(24, 2) +
         little(0, 8) + little(0, 16) + rows;
}

std::vector<uint8_t> decoded(const std::string& path, const DecodeOptions& options) {
  std::vector<uint8_t> pixels(static_cast<size_t>(options.size.height * options.size.width * 3));
  decode_image(path, options, pixels.data());
  return pixels;
}

std::vector<uint8_t> crop(const std::vector<uint8_t>& whole, const ImageRegion& part) {
  std::vector<uint8_t> out;
  for (int64_t y = part.top; y < part.top + part.size.height; ++y) {
    const auto* row = whole.data() + (y * kWhole.width + part.left) * 3;
    out.insert(out.end(), row, row + part.size.width * 3);
  }
  return out;
}

TEST(Region, IsTheCropOfTheWhole) {
  const TempFolder folder;
  const std::vector<uint8_t> pixels = noise();
  const std::vector<std::string> files{jpeg(pixels, 1, false), jpeg(pixels, 2, false),
                                       jpeg(pixels, 2, true), encode_png(pixels.data(), kWhole, 3),
                                       bmp(pixels)};
  for (size_t i = 0; i < files.size(); ++i) {
    const std::string path = write_bytes(folder / "image", files[i]);
    const std::vector<uint8_t> whole = decoded(path, {.size = kWhole});
    for (const ImageRegion& part :
         {ImageRegion{0, 0, kWhole}, ImageRegion{0, 0, {1, 1}}, ImageRegion{60, 82, {1, 1}},
          ImageRegion{16, 32, {20, 17}}, ImageRegion{7, 15, {9, 50}}, ImageRegion{33, 0, {28, 83}},
          ImageRegion{17, 31, {44, 52}}, ImageRegion{59, 3, {2, 80}}})
      EXPECT_EQ(decoded(path, {.size = part.size, .region = [&](ImageSize) { return part; }}),
                crop(whole, part))
          << "file " << i << ", " << part.top << " " << part.left << " " << part.size.height << " "
          << part.size.width;
    test::expect_data_error(
        [&] {
          decoded(path, {.size = {4, 4}, .region = [](ImageSize) {
                           return ImageRegion{50, 0, {12, 10}};
                         }});
        },
        "expected a region within 61 x 83");
  }
}

TEST(Region, OfALargePhotographIsScaledWhileItIsDecoded) {
  const TempFolder folder;
  // A part of 56 x 48 to 7 x 6: an eighth, whose pixels are means of blocks.
  const std::string path = write_bytes(folder / "image", jpeg(noise(), 1, false));
  const std::vector<uint8_t> small = decoded(path, {.size = {7, 6}, .region = [](ImageSize) {
                                                      return ImageRegion{0, 32, {56, 48}};
                                                    }});
  const std::vector<uint8_t> whole = decoded(path, {.size = kWhole});
  for (int64_t y = 0; y < 7; ++y)
    for (int64_t x = 0; x < 6; ++x)
      for (int64_t c = 0; c < 3; ++c) {
        int64_t sum = 0;
        for (int64_t k = 0; k < 64; ++k)
          sum += whole[static_cast<size_t>(
              ((y * 8 + k / 8) * kWhole.width + 32 + x * 8 + k % 8) * 3 + c)];
        EXPECT_NEAR(small[static_cast<size_t>((y * 6 + x) * 3 + c)], static_cast<double>(sum) / 64,
                    8);
      }
}

TEST(Region, RandomCropsAreThoseOfTheFunctionAndChangeWithTheEpoch) {
  const TempFolder folder;
  const std::vector<uint8_t> pixels = noise();
  for (const char* name : {"a.png", "b.png"})
    write_bytes(folder / name, encode_png(pixels.data(), kWhole, 3));
  const Dataset data =
      image_dataset_from_directory(folder.path(), {.batch_size = 0,
                                                   .image_size = {16, 16},
                                                   .shuffle = false,
                                                   .random_crop = ResizedCropOptions{}});
  const auto first = [&](uint64_t epoch, int threads) {
    DatasetIterator iterator = data.with_options({.threads = threads}).iterate(epoch);
    const auto element = iterator.next();
    const auto* at = (*element)[0].data_as<uint8_t>();
    return std::vector<uint8_t>(at, at + 16 * 16 * 3);
  };
  EXPECT_EQ(first(0, 1), first(0, 3));
  EXPECT_NE(first(0, 1), first(1, 1));
  // The crop of the decoded image.
  Tensor image(Meta{Dtype::uint8, Shape{kWhole.height, kWhole.width, 3}});
  std::memcpy(image.data(), pixels.data(), pixels.size());
  Chance chance(random_key(0, 0, 0));
  const Tensor wanted = random_resized_crop(image, {16, 16}, chance);
  const std::vector<uint8_t> given = first(0, 1);
  for (size_t i = 0; i < given.size(); ++i)
    ASSERT_NEAR(given[i], wanted.data_as<uint8_t>()[i], 1) << i;
}

}  // namespace
}  // namespace pl::region_test
