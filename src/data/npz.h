// NumPy's files: .npz archives and the .npy arrays in them. Arrays stay on disk: a stored member is
// read in place, a deflated one from its inflated copy (data/cache.h).
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/disk_array.h"
#include "data/zip.h"

namespace pl {

// The array of a .npy file, or of a part of a file that is one: versions 1 to 3, C order,
// little-endian numbers or booleans; never a pickled object. The data must fill the part exactly.
DiskArray open_npy(std::shared_ptr<const File> file, ByteOffset at, Bytes bytes,
                   const std::string& what);

class NpzFile {
 public:
  explicit NpzFile(const std::string& path);

  std::vector<std::string> names() const;  // of the arrays, without ".npy"
  bool has(std::string_view name) const { return find(name) != nullptr; }
  // Verifies the CRC (which reads the whole member). Throws DataError when there is no such array.
  DiskArray open(std::string_view name) const;

 private:
  const ZipMember* find(std::string_view name) const;

  std::shared_ptr<const File> file_;
  std::vector<ZipMember> members_;
};

}  // namespace pl
