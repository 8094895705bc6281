// Decompression in fixed buffers of 64 KiB: what it yields goes to a callback, piece by piece.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "base/file.h"

namespace pl {

enum class Compression : uint8_t { deflate, gzip };

// Deflate cannot expand a byte into more than this; whoever claims more lies.
inline constexpr int64_t kDeflateRatio = 1032;

// A compressed part of a file.
struct Section {
  ByteOffset offset = 0;
  Bytes bytes = 0;
  Compression compression = Compression::deflate;
};

// Gets one piece; false: enough, stop here.
using PieceCallback = std::function<bool(const void* data, Bytes bytes)>;

struct Inflated {
  Bytes bytes = 0;
  uint32_t crc = 0;  // CRC-32 of them
};

// Throws DataError naming `what` when the data are damaged or truncated, yield more than `most`
// bytes, or end before the section does. Gzip may have several members; their checksums are
// verified.
Inflated inflate_section(const File& file, const Section& section, Bytes most,
                         const std::string& what, const PieceCallback& piece);

// CRC-32 of a plain part of a file.
uint32_t crc_of(const File& file, ByteOffset offset, Bytes bytes);

}  // namespace pl
