#include "data/byte_stream.h"

#include <zlib.h>

#include <algorithm>
#include <array>

#include "base/error.h"
#include "data/inflate.h"

namespace pl {

struct ByteStream::Inflater {
  static constexpr Bytes kPiece = 64 * kKiB;
  z_stream z{};
  bool gzip = false, ended = false;
  std::array<unsigned char, kPiece> in;

  explicit Inflater(bool is_gzip) : gzip(is_gzip) {
    if (inflateInit2(&z, (gzip ? 16 : 0) + MAX_WBITS) != Z_OK)
      throw BackendError("[data] expected memory for zlib, received a failure of inflateInit2");
  }
  Inflater(const Inflater&) = delete;
  Inflater& operator=(const Inflater&) = delete;
  ~Inflater() { inflateEnd(&z); }
};

ByteStream::ByteStream(const std::string& path) : ByteStream(File::open(path)) {}

ByteStream::ByteStream(File file) : file_(std::move(file)) {
  unsigned char magic[2] = {0, 0};
  if (file_.size() < 2) return;
  file_.pread_exact(magic, 2, 0);
  const bool gzip = magic[0] == 0x1F && magic[1] == 0x8B;
  // RFC 1950: deflate with a window of 32 KiB, and a check value of both bytes.
  const bool zlib = magic[0] == 0x78 && (magic[0] * 256 + magic[1]) % 31 == 0;
  if (gzip || zlib) state_ = std::make_unique<Inflater>(gzip);
}

ByteStream::ByteStream(ByteStream&&) noexcept = default;
ByteStream& ByteStream::operator=(ByteStream&&) noexcept = default;
ByteStream::~ByteStream() = default;

Bytes ByteStream::most_left() const {
  const Bytes stored = file_.size() - at_;
  if (!state_) return stored;
  // What zlib has read but not inflated, and its window, may come too.
  return (stored + Inflater::kPiece) * kDeflateRatio;
}

Bytes ByteStream::read(void* to, Bytes bytes) {
  Bytes got = 0;
  if (state_) {
    got = inflate(to, bytes);
  } else {
    got = std::min(bytes, file_.size() - at_);
    if (got > 0) file_.pread_exact(to, got, at_);
    at_ += got;
  }
  position_ += got;
  return got;
}

Bytes ByteStream::inflate(void* to, Bytes bytes) {
  const auto bad = [&](const std::string& received) {
    return DataError("[data] " + path() + ": expected intact compressed data, received " +
                     received + "; fetch or make the file again");
  };
  Inflater& s = *state_;
  Bytes made = 0;
  while (made < bytes) {
    if (s.z.avail_in == 0 && at_ < file_.size()) {
      const Bytes count = std::min(Inflater::kPiece, file_.size() - at_);
      file_.pread_exact(s.in.data(), count, at_);
      at_ += count;
      s.z.next_in = s.in.data();
      s.z.avail_in = static_cast<uInt>(count);
    }
    if (s.ended) {
      if (s.z.avail_in == 0) break;  // the file and the stream end together
      if (!s.gzip) throw bad("bytes after the end of the stream");
      if (inflateReset(&s.z) != Z_OK) throw bad("a stream that cannot go on");
      s.ended = false;
    }
    const Bytes room = std::min<Bytes>(bytes - made, 1 << 30);
    s.z.next_out = static_cast<unsigned char*>(to) + made;
    s.z.avail_out = static_cast<uInt>(room);
    const uInt before = s.z.avail_in;
    const int status = ::inflate(&s.z, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      throw bad(s.z.msg ? "'" + std::string(s.z.msg) + "'" : "a stream that zlib refuses");
    const Bytes piece = room - static_cast<Bytes>(s.z.avail_out);
    made += piece;
    s.ended = status == Z_STREAM_END;
    if (piece == 0 && s.z.avail_in == before && !s.ended && at_ == file_.size())
      throw bad("a truncated stream");
  }
  return made;
}

void ByteStream::read_exact(void* to, Bytes bytes, const char* what) {
  const Bytes at = position_, got = read(to, bytes);
  if (got < bytes)
    throw DataError("[data] " + path() + ": expected " + std::to_string(bytes) + " bytes of " +
                    what + " at byte " + std::to_string(at) + ", received " + std::to_string(got) +
                    "; the file is truncated or damaged");
}

void ByteStream::skip(Bytes bytes, const char* what) {
  if (!state_ && bytes <= file_.size() - at_) {
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
