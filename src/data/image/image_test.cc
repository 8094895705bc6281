// Decoders and resize: against references, and against damaged files.
#include "data/image/image.h"

#include <gtest/gtest.h>
// jpeglib.h wants FILE to be known.
#include <cstdio>

#include <jpeglib.h>
#include <png.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "tests/data_files.h"
#include "tests/image_files.h"
#include "tests/messages.h"

namespace pl::image_test {
namespace {

namespace fs = std::filesystem;
using test::gradient;
using test::jpeg;
using test::message_of;
using test::Pixels;
using test::TempFolder;
using test::write_bytes;

// What libjpeg says at full size.
Pixels plain_decode(const std::string& bytes) {
  jpeg_decompress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_decompress(&info);
  jpeg_mem_src(&info, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
  jpeg_read_header(&info, TRUE);
  info.out_color_space = JCS_RGB;
  jpeg_start_decompress(&info);
  Pixels pixels(size_t{3} * info.output_width * info.output_height);
  while (info.output_scanline < info.output_height) {
    JSAMPROW row = pixels.data() + size_t{3} * info.output_width * info.output_scanline;
    jpeg_read_scanlines(&info, &row, 1);
  }
  jpeg_finish_decompress(&info);
  jpeg_destroy_decompress(&info);
  return pixels;
}

std::string png(const Pixels& pixels, int64_t height, int64_t width, int color, bool interlaced,
                int depth = 8) {
  png_structp out = png_create_write_struct(PNG_LIBPNG_VER_STRING, nullptr, nullptr, nullptr);
  png_infop info = png_create_info_struct(out);
  std::string bytes;
  png_set_write_fn(
      out, &bytes,
      [](png_structp to, png_bytep data, size_t count) {
        static_cast<std::string*>(png_get_io_ptr(to))->append(reinterpret_cast<char*>(data), count);
      },
      nullptr);
  png_set_IHDR(out, info, static_cast<png_uint_32>(width), static_cast<png_uint_32>(height), depth,
               color, interlaced ? PNG_INTERLACE_ADAM7 : PNG_INTERLACE_NONE,
               PNG_COMPRESSION_TYPE_DEFAULT, PNG_FILTER_TYPE_DEFAULT);
  png_write_info(out, info);
  const size_t row = pixels.size() / static_cast<size_t>(height);
  std::vector<png_bytep> rows;
  for (int64_t y = 0; y < height; ++y)
    rows.push_back(const_cast<uint8_t*>(pixels.data()) + static_cast<size_t>(y) * row);
  png_write_image(out, rows.data());
  png_write_end(out, info);
  png_destroy_write_struct(&out, &info);
  return bytes;
}

Pixels decode(const std::string& path, int64_t height, int64_t width, Bytes scratch = 4 * kMiB) {
  Pixels pixels(static_cast<size_t>(height * width * 3));
  decode_image(path, {.size = {height, width}, .scratch = scratch}, pixels.data());
  return pixels;
}

int largest_difference(const Pixels& a, const Pixels& b) {
  int most = a.size() == b.size() ? 0 : 999;
  for (size_t i = 0; i < a.size() && most < 999; ++i) most = std::max(most, std::abs(a[i] - b[i]));
  return most;
}

// Both directions at once in double precision.
Pixels reference_resize(const Pixels& in, ImageSize from, ImageSize to, bool antialias) {
  const auto weights = [&](int64_t o, int64_t n, int64_t m) {
    const double scale = static_cast<double>(n) / static_cast<double>(m);
    const double reach = antialias ? std::max(1.0, scale) : 1.0;
    std::vector<double> list(static_cast<size_t>(n));
    double sum = 0;
    for (int64_t i = 0; i < n; ++i)
      sum += list[static_cast<size_t>(i)] = std::max(
          0.0, 1 - std::abs(static_cast<double>(i) + 0.5 - (static_cast<double>(o) + 0.5) * scale) /
                       reach);
    for (double& weight : list) weight /= sum;
    return list;
  };
  Pixels out;
  for (int64_t y = 0; y < to.height; ++y) {
    const auto down = weights(y, from.height, to.height);
    for (int64_t x = 0; x < to.width; ++x) {
      const auto across = weights(x, from.width, to.width);
      for (int64_t c = 0; c < 3; ++c) {
        double sum = 0;
        for (int64_t i = 0; i < from.height; ++i)
          for (int64_t j = 0; j < from.width; ++j)
            sum += down[static_cast<size_t>(i)] * across[static_cast<size_t>(j)] *
                   in[static_cast<size_t>((i * from.width + j) * 3 + c)];
        out.push_back(static_cast<uint8_t>(std::floor(sum + 0.5)));
      }
    }
  }
  return out;
}

TEST(Resize, IsTheWeightedSumOfPixels) {
  for (const bool antialias : {true, false})
    for (const auto& [from, to] : std::vector<std::pair<ImageSize, ImageSize>>{{{37, 50}, {11, 13}},
                                                                               {{8, 9}, {8, 9}},
                                                                               {{5, 4}, {17, 23}},
                                                                               {{1, 1}, {3, 2}},
                                                                               {{40, 3}, {1, 7}}}) {
      Pixels in(static_cast<size_t>(from.height * from.width * 3));
      for (size_t i = 0; i < in.size(); ++i) in[i] = static_cast<uint8_t>(i * 2654435761u >> 13);
      Pixels out(static_cast<size_t>(to.height * to.width * 3));
      RowResizer resizer(from, to, antialias, out.data());
      Pixels row(static_cast<size_t>(from.width * 4));
      for (int64_t y = 0; y < from.height; ++y) {
        for (int64_t x = 0; x < from.width * 3; ++x)
          row[static_cast<size_t>(x / 3 * 4 + x % 3)] =
              in[static_cast<size_t>(y * from.width * 3 + x)];
        resizer.add_row(row.data());
      }
      EXPECT_EQ(resizer.rows_done(), to.height);
      EXPECT_LE(largest_difference(out, reference_resize(in, from, to, antialias)), 1);
      if (from == to) {
        EXPECT_EQ(out, in);
      }
    }
}

TEST(Jpeg, AtItsOwnSizeIsWhatTheLibrarySays) {
  const TempFolder folder;
  for (const bool progressive : {false, true}) {
    const std::string bytes = jpeg(gradient(75, 101), 75, 101, 3, progressive);
    write_bytes(folder / "a.jpg", bytes);
    EXPECT_EQ(decode(folder / "a.jpg", 75, 101), plain_decode(bytes));
    EXPECT_EQ(image_header(folder / "a.jpg").size, (ImageSize{75, 101}));
  }
  write_bytes(folder / "grey.jpg", jpeg(gradient(20, 30, 1), 20, 30, 1));
  const Pixels grey = decode(folder / "grey.jpg", 20, 30);
  for (size_t i = 0; i < grey.size(); i += 3)
    EXPECT_TRUE(grey[i] == grey[i + 1] && grey[i] == grey[i + 2]);
}

TEST(Jpeg, LargeOnesAreScaledWhileTheyAreDecoded) {
  const TempFolder folder;
  const std::string bytes = jpeg(gradient(128, 160), 128, 160);
  write_bytes(folder / "a.jpg", bytes);
  const Pixels whole = plain_decode(bytes);
  for (const auto& [height, width] : {std::pair{16, 20}, {32, 40}, {33, 60}}) {
    const Pixels wanted = reference_resize(whole, {128, 160}, {height, width}, true);
    EXPECT_LE(largest_difference(decode(folder / "a.jpg", height, width), wanted), 4) << height;
  }
}

// An eighth of a plain file is the means of its blocks, which are read by code of our own.
TEST(Jpeg, AnEighthIsTheMeansOfBlocks) {
  const TempFolder folder;
  const int64_t height = 203, width = 301;  // means 26 x 38, of colours 13 x 19
  struct Case {
    int channels, across, down, restart;
  };
  for (const Case& c : std::vector<Case>{{3, 2, 2, 0},
                                         {3, 1, 1, 0},
                                         {3, 2, 1, 7},
                                         {3, 1, 2, 1},
                                         {1, 1, 1, 0},
                                         {1, 2, 2, 5},
                                         {3, 2, 2, 2}}) {
    const std::string bytes = jpeg(gradient(height, width, c.channels), height, width, c.channels,
                                   false, c.across, c.down, c.restart);
    write_bytes(folder / "a.jpg", bytes);
    const Pixels got = decode(folder / "a.jpg", 14, 20);
    const Pixels wanted = reference_resize(plain_decode(bytes), {height, width}, {14, 20}, true);
    double sum = 0;
    for (size_t i = 0; i < got.size(); ++i) sum += std::abs(got[i] - wanted[i]);
    EXPECT_LE(largest_difference(got, wanted), 5) << c.channels << c.across << c.down << c.restart;
    EXPECT_LE(sum / static_cast<double>(got.size()), 1.0) << c.across << c.down << c.restart;
    // Whatever is missing at its end is missed.
    for (size_t cut = 3; cut < bytes.size(); cut += bytes.size() / 9) {
      write_bytes(folder / "cut.jpg", bytes.substr(0, bytes.size() - cut));
      EXPECT_NE(message_of([&] { decode(folder / "cut.jpg", 14, 20); }).find("cut.jpg: "),
                std::string::npos)
          << cut << " of " << bytes.size();
    }
  }
}

// Tables are named by four bits, of which there are four.
TEST(Jpeg, TablesThatCannotBeAreRefused) {
  const TempFolder folder;
  std::string bytes = jpeg(gradient(203, 301), 203, 301);
  const size_t scan = bytes.find("\xFF\xDA");
  ASSERT_NE(scan, std::string::npos);
  bytes[scan + 6] = '\xBC';  // of the first component, behind marker, length, count and name
  write_bytes(folder / "a.jpg", bytes);
  for (const int64_t size : {14, 60, 203})
    EXPECT_NE(message_of([&] { decode(folder / "a.jpg", size, size); }).find("a.jpg: "),
              std::string::npos);
}

// Colours are stored at half size and go to the target from there; the library makes them as large
// as the picture first. Where colours are smooth that is the same, and on the whole nearly so.
TEST(Jpeg, SmallerOnesAreNearWhatTheLibrarySays) {
  const TempFolder folder;
  const int64_t height = 75, width = 101;
  Pixels rough = gradient(height, width);
  for (size_t i = 0; i < rough.size(); ++i)
    rough[i] = static_cast<uint8_t>(std::clamp<int>(
        rough[i] + static_cast<int>((i / 3 * 2654435761u >> 20) % 41) - 20, 0, 255));
  for (const bool progressive : {false, true})
    for (const bool smooth : {true, false}) {
      const std::string bytes =
          jpeg(smooth ? gradient(height, width) : rough, height, width, 3, progressive);
      write_bytes(folder / "a.jpg", bytes);
      const Pixels got = decode(folder / "a.jpg", 48, 60);
      const Pixels wanted = reference_resize(plain_decode(bytes), {height, width}, {48, 60}, true);
      double sum = 0;
      for (size_t i = 0; i < got.size(); ++i) sum += std::abs(got[i] - wanted[i]);
      EXPECT_LE(sum / static_cast<double>(got.size()), smooth ? 0.5 : 1.0);
      EXPECT_LE(largest_difference(got, wanted), smooth ? 3 : 12);
    }
}

TEST(Png, RowsComeBackAsTheyWere) {
  const TempFolder folder;
  const Pixels pixels = gradient(33, 47);
  for (const bool interlaced : {false, true}) {
    write_bytes(folder / "a.png", png(pixels, 33, 47, PNG_COLOR_TYPE_RGB, interlaced));
    EXPECT_EQ(decode(folder / "a.png", 33, 47), pixels) << interlaced;
  }
  Pixels rgba, wide;
  for (size_t i = 0; i < pixels.size(); i += 3) {
    for (size_t c = 0; c < 3; ++c) rgba.push_back(pixels[i + c]);
    rgba.push_back(static_cast<uint8_t>(i));  // dropped
  }
  for (uint8_t value : pixels) wide.insert(wide.end(), {value, value});
  write_bytes(folder / "b.png", png(rgba, 33, 47, PNG_COLOR_TYPE_RGB_ALPHA, false));
  EXPECT_EQ(decode(folder / "b.png", 33, 47), pixels);
  write_bytes(folder / "c.png", png(wide, 33, 47, PNG_COLOR_TYPE_RGB, false, 16));
  EXPECT_EQ(decode(folder / "c.png", 33, 47), pixels);
  write_bytes(folder / "d.png", png(gradient(33, 47, 1), 33, 47, PNG_COLOR_TYPE_GRAY, true));
  EXPECT_EQ(decode(folder / "d.png", 33, 47)[47 * 3 * 5 + 7 * 3 + 2],
            gradient(33, 47, 1)[47 * 5 + 7]);
}

TEST(Image, IsReadAtItsOwnSize) {
  const TempFolder folder;
  const Pixels pixels = gradient(7, 9);
  const std::string path = folder / "a.png", bytes = png(pixels, 7, 9, PNG_COLOR_TYPE_RGB, false);
  write_bytes(path, bytes);
  const Tensor image = read_image(path);
  EXPECT_EQ(image.shape(), (Shape{7, 9, 3}));
  EXPECT_TRUE(std::equal(pixels.begin(), pixels.end(), image.data_as<uint8_t>()));
  Tensor file(Meta{Dtype::uint8, Shape{static_cast<Dim>(bytes.size())}});
  std::memcpy(file.data(), bytes.data(), bytes.size());
  EXPECT_EQ(read_image(file).shape(), image.shape());
  EXPECT_THROW(read_image(path, 100), DataError);
  EXPECT_THROW(read_image(folder / "b.png"), DataError);
}

TEST(Image, TheFirstBytesDecideNotTheName) {
  const TempFolder folder;
  const Pixels pixels = gradient(8, 8);
  write_bytes(folder / "lies.jpg", png(pixels, 8, 8, PNG_COLOR_TYPE_RGB, false));
  EXPECT_EQ(decode(folder / "lies.jpg", 8, 8), pixels);
  EXPECT_EQ(image_header(folder / "lies.jpg").kind, ImageKind::png);
}

TEST(Image, DamageIsADataErrorWithTheName) {
  const TempFolder folder;
  const std::string whole = jpeg(gradient(200, 300), 200, 300);
  const std::string rows = png(gradient(64, 64), 64, 64, PNG_COLOR_TYPE_RGB, false);
  const std::vector<std::pair<std::string, std::string>> cases{
      {"half.jpg", whole.substr(0, whole.size() / 2)},
      {"head.jpg", whole.substr(0, 20)},
      {"half.png", rows.substr(0, rows.size() / 2)},
      {"empty.jpg", ""},
      {"text.png", "no image at all"},
      {"magic.png", rows.substr(0, 8)},
  };
  for (const auto& [name, bytes] : cases) {
    write_bytes(folder / name, bytes);
    const std::string message = message_of([&] { decode(folder / name, 32, 32); });
    EXPECT_NE(message.find(name + ": "), std::string::npos) << name << " " << message;
  }
  EXPECT_NE(message_of([&] { decode(folder / "absent.jpg", 8, 8); }).find("absent.jpg"),
            std::string::npos);
}

// A header of a few bytes that promises 60,000 x 60,000 pixels.
TEST(Image, BombsAreRefusedFromTheHeader) {
  const TempFolder folder;
  std::string bomb = png(gradient(4, 4), 4, 4, PNG_COLOR_TYPE_RGB, false);
  const auto patch = [&](size_t at, uint32_t value) {
    for (int b = 0; b < 4; ++b)
      bomb[at + static_cast<size_t>(b)] = static_cast<char>(value >> (24 - 8 * b));
  };
  patch(16, 60'000);
  patch(20, 60'000);
  patch(29, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bomb.data()) + 12, 17)));
  write_bytes(folder / "bomb.png", bomb);
  EXPECT_NE(
      message_of([&] { decode(folder / "bomb.png", 8, 8); }).find("pixels, received 60000 x 60000"),
      std::string::npos);
  // Fewer pixels, but never those of so few bytes.
  bomb = png(gradient(4, 4), 4, 4, PNG_COLOR_TYPE_RGB, true);
  patch(16, 16'000);
  patch(20, 16'000);
  patch(29, static_cast<uint32_t>(crc32(0, reinterpret_cast<const Bytef*>(bomb.data()) + 12, 17)));
  std::filesystem::create_directories(folder / "class");
  write_bytes(folder / "class/lie.png", bomb);
  EXPECT_NE(message_of([&] {
              image_sources(folder / "class", {8, 8}, 1);
            }).find("hold its pixels"),
            std::string::npos);
  // Interlaced and progressive images are held whole, and charged before.
  write_bytes(folder / "held.png", png(gradient(300, 300), 300, 300, PNG_COLOR_TYPE_RGB, true));
  EXPECT_NE(
      message_of([&] { decode(folder / "held.png", 8, 8, 400 * kKiB); }).find("raise scratch"),
      std::string::npos);
  write_bytes(folder / "held.jpg", jpeg(gradient(600, 600), 600, 600, 3, true));
  EXPECT_NE(
      message_of([&] { decode(folder / "held.jpg", 8, 8, 500 * kKiB); }).find("raise scratch"),
      std::string::npos);
}

TEST(Image, ScratchIsFromTheBudget) {
  const TempFolder folder;
  std::filesystem::create_directories(folder / "a");
  write_bytes(folder / "a/1.jpg", jpeg(gradient(1500, 2000), 1500, 2000, 3, true));
  const Dataset images =
      image_dataset_from_directory(folder / "a", {.batch_size = 1, .image_size = {32, 32}});
  const auto read = [&](const char* memory) {
    const auto one = images.with_options({.memory = memory, .threads = 1}).iterate().next();
    EXPECT_TRUE(one.has_value());
  };
  read("512MiB");
  const std::string message = message_of([&] { read("64MiB"); });
  const size_t at = message.find("memory to ");
  ASSERT_NE(at, std::string::npos) << message;
  const std::string enough = message.substr(at + 10, message.find(',', at) - at - 10);
  read(enough.c_str());  // what it says helps
  const Dataset fixed = image_dataset_from_directory(
      folder / "a", {.batch_size = 1, .image_size = {32, 32}, .scratch = 4 * kMiB});
  EXPECT_THROW(fixed.with_options({.memory = "512MiB"}).iterate().next(), DataError);
}

TEST(Image, MutatedFilesNeverCrash) {
  const TempFolder folder;
  const std::vector<std::string> seeds{
      jpeg(gradient(60, 60), 60, 60), jpeg(gradient(40, 40), 40, 40, 3, true),
      png(gradient(30, 30), 30, 30, PNG_COLOR_TYPE_RGB, false),
      png(gradient(30, 30), 30, 30, PNG_COLOR_TYPE_RGB_ALPHA & 2, true)};
  uint64_t state = 1;
  const auto random = [&](size_t below) {
    state = state * 6364136223846793005u + 1442695040888963407u;
    return static_cast<size_t>(state >> 33) % below;
  };
  int refused = 0;
  for (int i = 0; i < 600; ++i) {
    std::string bytes = seeds[random(seeds.size())];
    for (size_t k = 1 + random(4); k > 0; --k)
      bytes[random(bytes.size())] ^= static_cast<char>(1 + random(255));
    if (random(4) == 0) bytes.resize(1 + random(bytes.size()));
    write_bytes(folder / "x", bytes);
    try {
      const int64_t size = i % 2 ? 16 : 3;  // all ways of decoding
      decode(folder / "x", size, size);
    } catch (const DataError&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 50);
}

}  // namespace
}  // namespace pl::image_test
