#include "data/image/encode_png.h"

#include <zlib.h>

#include "base/error.h"

namespace pl {
namespace {

std::string big(uint64_t value) {
  std::string out;
  for (int shift = 24; shift >= 0; shift -= 8) out += static_cast<char>(value >> shift);
  return out;
}

std::string chunk(const std::string& kind, const std::string& data) {
  const std::string body = kind + data;
  const auto crc =
      crc32(0, reinterpret_cast<const Bytef*>(body.data()), static_cast<uInt>(body.size()));
  return big(data.size()) + body + big(crc);
}

}  // namespace

std::string encode_png(const uint8_t* pixels, ImageSize size, int channels) {
  check((channels == 1 || channels == 3) && size.height > 0 && size.width > 0 &&
            size.height < 1 << 16 && size.width < 1 << 16,
        "a grey or RGB image");
  const auto row = static_cast<size_t>(size.width * channels);
  std::string rows;
  rows.reserve((row + 1) * static_cast<size_t>(size.height));
  for (int64_t y = 0; y < size.height; ++y) {
    rows += '\0';  // no filter
    rows.append(reinterpret_cast<const char*>(pixels) + static_cast<size_t>(y) * row, row);
  }
  uLongf bytes = compressBound(rows.size());
  std::string packed(bytes, '\0');
  const int status = compress2(reinterpret_cast<Bytef*>(packed.data()), &bytes,
                               reinterpret_cast<const Bytef*>(rows.data()), rows.size(), 6);
  check(status == Z_OK, "room for what zlib makes");
  packed.resize(bytes);
  const std::string header = big(static_cast<uint64_t>(size.width)) +
                             big(static_cast<uint64_t>(size.height)) + '\x08' +
                             (channels == 3 ? '\x02' : '\0') + std::string(3, '\0');
  return "\x89PNG\r\n\x1a\n" + chunk("IHDR", header) + chunk("IDAT", packed) + chunk("IEND", "");
}

std::string base64(const std::string& bytes) {
  static const char* const kSigns =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < bytes.size(); i += 3) {
    uint32_t three = 0;
    for (size_t k = 0; k < 3; ++k)
      three = three << 8 | (i + k < bytes.size() ? static_cast<unsigned char>(bytes[i + k]) : 0u);
    for (size_t k = 0; k < 4; ++k)
      out += i + k <= bytes.size() ? kSigns[three >> (18 - 6 * k) & 63] : '=';
  }
  return out;
}

}  // namespace pl
