// Every call of the engine that changes a disk: nothing else in src/ makes one. So each can be made
// to fail, and they can be recorded to build what a loss of power may leave. Answers are those of
// the system: -1 with errno set. Each call is for one thread; several threads may make calls.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace pl {

struct DiskCall {
  enum class Kind : uint8_t {
    create,  // opens a file too that is there already
    write,
    truncate,
    sync,
    sync_folder,
    rename,
    link,
    unlink,
    make_folder,
    remove_folder
  };
  Kind kind;
  std::string_view path = {};  // but of write, truncate, sync and link
  std::string_view to = {};    // of rename and link
  int fd = -1;                 // of write, truncate, sync and link
  int flags = 0;               // of create
  std::string_view data = {};  // of write
  ByteOffset at = 0;           // of write; the length, of truncate
};

// For tests: makes the calls in the engine's place, and may leave them out.
class DiskWatch {
 public:
  virtual ~DiskWatch() = default;
  virtual int64_t make(const DiskCall& call, const std::function<int64_t()>& system) = 0;
};

// While it lives, the watch sees the calls of all threads. One at a time.
class DiskWatchScope {
 public:
  explicit DiskWatchScope(DiskWatch& watch);
  ~DiskWatchScope();
  DiskWatchScope(const DiskWatchScope&) = delete;
  DiskWatchScope& operator=(const DiskWatchScope&) = delete;
};

namespace disk {

// A descriptor that programs which are started do not get.
int create(const std::string& path, int flags);
int create_unnamed(const std::string& folder);  // to read and write
// All of it, or false. Above RLIMIT_FSIZE there is an error and no signal.
bool write(int fd, const void* data, Bytes bytes, ByteOffset at);
int truncate(int fd, Bytes bytes);
int sync(int fd);
// What was made, renamed or removed in the folder lasts through a loss of power. 0 where a folder
// cannot be read, or the file system cannot sync one.
int sync_folder(const std::string& path);
int rename(const std::string& from, const std::string& to);
int link(int fd, const std::string& path);  // gives a name to a file without one
int unlink(const std::string& path);
int make_folder(const std::string& path);
int remove_folder(const std::string& path);

// The folder and those above it, each durable up to one that was there before.
int make_folders(const std::string& path);

}  // namespace disk
}  // namespace pl
