// The writing half of base/file.h.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <system_error>
#include <utility>

#include "base/disk.h"
#include "base/error.h"
#include "base/file.h"
#include "base/growing_file.h"

namespace pl {
namespace {

// A descriptor under construction; removes its temporary name unless it was renamed.
struct Draft {
  int fd = -1;
  std::string name;

  Draft() = default;
  Draft(const Draft&) = delete;
  Draft& operator=(const Draft&) = delete;
  ~Draft() {
    if (fd >= 0) ::close(fd);
    if (!name.empty()) disk::unlink(name);
  }
};

// A path that cannot be written is the caller's; a disk that cannot take more is the system's.
bool is_of_path(int error) {
  return error == ENOENT || error == EACCES || error == EPERM || error == EROFS ||
         error == ENOTDIR || error == EEXIST || error == ENAMETOOLONG || error == ELOOP ||
         error == EISDIR;
}

[[noreturn]] void fail(const std::string& path, int error) {
  const std::string received = reason_of(error);
  if (is_of_path(error))
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

std::string folder_of(const std::string& path) {
  const std::filesystem::path folder = std::filesystem::path(path).parent_path();
  return folder.empty() ? "." : folder.string();
}

void sync_folder(const std::string& folder) {
  if (disk::sync_folder(folder) != 0) fail(folder, errno);
}

void sync_file(const std::string& path) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY);
  if (fd < 0) return;  // somebody has removed it
  const int result = disk::sync(fd), error = errno;
  ::close(fd);
  if (result != 0) fail(path, error);
}

void make_directories(const std::string& path) {
  if (disk::make_folders(path) == 0) return;
  const int error = errno;
  const std::string text = "[file] " + path +
                           ": expected a folder that exists or can be made, received '" +
                           (error == EEXIST ? "a file of that name" : reason_of(error)) + "'";
  if (is_of_path(error)) throw DataError(text);
  throw BackendError(text);
}

bool remove_file(const std::string& path) { return disk::unlink(path) == 0; }
bool remove_folder(const std::string& path) { return disk::remove_folder(path) == 0; }

void FileWriter::write(const void* data, Bytes bytes) {
  if (!disk::write(fd_, data, bytes, written_)) fail(path_, errno);
  written_ += bytes;
}

void write_file_atomically(const std::string& path, const WriteCallback& writer) {
  const std::string target = final_target(path);
  Draft draft;
  const std::string name = draft_name(target);
  draft.fd = disk::create(name, O_WRONLY | O_EXCL);
  if (draft.fd < 0) fail(path, errno);
  draft.name = name;
  FileWriter file(draft.fd, path);
  writer(file);
  if (disk::sync(draft.fd) != 0) fail(path, errno);
  // Errors of delayed writes (NFS, quotas) may show only here.
  const int closed = ::close(draft.fd);
  draft.fd = -1;
  if (closed != 0) fail(path, errno);
  if (disk::rename(name, target) != 0) fail(path, errno);
  draft.name.clear();
  sync_folder(folder_of(target));
}

void check_writable(const std::string& path) {
  const std::string name = draft_name(final_target(path));
  Draft draft;  // gone again at the end
  draft.fd = disk::create(name, O_WRONLY | O_EXCL);
  if (draft.fd < 0) fail(path, errno);
  draft.name = name;
}

void write_file_atomically(const std::string& path, std::string_view bytes) {
  write_file_atomically(path, [&](FileWriter& file) { file.write(bytes); });
}

namespace {

// In the folder; a file system without files that have no name gets one that `name` tells.
int open_unnamed(const std::string& folder, std::string& name) {
  const int fd = disk::create_unnamed(folder);
  if (fd >= 0) return fd;
  name = draft_name(folder + "/plimsoll");
  return disk::create(name, O_RDWR | O_EXCL);
}

}  // namespace

File write_unlinked_file(const WriteCallback& writer) {
  const char* chosen = std::getenv("TMPDIR");
  const std::string folder = chosen && *chosen ? chosen : "/tmp";
  Draft draft;
  draft.fd = open_unnamed(folder, draft.name);
  if (draft.fd < 0) fail(folder, errno);
  FileWriter file(draft.fd, folder);
  writer(file);
  return File::adopt(std::exchange(draft.fd, -1), folder + "/plimsoll");
}

GrowingFile::GrowingFile(const std::string& folder, std::string what) : what_(std::move(what)) {
  fd_ = open_unnamed(folder, name_);
  if (fd_ >= 0) return;
  try {
    fail_within(what_, folder);
  } catch (const DataError& error) {
    throw UserError(error.what());  // somebody chose this folder, and no data are at fault
  }
}

GrowingFile::~GrowingFile() {
  ::close(fd_);
  if (!name_.empty()) disk::unlink(name_);
}

void GrowingFile::write(const void* data, Bytes bytes, ByteOffset at) {
  if (!disk::write(fd_, data, bytes, at)) fail_within(what_, "a temporary file");
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
  if (disk::sync(fd_) != 0) fail_within(what_, path);
  if (name_.empty()) {
    const std::string name = draft_name(path);
    if (disk::link(fd_, name) != 0) fail_within(what_, path);
    name_ = name;
  }
  if (disk::rename(name_, path) != 0) fail_within(what_, path);
  name_.clear();
  sync_folder(folder_of(path));
}

}  // namespace pl
