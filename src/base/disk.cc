#include "base/disk.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <ctime>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"

namespace pl {
namespace {

std::atomic<DiskWatch*> watching{nullptr};

template <class System>
int64_t make(const DiskCall& call, const System& system) {
  DiskWatch* watch = watching.load(std::memory_order_acquire);
  return watch ? watch->make(call, system) : system();
}

// Above RLIMIT_FSIZE the kernel sends SIGXFSZ, which ends the process. While this lives the signal
// is blocked in this thread, so that write() returns EFBIG instead; a pending one is taken away.
class NoFileSizeSignal {
 public:
  NoFileSizeSignal() {
    sigemptyset(&signal_);
    sigaddset(&signal_, SIGXFSZ);
    pthread_sigmask(SIG_BLOCK, &signal_, &before_);
  }
  NoFileSizeSignal(const NoFileSizeSignal&) = delete;
  NoFileSizeSignal& operator=(const NoFileSizeSignal&) = delete;
  ~NoFileSizeSignal() {
    const int error = errno;
    const timespec now{};
    if (error == EFBIG && !sigismember(&before_, SIGXFSZ)) sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
    errno = error;
  }

 private:
  sigset_t signal_{}, before_{};
};

bool is_folder(const std::string& path) {
  struct stat status {};
  return ::stat(path.c_str(), &status) == 0 && S_ISDIR(status.st_mode);
}

}  // namespace

DiskWatchScope::DiskWatchScope(DiskWatch& watch) {
  check(!watching.exchange(&watch), "one watch of the disk at a time");
}

DiskWatchScope::~DiskWatchScope() { watching.store(nullptr); }

namespace disk {

using Kind = DiskCall::Kind;

int create(const std::string& path, int flags) {
  return static_cast<int>(make({.kind = Kind::create, .path = path, .flags = flags}, [&] {
    return ::open(path.c_str(), flags | O_CREAT | O_CLOEXEC, 0666);
  }));
}

int create_unnamed(const std::string& folder) {
  constexpr int kFlags = O_TMPFILE | O_RDWR;
  return static_cast<int>(make({.kind = Kind::create, .path = folder, .flags = kFlags},
                               [&] { return ::open(folder.c_str(), kFlags | O_CLOEXEC, 0666); }));
}

bool write(int fd, const void* data, Bytes bytes, ByteOffset at) {
  const NoFileSizeSignal quiet;
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto most = static_cast<size_t>(std::min(bytes, kLargestTransfer));
    const int64_t put = make({.kind = Kind::write, .fd = fd, .data = {from, most}, .at = at},
                             [&] { return ::pwrite(fd, from, most, at); });
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) return false;
    from += put;
    at += put;
    bytes -= put;
  }
  return true;
}

int truncate(int fd, Bytes bytes) {
  return static_cast<int>(make({.kind = Kind::truncate, .fd = fd, .at = bytes},
                               [&] { return ::ftruncate(fd, bytes); }));
}

int sync(int fd) {
  return static_cast<int>(make({.kind = Kind::sync, .fd = fd}, [&] { return ::fsync(fd); }));
}

int sync_folder(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return 0;
  const int64_t result =
      make({.kind = Kind::sync_folder, .path = path}, [&] { return ::fsync(fd); });
  const int error = errno;
  ::close(fd);
  errno = error;
  return result != 0 && error != EINVAL && error != ENOTSUP ? -1 : 0;
}

int rename(const std::string& from, const std::string& to) {
  return static_cast<int>(make({.kind = Kind::rename, .path = from, .to = to},
                               [&] { return ::rename(from.c_str(), to.c_str()); }));
}

int link(int fd, const std::string& path) {
  return static_cast<int>(make({.kind = Kind::link, .to = path, .fd = fd}, [&] {
    const std::string self = "/proc/self/fd/" + std::to_string(fd);
    return ::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, path.c_str(), AT_SYMLINK_FOLLOW);
  }));
}

int unlink(const std::string& path) {
  return static_cast<int>(
      make({.kind = Kind::unlink, .path = path}, [&] { return ::unlink(path.c_str()); }));
}

int make_folder(const std::string& path) {
  return static_cast<int>(
      make({.kind = Kind::make_folder, .path = path}, [&] { return ::mkdir(path.c_str(), 0777); }));
}

int remove_folder(const std::string& path) {
  return static_cast<int>(
      make({.kind = Kind::remove_folder, .path = path}, [&] { return ::rmdir(path.c_str()); }));
}

int make_folders(const std::string& path) {
  if (is_folder(path)) return 0;
  if (path.empty()) {
    errno = ENOENT;
    return -1;
  }
  const std::string above = folder_of(path);
  if (make_folders(above) != 0) return -1;
  if (make_folder(path) != 0 && !(errno == EEXIST && is_folder(path))) return -1;
  return sync_folder(above);
}

}  // namespace disk
}  // namespace pl
