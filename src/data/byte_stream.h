// The bytes of a file from its beginning, inflated on the way when they are compressed. The first
// bytes decide, not the name: gzip (1f 8b), zlib (78 and what makes a multiple of 31), or plain.
#pragma once

#include <memory>
#include <string>

#include "data/inflate.h"

namespace pl {

// What a file may be packed in. Text may begin as zlib does ("x^2"), so that is for binary files.
enum class Packing : uint8_t { none, gzip, gzip_or_zlib };

class ByteStream {
 public:
  explicit ByteStream(const std::string& path, Packing packing = Packing::gzip);
  explicit ByteStream(File file, Packing packing = Packing::gzip);
  ByteStream(ByteStream&&) noexcept;
  ByteStream& operator=(ByteStream&&) noexcept;
  ~ByteStream();

  const std::string& path() const { return file_.path(); }
  bool compressed() const { return inflater_ != nullptr; }
  Bytes position() const { return position_; }  // of what is read, inflated
  // The most that may still come: exact for a plain file, a bound for a compressed one.
  Bytes most_left() const;

  // Up to `bytes`, fewer only at the end. Throws DataError for damaged or truncated data.
  Bytes read(void* to, Bytes bytes);
  // Throws DataError when there are fewer; `what` says what they would have been.
  void read_exact(void* to, Bytes bytes, const char* what);
  void skip(Bytes bytes, const char* what);

 private:
  File file_;
  ByteOffset at_ = 0;  // in a plain file
  Bytes position_ = 0;
  std::unique_ptr<Inflater> inflater_;  // null: plain
};

// The whole of a file, inflated. DataError above `most` bytes.
std::string read_whole(const std::string& path, Bytes most);

// Bytes that a stream holds besides its reader's: the window of zlib and a buffer.
inline constexpr Bytes kByteStreamBytes = 112 * kKiB;

}  // namespace pl
