// BMP: rows at places that can be computed, so that any is read by its number. 1, 4, 8, 16, 24 and
// 32 bits a pixel, palettes and bit fields; no run lengths, as nobody writes them.
#include <algorithm>
#include <array>
#include <bit>
#include <vector>

#include "base/error.h"
#include "data/byte_reader.h"
#include "data/image/codecs.h"

namespace pl {
namespace {

constexpr size_t kFileHeader = 14;

// Bits of a pixel that are one colour, widened or narrowed to a byte.
struct Channel {
  uint32_t mask = 0;
  int shift = 0;
  uint32_t most = 0;

  Channel() = default;
  explicit Channel(uint32_t bits) : mask(bits), shift(bits ? std::countr_zero(bits) : 0) {
    most = mask >> shift;
  }
  uint8_t of(uint32_t pixel) const {
    const uint64_t value = (pixel & mask) >> shift;
    return most == 0 ? 0 : static_cast<uint8_t>((value * 255 + most / 2) / most);
  }
};

struct Bmp {
  ImageSize size;
  bool top_down = false;
  int bits = 0;
  ByteOffset pixels_at = 0;
  Bytes row_bytes = 0;
  std::array<Channel, 3> channels;  // of 16 and 32 bits
  std::vector<uint8_t> palette;     // (256, 3), of up to 8 bits
};

void read_masks(Bmp& bmp, const ImageInput& file, uint32_t compression, std::string_view rest) {
  std::array<uint32_t, 3> masks = bmp.bits == 16 ? std::array<uint32_t, 3>{0x7C00, 0x3E0, 0x1F}
                                                 : std::array<uint32_t, 3>{0xFF0000, 0xFF00, 0xFF};
  if (compression != 0) {
    ByteReader reader(rest, file.path());
    for (uint32_t& mask : masks) mask = reader.u32();
  }
  for (size_t c = 0; c < 3; ++c) {
    bmp.channels[c] = Channel(masks[c]);
    const uint32_t most = bmp.channels[c].most;
    if ((most & (most + 1)) != 0 || (bmp.bits == 16 && masks[c] > 0xFFFF))
      refuse_image(file, "expected bit fields of neighbouring bits, received others");
  }
}

// `colors` entries of `bytes` each, blue first; those that are not there are black.
void read_palette(Bmp& bmp, const ImageInput& file, ByteOffset at, uint32_t colors, Bytes bytes) {
  const uint32_t most = 1u << bmp.bits;
  colors = colors == 0 ? most : std::min(colors, most);
  std::array<uint8_t, 4 * 256> entries{};
  const Bytes room = std::max<Bytes>(0, bmp.pixels_at - at);
  file.read_some(entries.data(), std::min<Bytes>(room, bytes * colors), at);
  bmp.palette.assign(3 * 256, 0);
  for (size_t i = 0; i < colors; ++i)
    for (size_t c = 0; c < 3; ++c)
      bmp.palette[3 * i + c] = entries[static_cast<size_t>(bytes) * i + 2 - c];
}

Bmp read_header(const ImageInput& file) {
  // The file's header, the longest of the others, and three masks.
  char raw[kFileHeader + 124 + 12] = {};
  const Bytes got = file.read_some(raw, sizeof(raw), 0);
  const std::string_view bytes(raw, static_cast<size_t>(std::max<Bytes>(got, 0)));
  ByteReader reader(bytes, file.path());
  reader.take(10);
  Bmp bmp;
  bmp.pixels_at = reader.u32();
  const uint32_t header = reader.u32();
  int64_t width = 0, height = 0;
  uint32_t compression = 0, colors = 0;
  if (header == 12) {
    width = reader.u16();
    height = reader.u16();
    reader.take(2);
    bmp.bits = reader.u16();
  } else if (header >= 40 && header <= 124) {
    width = static_cast<int32_t>(reader.u32());
    height = static_cast<int32_t>(reader.u32());
    reader.take(2);
    bmp.bits = reader.u16();
    compression = reader.u32();
    reader.take(12);
    colors = reader.u32();
  } else {
    refuse_image(file, "expected a header of 12 or 40 to 124 bytes, received one of " +
                           std::to_string(header));
  }
  bmp.top_down = height < 0;
  if (bmp.top_down) height = -height;
  check_pixels(file, height, width);
  bmp.size = {height, width};
  const bool wide = bmp.bits == 16 || bmp.bits == 32;
  const bool fields = wide && (compression == 3 || compression == 6);
  const bool known = bmp.bits == 1 || bmp.bits == 4 || bmp.bits == 8 || bmp.bits == 24 || wide;
  if (!known || (compression != 0 && !fields))
    refuse_image(file,
                 "expected 1, 4, 8, 16, 24 or 32 bits a pixel without compression, received " +
                     std::to_string(bmp.bits) + " of kind " + std::to_string(compression));
  if (wide)
    read_masks(bmp, file, compression, bytes.substr(std::min(bytes.size(), kFileHeader + 40)));
  if (bmp.bits <= 8)
    read_palette(bmp, file, static_cast<ByteOffset>(kFileHeader + header), colors,
                 header == 12 ? 3 : 4);
  bmp.row_bytes = (width * bmp.bits + 31) / 32 * 4;
  return bmp;
}

// One row of pixels to RGBX.
void unpack_row(const Bmp& bmp, const uint8_t* row, uint8_t* to) {
  for (int64_t x = 0; x < bmp.size.width; ++x, to += 4) {
    to[3] = 255;
    if (bmp.bits == 24) {
      for (int c = 0; c < 3; ++c) to[c] = row[3 * x + 2 - c];
    } else if (bmp.bits <= 8) {
      const int64_t bit = x * bmp.bits;
      const int index = row[bit / 8] >> (8 - bmp.bits - bit % 8) & ((1 << bmp.bits) - 1);
      for (int c = 0; c < 3; ++c) to[c] = bmp.palette[static_cast<size_t>(3 * index + c)];
    } else {
      uint32_t pixel = 0;
      for (int b = bmp.bits / 8; b-- > 0;) pixel = pixel << 8 | row[bmp.bits / 8 * x + b];
      for (size_t c = 0; c < 3; ++c) to[c] = bmp.channels[c].of(pixel);
    }
  }
}

Bytes scratch_of(const Bmp& bmp, ImageSize wanted) {
  return bmp.row_bytes + bmp.size.width * 4 + 4 * kKiB + RowResizer::bytes(bmp.size, wanted);
}

}  // namespace

ImageSize bmp_size(const ImageInput& file) { return read_header(file).size; }

Bytes bmp_scratch(const ImageInput& file, ImageSize size) {
  return scratch_of(read_header(file), size);
}

void decode_bmp(const ImageInput& file, const DecodeOptions& options, uint8_t* to) {
  const Bmp bmp = read_header(file);
  const Bytes needed = scratch_of(bmp, options.size);
  check_scratch(file, needed, options);
  const HeapCharge charge(needed, "[image] " + file.path());
  const ImageRegion part = region_of(file, bmp.size, options);
  RowResizer resizer(part.size, options.size, options.antialias, to);
  std::vector<uint8_t> row(static_cast<size_t>(bmp.row_bytes)),
      pixels(static_cast<size_t>(bmp.size.width * 4));
  for (int64_t y = part.top; y < part.top + part.size.height; ++y) {
    const int64_t stored = bmp.top_down ? y : bmp.size.height - 1 - y;
    const ByteOffset at = bmp.pixels_at + stored * bmp.row_bytes;
    if (file.read_some(row.data(), bmp.row_bytes, at) != bmp.row_bytes)
      refuse_image(file, "the file ends in the middle");
    unpack_row(bmp, row.data(), pixels.data());
    resizer.add_row(pixels.data() + part.left * 4);
  }
}

}  // namespace pl
