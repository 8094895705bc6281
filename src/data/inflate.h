// Decompression in fixed buffers of 64 KiB: what it yields goes to a callback, piece by piece.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "base/error.h"
#include "base/file.h"

namespace pl {

enum class Compression : uint8_t { deflate, zlib, gzip };

// Deflate cannot expand a byte into more than this; whoever claims more lies.
inline constexpr int64_t kDeflateRatio = 1032;

// A compressed part of a file.
struct Section {
  ByteOffset offset = 0;
  Bytes bytes = 0;
  Compression compression = Compression::deflate;
};

// Inflates a section as its reader asks for bytes, from a buffer of 64 KiB.
class Inflater {
 public:
  // `what` names the data in messages.
  Inflater(const Section& section, std::string what);
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater();

  // Up to `bytes` of the section's file, fewer only at the end. Throws DataError for data that are
  // damaged or truncated, or end before the section does. Gzip may have several members; their
  // checksums are verified.
  Bytes read(const File& file, void* to, Bytes bytes);
  Bytes unread() const { return section_.bytes - consumed_; }  // of the section, compressed
  DataError damaged(const std::string& received) const;

 private:
  struct State;
  Section section_;
  std::string what_;
  Bytes consumed_ = 0;
  std::unique_ptr<State> state_;
};

// Gets one piece; false: enough, stop here.
using PieceCallback = std::function<bool(const void* data, Bytes bytes)>;

struct Inflated {
  Bytes bytes = 0;
  uint32_t crc = 0;  // CRC-32 of them
};

// The whole section; throws DataError also when it yields more than `most` bytes.
Inflated inflate_section(const File& file, const Section& section, Bytes most,
                         const std::string& what, const PieceCallback& piece);

// CRC-32 of a plain part of a file.
uint32_t crc_of(const File& file, ByteOffset offset, Bytes bytes);

}  // namespace pl
