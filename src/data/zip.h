// Zip archives, as much as .npz files need: stored and deflated members, zip64. The central
// directory and every local header are checked when the archive is opened; nothing is inflated
// here.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "base/file.h"

namespace pl {

struct ZipMember {
  std::string name;
  bool deflated = false;
  ByteOffset header_at = 0, data_at = 0;
  Bytes compressed = 0, uncompressed = 0;  // equal unless deflated
  uint32_t crc = 0;
};

// The members in directory order. Throws DataError for encrypted, split, commented or
// self-extracting archives, other methods, members that overlap or lie outside, and names that
// occur twice.
std::vector<ZipMember> read_zip_directory(const File& file);

}  // namespace pl
