// Files: reading at offsets, and writing so that a reader sees the old file or the new one, never a
// part of one. What cannot be read is DataError; a disk that is full or failing is BackendError.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/bytes.h"

namespace pl {

std::string reason_of(int error);                          // an errno in the system's words
inline constexpr Bytes kLargestTransfer = Bytes{1} << 30;  // Linux moves at most 2 GiB a call

// A regular file open for reading; closed with the object. Reads from several threads are safe.
class File {
 public:
  // Throws DataError for what is missing, unreadable, or no regular file (a folder, device or
  // FIFO).
  static File open(const std::string& path);
  // Takes over `fd`; `path` is only for messages.
  static File adopt(int fd, std::string path);

  File() = default;
  File(File&& other) noexcept;
  File& operator=(File&& other) noexcept;
  File(const File&) = delete;
  File& operator=(const File&) = delete;
  ~File();

  bool is_open() const { return fd_ >= 0; }
  const std::string& path() const { return path_; }
  Bytes size() const { return size_; }                  // when it was opened
  int64_t modified_ns() const { return modified_ns_; }  // when it was opened, since 1970

  // Fills `destination` with the bytes at `offset`. Allocates nothing. Throws DataError when the
  // range is not in the file, or the file has become shorter since it was opened.
  void pread_exact(void* destination, Bytes bytes, ByteOffset offset) const;
  // The same up to the end of the file; returns how many bytes there were.
  Bytes read_some(void* destination, Bytes bytes, ByteOffset offset) const;
  // Whether the byte at `offset` could be read now without waiting for a disk.
  bool is_cached(ByteOffset offset) const;
  // Has the system fetch these bytes into its page cache meanwhile.
  void expect(Bytes bytes, ByteOffset offset) const;

 private:
  int fd_ = -1;
  Bytes size_ = 0;
  int64_t modified_ns_ = 0;
  std::string path_;
};

// Where the callbacks below put their bytes, unbuffered. Throws BackendError when the disk is full.
class FileWriter {
 public:
  FileWriter(int fd, std::string path) : fd_(fd), path_(std::move(path)) {}
  void write(const void* data, Bytes bytes);
  void write(std::string_view text) { write(text.data(), static_cast<Bytes>(text.size())); }
  Bytes written() const { return written_; }

 private:
  int fd_;
  Bytes written_ = 0;
  std::string path_;
};

using WriteCallback = std::function<void(FileWriter&)>;

// The whole of a text file, files of /proc included. DataError above `max_bytes`.
std::string read_text_file(const std::string& path, Bytes max_bytes);

// Writes a temporary file in the same folder, fsync, rename, fsync of the folder. When anything
// fails, an exception of the callback included, the old file is intact and the temporary one is
// gone. A symbolic link stays one: what it points to is replaced. Targets that are no regular file
// are refused.
void write_file_atomically(const std::string& path, const WriteCallback& writer);
void write_file_atomically(const std::string& path, std::string_view bytes);

// A file that has no name and goes with its descriptor, in $TMPDIR or /tmp.
File write_unlinked_file(const WriteCallback& writer);

// Throws DataError unless write_file_atomically could write `path`: its folder exists and may be
// written to, and nothing but a regular file stands there.
void check_writable(const std::string& path);

// Makes what was made, renamed or removed in the folder last through a loss of power.
void sync_folder(const std::string& path);
// And what was written to a file, if it is there. Its name is its folder's.
void sync_file(const std::string& path);

// The folder and those above it, durable; no error when it is there. DataError when it cannot be
// made, BackendError when the disk cannot take it.
void make_directories(const std::string& path);
std::string folder_of(const std::string& path);  // "." for a name alone

// Whether it was there and is gone; a folder only if it was empty.
bool remove_file(const std::string& path);
bool remove_folder(const std::string& path);

}  // namespace pl
