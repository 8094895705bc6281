// The writing half of base/file.h.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <ctime>
#include <filesystem>
#include <system_error>

#include "base/error.h"
#include "base/file.h"
#include "base/growing_file.h"

namespace pl {
namespace {

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
    const timespec now{};
    if (!sigismember(&before_, SIGXFSZ)) sigtimedwait(&signal_, nullptr, &now);
    pthread_sigmask(SIG_SETMASK, &before_, nullptr);
  }

 private:
  sigset_t signal_{}, before_{};
};

std::atomic<WriteFault> write_fault{nullptr};

// Whether the call is to fail, with errno set.
bool faulty(const char* call) {
  const WriteFault fault = write_fault.load(std::memory_order_relaxed);
  const int error = fault ? fault(call) : 0;
  if (error != 0) errno = error;
  return error != 0;
}

// A descriptor under construction; removes its temporary name unless it was renamed.
struct Draft {
  int fd = -1;
  std::string name;

  Draft() = default;
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (fd >= 0) ::close(fd);
    if (!name.empty()) ::unlink(name.c_str());
  }
};

[[noreturn]] void fail(const std::string& path, int error) {
  const std::string received = reason_of(error);
  // A path that cannot be written is the caller's; a disk that cannot take more is the system's.
  if (error == ENOENT || error == EACCES || error == EPERM || error == EROFS || error == ENOTDIR ||
      error == ENAMETOOLONG || error == ELOOP || error == EISDIR)
    throw DataError("[file] " + path + ": expected a place that can be written, received '" +
                    received + "'; check the folder and its permissions");
  throw BackendError("[file] " + path + ": expected the disk to take the file, received '" +
                     received + "'; free some space or choose another disk; " +
                     "a file that was there before is intact");
}

// What a symbolic link points to, so that the link itself stays.
std::string final_target(const std::string& path) {
  struct stat status {};
  if (::stat(path.c_str(), &status) != 0) return path;
  // Renaming over /dev/null would replace the device.
  if (!S_ISREG(status.st_mode))
    throw DataError("[file] " + path + ": expected a regular file or none, received a " +
                    (S_ISDIR(status.st_mode) ? "folder" : "device, FIFO or socket") +
                    "; give the path of a file to write");
  std::error_code error;
  const std::filesystem::path target = std::filesystem::canonical(path, error);
  return error ? path : target.string();
}

// Names are unique in the process by a counter and on the machine by the process id.
std::string draft_name(const std::string& path) {
  static std::atomic<uint64_t> counter{0};
  return path + ".tmp-" + std::to_string(::getpid()) + "-" + std::to_string(counter++);
}

void sync_folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  sync_folder(folder.empty() ? "." : folder.string());
}

[[noreturn]] void fail_within(const std::string& what, const std::string& path) {
  const int error = errno;
  try {
    fail(path, error);
  } catch (const DataError& failed) {
    throw DataError(what + ": " + failed.what());
  } catch (const BackendError& failed) {
    throw BackendError(what + ": " + failed.what());
  }
}

}  // namespace

void set_write_fault(WriteFault fault) { write_fault.store(fault); }

void sync_folder(const std::string& folder) {
  const int fd = ::open(folder.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC);
  if (fd < 0) return;  // a folder may be writable and not readable; the rename has happened
  const int result = faulty("fsync") ? -1 : ::fsync(fd);
  const int error = errno;
  ::close(fd);
  // Some file systems cannot sync folders and say so.
  if (result != 0 && error != EINVAL && error != ENOTSUP) fail(folder, error);
}

void FileWriter::write(const void* data, Bytes bytes) {
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    if (faulty("write")) fail(path_, errno);
    const ssize_t put = ::write(fd_, from, static_cast<size_t>(std::min(bytes, kLargestTransfer)));
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail(path_, errno);
    from += put;
    bytes -= put;
    written_ += put;
  }
}

void write_file_atomically(const std::string& path, const WriteCallback& writer) {
  const NoFileSizeSignal quiet;
  const std::string target = final_target(path);
  Draft draft;
  const std::string name = draft_name(target);
  draft.fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (draft.fd < 0) fail(path, errno);
  draft.name = name;
  FileWriter file(draft.fd, path);
  writer(file);
  if (faulty("fsync") || ::fsync(draft.fd) != 0) fail(path, errno);
  // Errors of delayed writes (NFS, quotas) may show only here.
  const int closed = ::close(draft.fd);
  draft.fd = -1;
  if (closed != 0) fail(path, errno);
  if (faulty("rename") || ::rename(name.c_str(), target.c_str()) != 0) fail(path, errno);
  draft.name.clear();
  sync_folder_of(target);
}

void check_writable(const std::string& path) {
  const std::string name = draft_name(final_target(path));
  Draft draft;  // gone again at the end
  draft.fd = ::open(name.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (draft.fd < 0) fail(path, errno);
  draft.name = name;
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  write_file_atomically(path, [&](FileWriter& file) { file.write(bytes); });
}

File write_unlinked_file(const WriteCallback& writer) {
  const NoFileSizeSignal quiet;
  const char* folder = std::getenv("TMPDIR");
  std::string name = std::string(folder && *folder ? folder : "/tmp") + "/plimsoll-XXXXXX";
  Draft draft;
  draft.fd = ::mkostemp(name.data(), O_CLOEXEC);
  if (draft.fd < 0) fail(name, errno);
  ::unlink(name.c_str());
  FileWriter file(draft.fd, name);
  writer(file);
  const int fd = draft.fd;
  draft.fd = -1;
  return File::adopt(fd, name);
}

GrowingFile::GrowingFile(const std::string& folder, std::string what) : what_(std::move(what)) {
  fd_ = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0666);
  if (fd_ >= 0) return;
  // Not every file system has files without a name.
  name_ = draft_name(folder + "/plimsoll");
  fd_ = ::open(name_.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0666);
  if (fd_ >= 0) return;
  try {
    fail_within(what_, folder);
  } catch (const DataError& error) {
    throw UserError(error.what());  // somebody chose this folder, and no data are at fault
  }
}

GrowingFile::~GrowingFile() {
  ::close(fd_);
  if (!name_.empty()) ::unlink(name_.c_str());
}

void GrowingFile::write(const void* data, Bytes bytes, ByteOffset at) {
  const NoFileSizeSignal quiet;
  const char* from = static_cast<const char*>(data);
  while (bytes > 0) {
    const auto most = static_cast<size_t>(std::min(bytes, kLargestTransfer));
    const ssize_t put = faulty("write") ? -1 : ::pwrite(fd_, from, most, at);
    if (put < 0 && errno == EINTR) continue;
    if (put < 0) fail_within(what_, "a temporary file");
    from += put;
    at += put;
    bytes -= put;
  }
}

void GrowingFile::read(void* to, Bytes bytes, ByteOffset at) const {
  char* place = static_cast<char*>(to);
  while (bytes > 0) {
    const auto most = static_cast<size_t>(std::min(bytes, kLargestTransfer));
    const ssize_t got = ::pread(fd_, place, most, at);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) throw BackendError(what_ + ": expected to read back what was written");
    place += got;
    at += got;
    bytes -= got;
  }
}

void GrowingFile::publish(const std::string& path) {
  if (faulty("fsync") || ::fsync(fd_) != 0) fail_within(what_, path);
  if (name_.empty()) {
    const std::string name = draft_name(path), self = "/proc/self/fd/" + std::to_string(fd_);
    if (::linkat(AT_FDCWD, self.c_str(), AT_FDCWD, name.c_str(), AT_SYMLINK_FOLLOW) != 0)
      fail_within(what_, path);
    name_ = name;
  }
  if (faulty("rename") || ::rename(name_.c_str(), path.c_str()) != 0) fail_within(what_, path);
  name_.clear();
  sync_folder_of(path);
}

}  // namespace pl
