// Inflated copies: a compressed source is decompressed once to a file and then read by offset, so
// that samples stay on disk and cost no resident memory.
#pragma once

#include <optional>
#include <string>

#include "data/inflate.h"

namespace pl {

// The inflated bytes of a section as a file. It lies in base/cache_folder.h, keyed by the source's
// path, size, time and checksum, or, where that folder cannot take it, in an unlinked temporary
// file. The size must be known: `bytes` from a header. Throws DataError when the data do not have
// this size or `crc`, or claim to expand more than deflate can; BackendError when no disk has room.
File inflated_copy(const File& source, const Section& section, Bytes bytes,
                   std::optional<uint32_t> crc, const std::string& what);

}  // namespace pl
