#include "base/file.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <sys/uio.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <system_error>

#include "base/error.h"

namespace pl {
std::string reason_of(int error) { return std::generic_category().message(error); }

File File::open(const std::string& path) {
  // Without O_NONBLOCK, opening a FIFO would wait for a writer before we could refuse it.
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0)
    throw DataError("[file] " + path + ": expected a readable file, received '" + reason_of(errno) +
                    "'; check the path and its permissions");
  return adopt(fd, path);
}

File File::adopt(int fd, std::string path) {
  File file;
  file.fd_ = fd;
  file.path_ = std::move(path);
  struct stat status {};
  if (::fstat(fd, &status) != 0)
    throw DataError("[file] " + file.path_ + ": expected a readable file, received '" +
                    reason_of(errno) + "'");
  if (!S_ISREG(status.st_mode))
    throw DataError("[file] " + file.path_ + ": expected a regular file, received a " +
                    (S_ISDIR(status.st_mode)    ? "folder"
                     : S_ISFIFO(status.st_mode) ? "FIFO"
                                                : "device or socket") +
                    "; give the path of a file");
  file.size_ = status.st_size;
  file.modified_ns_ = int64_t{status.st_mtim.tv_sec} * 1'000'000'000 + status.st_mtim.tv_nsec;
  return file;
}

File::File(File&& other) noexcept { *this = std::move(other); }

File& File::operator=(File&& other) noexcept {
  std::swap(fd_, other.fd_);
  std::swap(size_, other.size_);
  std::swap(modified_ns_, other.modified_ns_);
  std::swap(path_, other.path_);
  return *this;
}

Bytes File::read_some(void* destination, Bytes bytes, ByteOffset offset) const {
  Bytes done = 0;
  while (done < bytes) {
    const ssize_t got =
        ::pread(fd_, static_cast<char*>(destination) + done,
                static_cast<size_t>(std::min(bytes - done, kLargestTransfer)), offset + done);
    if (got < 0 && errno == EINTR) continue;
    if (got < 0)
      throw DataError("[file] " + path_ + ": expected a readable file, received '" +
                      reason_of(errno) + "'");
    if (got == 0) break;
    done += got;
  }
  return done;
}

bool File::is_cached(ByteOffset offset) const {
  char byte;
  const iovec place{&byte, 1};
  return ::preadv2(fd_, &place, 1, offset, RWF_NOWAIT) == 1 || errno != EAGAIN;
}

void File::expect(Bytes bytes, ByteOffset offset) const {
  ::posix_fadvise(fd_, offset, bytes, POSIX_FADV_WILLNEED);
}

File::~File() {
  if (fd_ >= 0) ::close(fd_);
}

void File::pread_exact(void* destination, Bytes bytes, ByteOffset offset) const {
  const bool inside = bytes >= 0 && offset >= 0 && offset <= size_ && bytes <= size_ - offset;
  if (inside && read_some(destination, bytes, offset) == bytes) return;
  throw DataError("[file] " + path_ + ": expected " + std::to_string(bytes) + " bytes at offset " +
                  std::to_string(offset) + ", received a file " +
                  (inside ? "that has become shorter than " : "of ") + std::to_string(size_) +
                  " bytes; it is truncated or was changed while in use");
}

std::string read_text_file(const std::string& path, Bytes max_bytes) {
  const File file = File::open(path);
  std::string text;
  // Files of /proc say that they are empty, so the end is where reading ends.
  char piece[4096];
  if (file.size() <= max_bytes) text.reserve(static_cast<size_t>(file.size()));
  while (static_cast<Bytes>(text.size()) <= max_bytes) {
    const Bytes got = file.read_some(piece, sizeof piece, static_cast<ByteOffset>(text.size()));
    if (got == 0) return text;
    text.append(piece, static_cast<size_t>(got));
  }
  throw DataError("[file] " + path + ": expected at most " + format_bytes(max_bytes) +
                  ", received more; is it the right file?");
}

}  // namespace pl
