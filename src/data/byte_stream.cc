#include "data/byte_stream.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace pl {

ByteStream::ByteStream(const std::string& path, Packing packing)
    : ByteStream(File::open(path), packing) {}

ByteStream::ByteStream(File file, Packing packing) : file_(std::move(file)) {
  unsigned char magic[2] = {0, 0};
  if (file_.size() < 2 || packing == Packing::none) return;
  file_.pread_exact(magic, 2, 0);
  const bool gzip = magic[0] == 0x1F && magic[1] == 0x8B;
  // RFC 1950: deflate with a window of 32 KiB, and a check value of both bytes.
  const bool zlib =
      packing == Packing::gzip_or_zlib && magic[0] == 0x78 && (magic[0] * 256 + magic[1]) % 31 == 0;
  if (gzip || zlib)
    inflater_ = std::make_unique<Inflater>(
        Section{.bytes = file_.size(), .compression = gzip ? Compression::gzip : Compression::zlib},
        file_.path());
}

ByteStream::ByteStream(ByteStream&&) noexcept = default;
ByteStream& ByteStream::operator=(ByteStream&&) noexcept = default;
ByteStream::~ByteStream() = default;

Bytes ByteStream::most_left() const {
  if (!inflater_) return file_.size() - at_;
  // What zlib has read but not inflated may come too.
  return (inflater_->unread() + 64 * kKiB) * kDeflateRatio;
}

Bytes ByteStream::read(void* to, Bytes bytes) {
  Bytes got = 0;
  if (inflater_) {
    got = inflater_->read(file_, to, bytes);
  } else {
    got = std::min(bytes, file_.size() - at_);
    if (got > 0) file_.pread_exact(to, got, at_);
    at_ += got;
  }
  position_ += got;
  return got;
}

void ByteStream::read_exact(void* to, Bytes bytes, const char* what) {
  const Bytes at = position_, got = read(to, bytes);
  if (got < bytes)
    throw DataError("[data] " + path() + ": expected " + std::to_string(bytes) + " bytes of " +
                    what + " at byte " + std::to_string(at) + ", received " + std::to_string(got) +
                    "; the file is truncated or damaged");
}

void ByteStream::skip(Bytes bytes, const char* what) {
  if (!inflater_ && bytes <= file_.size() - at_) {
    at_ += bytes;
    position_ += bytes;
    return;
  }
  std::array<char, 4096> unused;
  for (Bytes done = 0; done < bytes;) {
    const Bytes count = std::min<Bytes>(bytes - done, unused.size());
    read_exact(unused.data(), count, what);
    done += count;
  }
}

std::string read_whole(const std::string& path, Bytes most) {
  constexpr Bytes kStep = 256 * kKiB;
  ByteStream stream(path);
  std::string text;
  for (Bytes got = kStep; got == kStep;) {
    const size_t at = text.size();
    text.resize(at + static_cast<size_t>(kStep));
    got = stream.read(text.data() + at, kStep);
    text.resize(at + static_cast<size_t>(got));
    if (static_cast<Bytes>(text.size()) > most)
      throw DataError("[data] " + path + ": expected at most " + std::to_string(most) +
                      " bytes, received more");
  }
  return text;
}

}  // namespace pl
