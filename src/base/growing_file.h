// A file that is written and read back at any place, and goes with the object: it has no name, or
// one that is removed. It may be given one when it is whole.
#pragma once

#include <string>

#include "base/bytes.h"

namespace pl {

class GrowingFile {
 public:
  // In a folder that exists. Throws UserError when it cannot be written, with `what` in front.
  GrowingFile(const std::string& folder, std::string what);
  GrowingFile(const GrowingFile&) = delete;
  GrowingFile& operator=(const GrowingFile&) = delete;
  ~GrowingFile();

  // Throws BackendError when the disk is full; RLIMIT_FSIZE is no signal but an error too.
  void write(const void* data, Bytes bytes, ByteOffset at);
  // Several threads may read. Throws BackendError for what was not written.
  void read(void* to, Bytes bytes, ByteOffset at) const;
  // To the disk, and then under this name in the same folder, in one step: who looks there sees
  // what was before or all of it.
  void publish(const std::string& path);

 private:
  int fd_ = -1;
  std::string what_;
  std::string name_;  // a temporary one; empty: none
};

}  // namespace pl
