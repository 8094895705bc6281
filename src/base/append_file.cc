#include "base/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/disk.h"
#include "base/error.h"
#include "base/file.h"

namespace pl {
void AppendFile::open(const std::string& path, Bytes keep) {
  close();
  path_ = path;
  // Opening a FIFO for writing alone would wait for a reader before it could be refused.
  fd_ = disk::create(path, O_RDWR | O_NONBLOCK | O_NOCTTY);
  struct stat status {};
  if (fd_ < 0 || ::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    const std::string received = fd_ < 0 ? reason_of(errno) : "no regular file";
    close();
    throw DataError("[file] " + path + ": expected a file that can be written, received '" +
                    received + "'; check the folder and its permissions");
  }
  size_ = std::min<Bytes>(status.st_size, std::max<Bytes>(keep, 0));
  if (status.st_size > size_ && disk::truncate(fd_, size_) != 0)
    throw DataError("[file] " + path + ": expected a file that can be cut, received '" +
                    reason_of(errno) + "'");
  sync_folder(folder_of(path));
}

void AppendFile::write(std::string_view piece) {
  check(is_open(), "a log that is open");
  const auto bytes = static_cast<Bytes>(piece.size());
  if (!disk::write(fd_, piece.data(), bytes, size_)) {
    const int error = errno;
    disk::truncate(fd_, size_);  // no part of a line stays
    throw BackendError("[file] " + path_ + ": expected the disk to take a line, received '" +
                       reason_of(error) + "'; free some space");
  }
  size_ += bytes;
}

void AppendFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace pl
