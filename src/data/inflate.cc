#include "data/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/error.h"

namespace pl {
namespace {

constexpr Bytes kPiece = 64 * kKiB;

// What zlib calls it: negative for bare deflate, above 16 for a gzip header.
int window_of(Compression compression) {
  if (compression == Compression::deflate) return -MAX_WBITS;
  return compression == Compression::gzip ? 16 + MAX_WBITS : MAX_WBITS;
}

}  // namespace

struct Inflater::State {
  z_stream z{};
  bool ended = false;
  std::array<unsigned char, kPiece> in;
};

Inflater::Inflater(const Section& section, std::string what)
    : section_(section), what_(std::move(what)), state_(std::make_unique<State>()) {
  if (inflateInit2(&state_->z, window_of(section.compression)) != Z_OK)
    throw BackendError("[data] expected memory for zlib, received a failure of inflateInit2");
}

Inflater::~Inflater() { inflateEnd(&state_->z); }

DataError Inflater::damaged(const std::string& received) const {
  return DataError("[data] " + what_ + ": expected intact compressed data, received " + received +
                   "; fetch or make the file again");
}

Bytes Inflater::read(const File& file, void* to, Bytes bytes) {
  State& s = *state_;
  Bytes made = 0;
  while (made < bytes) {
    if (s.z.avail_in == 0 && unread() > 0) {
      const Bytes count = std::min(kPiece, unread());
      file.pread_exact(s.in.data(), count, section_.offset + consumed_);
      consumed_ += count;
      s.z.next_in = s.in.data();
      s.z.avail_in = static_cast<uInt>(count);
    }
    if (s.ended) {
      if (s.z.avail_in == 0) break;  // the section and the stream end together
      if (section_.compression != Compression::gzip)
        throw damaged("bytes after the end of the stream");
      if (inflateReset(&s.z) != Z_OK) throw damaged("a stream that cannot go on");
      s.ended = false;
    }
    const Bytes room = std::min<Bytes>(bytes - made, 1 << 30);  // zlib counts in 32 bits
    s.z.next_out = static_cast<unsigned char*>(to) + made;
    s.z.avail_out = static_cast<uInt>(room);
    const uInt before = s.z.avail_in;
    const int status = ::inflate(&s.z, Z_NO_FLUSH);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      throw damaged(s.z.msg ? "'" + std::string(s.z.msg) + "'" : "a stream that zlib refuses");
    const Bytes piece = room - static_cast<Bytes>(s.z.avail_out);
    made += piece;
    s.ended = status == Z_STREAM_END;
    if (piece == 0 && s.z.avail_in == before && !s.ended && unread() == 0)
      throw damaged("a truncated stream");
  }
  return made;
}

Inflated inflate_section(const File& file, const Section& section, Bytes most,
                         const std::string& what, const PieceCallback& piece) {
  Inflater inflater(section, what);
  std::vector<unsigned char> out(kPiece);
  Inflated result;
  while (const Bytes made = inflater.read(file, out.data(), kPiece)) {
    if (made > most - result.bytes)
      throw inflater.damaged("more than the " + std::to_string(most) +
                             " bytes that its header says");
    result.crc = static_cast<uint32_t>(::crc32(result.crc, out.data(), static_cast<uInt>(made)));
    result.bytes += made;
    if (!piece(out.data(), made)) break;
  }
  return result;
}

uint32_t crc_of(const File& file, ByteOffset offset, Bytes bytes) {
  std::vector<unsigned char> buffer(static_cast<size_t>(std::min(bytes, kPiece)));
  uLong crc = 0;
  for (Bytes done = 0; done < bytes;) {
    const Bytes count = std::min(kPiece, bytes - done);
    file.pread_exact(buffer.data(), count, offset + done);
    crc = ::crc32(crc, buffer.data(), static_cast<uInt>(count));
    done += count;
  }
  return static_cast<uint32_t>(crc);
}

}  // namespace pl
