// Tar archives: where each file in one lies, from its headers alone. POSIX ustar and pax, GNU's
// long names and sizes. Nothing is unpacked, so a name is only a name; one that points outside the
// archive is refused all the same.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "base/file.h"
#include "data/on_error.h"

namespace pl {

struct TarEntry {
  std::string name;
  ByteOffset at = 0;
  Bytes bytes = 0;
  std::string damage = {};  // not empty: it cannot be read, and why
};

// The regular files in order. DataError for a wrong checksum, a name that is absolute or has "..",
// sizes beyond the file, links (their data lie elsewhere) and devices; with OnError::skip each is
// an entry with its damage. What lies behind a header that cannot be read is not found.
std::vector<TarEntry> index_tar(const File& file, OnError on_error = OnError::stop);

// WebDataset's samples: neighbours that share a name up to the first dot of its last part. The rest
// of the name says which part of the sample it is: "images/0001.jpg" is key "images/0001", part
// "jpg".
struct TarSample {
  std::string key;
  std::vector<TarEntry> parts;  // named by their parts: "jpg", "cls", "seg.png"
  std::string damage = {};      // not empty: it cannot be read, and why
};
// DataError, or a sample with its damage, for an entry that has some, and for one that comes again.
std::vector<TarSample> group_tar(const std::vector<TarEntry>& entries, const std::string& path,
                                 OnError on_error = OnError::stop);

}  // namespace pl
