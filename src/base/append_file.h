// A file that grows by whole pieces: logs of a run. What a run that ended early had written beyond
// its last checkpoint is cut off when the run goes on.
#pragma once

#include <string>
#include <string_view>

#include "base/bytes.h"

namespace pl {

class AppendFile {
 public:
  AppendFile() = default;
  AppendFile(const AppendFile&) = delete;
  AppendFile& operator=(const AppendFile&) = delete;
  ~AppendFile() { close(); }

  // Opens or makes it and keeps its first bytes, as many as there are up to `keep`; 0: it starts
  // empty. Its name is durable. Throws DataError when it cannot be written.
  void open(const std::string& path, Bytes keep);
  bool is_open() const { return fd_ >= 0; }
  // To the system at once. Throws BackendError when the disk is full; nothing of it stays then.
  void write(std::string_view piece);
  Bytes size() const { return size_; }
  const std::string& path() const { return path_; }
  void close();

 private:
  int fd_ = -1;
  Bytes size_ = 0;
  std::string path_;
};

}  // namespace pl
