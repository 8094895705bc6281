#include "base/append_file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <system_error>

#include "base/error.h"
#include "base/file.h"

namespace pl {
void AppendFile::open(const std::string& path, Bytes keep) {
  close();
  path_ = path;
  // Opening a FIFO for writing alone would wait for a reader before it could be refused.
  fd_ = ::open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NONBLOCK | O_NOCTTY, 0666);
  struct stat status {};
  if (fd_ < 0 || ::fstat(fd_, &status) != 0 || !S_ISREG(status.st_mode)) {
    const std::string received = fd_ < 0 ? reason_of(errno) : "no regular file";
    close();
    throw DataError("[file] " + path + ": expected a file that can be written, received '" +
                    received + "'; check the folder and its permissions");
  }
  size_ = std::min<Bytes>(status.st_size, std::max<Bytes>(keep, 0));
  if (::ftruncate(fd_, size_) != 0 || ::lseek(fd_, 0, SEEK_END) < 0)
    throw DataError("[file] " + path + ": expected a file that can be cut, received '" +
                    reason_of(errno) + "'");
}

void AppendFile::write(std::string_view piece) {
  check(is_open(), "a log that is open");
  while (!piece.empty()) {
    const ssize_t put = ::write(fd_, piece.data(), piece.size());
    if (put < 0 && errno == EINTR) continue;
    if (put < 0)
      throw BackendError("[file] " + path_ + ": expected the disk to take a line, received '" +
                         reason_of(errno) + "'; free some space");
    piece.remove_prefix(static_cast<size_t>(put));
    size_ += put;
  }
}

void AppendFile::close() {
  if (fd_ >= 0) ::close(fd_);
  fd_ = -1;
}

}  // namespace pl
