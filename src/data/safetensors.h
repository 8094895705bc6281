// Safetensors: the format of weights. The whole header is checked before anything is believed, and
// tensors are read from the file straight into place: nothing is held besides the table of entries.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/file.h"
#include "tensor/shape.h"

namespace pl {

using Metadata = std::vector<std::pair<std::string, std::string>>;

class SafetensorsFile {
 public:
  struct Entry {
    std::string name;
    Meta meta;
    ByteOffset offset = 0;  // from the start of the file
    Bytes bytes = 0;        // = meta.bytes(), known not to overflow
  };

  // Throws DataError for any file that breaks a rule of the format, or has a dtype we have not.
  explicit SafetensorsFile(const std::string& path);

  const std::string& path() const { return file_.path(); }
  const std::vector<Entry>& entries() const { return entries_; }  // in the order of their bytes
  const Metadata& metadata() const { return metadata_; }
  const Entry* find(std::string_view name) const;  // nullptr: no such tensor

  // Reads a tensor into `destination`, whose size must be the tensor's. Allocates nothing.
  void read(std::string_view name, void* destination, Bytes bytes) const;
  void read(const Entry& entry, void* destination, Bytes bytes) const;
  // Some bytes of a tensor, from `at` in it on.
  void read_part(const Entry& entry, ByteOffset at, void* destination, Bytes bytes) const;

 private:
  File file_;
  std::vector<Entry> entries_;
  std::vector<int> by_name_;  // indices of entries_, sorted by name
  Metadata metadata_;
};

struct NamedBytes {
  std::string name;
  Meta meta;
  const void* data = nullptr;  // host memory
};

// Writes the tensors in the given order, atomically; data begin at a multiple of 8 bytes.
void write_safetensors(const std::string& path, std::span<const NamedBytes> tensors,
                       const Metadata& metadata = {});

}  // namespace pl
