#include "data/inflate.h"

#include <zlib.h>

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace pl {
namespace {

constexpr Bytes kPiece = 64 * kKiB;

struct Stream {
  z_stream state{};

  explicit Stream(Compression compression) {
    // Negative: bare deflate; above 16: a gzip header.
    const int window = compression == Compression::gzip ? 16 + MAX_WBITS : -MAX_WBITS;
    if (inflateInit2(&state, window) != Z_OK)
      throw BackendError("[data] expected memory for zlib, received a failure of inflateInit2");
  }
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  ~Stream() { inflateEnd(&state); }
};

}  // namespace

Inflated inflate_section(const File& file, const Section& section, Bytes most,
                         const std::string& what, const PieceCallback& piece) {
  const auto bad = [&](const std::string& received) {
    return DataError("[data] " + what + ": expected intact compressed data, received " + received +
                     "; fetch or make the file again");
  };
  Stream stream(section.compression);
  z_stream& z = stream.state;
  std::vector<unsigned char> in(kPiece), out(kPiece);
  Inflated result;
  Bytes consumed = 0;  // of the section, read into `in`
  int status = Z_OK;
  while (true) {
    if (z.avail_in == 0 && consumed < section.bytes) {
      const Bytes count = std::min(kPiece, section.bytes - consumed);
      file.pread_exact(in.data(), count, section.offset + consumed);
      consumed += count;
      z.next_in = in.data();
      z.avail_in = static_cast<uInt>(count);
    }
    if (status == Z_STREAM_END) {
      if (z.avail_in == 0) return result;  // the section and the stream end together
      if (section.compression != Compression::gzip) throw bad("bytes after the end of the stream");
      if (inflateReset(&z) != Z_OK) throw bad("a stream that cannot go on");
    }
    z.next_out = out.data();
    z.avail_out = static_cast<uInt>(kPiece);
    const uInt before = z.avail_in;
    status = ::inflate(&z, Z_NO_FLUSH);
    const Bytes made = kPiece - static_cast<Bytes>(z.avail_out);
    if (status != Z_OK && status != Z_STREAM_END && status != Z_BUF_ERROR)
      throw bad(z.msg ? "'" + std::string(z.msg) + "'" : "a stream that zlib refuses");
    if (made > most - result.bytes)
      throw bad("more than the " + std::to_string(most) + " bytes that its header says");
    if (made > 0) {
      result.crc = static_cast<uint32_t>(::crc32(result.crc, out.data(), static_cast<uInt>(made)));
      result.bytes += made;
      if (!piece(out.data(), made)) return result;
    }
    const bool stuck = made == 0 && z.avail_in == before && status != Z_STREAM_END;
    if (stuck && consumed == section.bytes) throw bad("a truncated stream");
  }
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
