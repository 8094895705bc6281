#include "data/tfrecord.h"

#include <zlib.h>

#include <array>
#include <cstring>

#include "base/crc32c.h"
#include "base/error.h"
#include "base/wire.h"

namespace pl {
namespace {

constexpr Bytes kHeader = 12, kTail = 4;  // a length with its CRC; the record's CRC
constexpr Bytes kRecordPiece = 64 * kKiB;

uint32_t u32_at(const char* bytes) {
  uint32_t value;
  std::memcpy(&value, bytes, sizeof value);
  return value;
}

// The length in a header; throws unless its CRC is right and `left` bytes can hold it.
Bytes length_in(const char* header, Bytes left, const std::string& where) {
  uint64_t length;
  std::memcpy(&length, header, sizeof length);
  if (masked_crc32c({header, 8}) != u32_at(header + 8))
    throw DataError(where + ": expected a length with its CRC, received a CRC that is wrong; the " +
                    "file is damaged, or no TFRecord file");
  if (left < kTail || length > static_cast<uint64_t>(left - kTail))
    throw DataError(where +
                    ": expected a record that ends before the file does, received a length of " +
                    std::to_string(length) + " bytes; the file is truncated");
  return static_cast<Bytes>(length);
}

void check_record(const char* record, Bytes bytes, const char* tail, const std::string& where) {
  if (masked_crc32c({record, static_cast<size_t>(bytes)}) != u32_at(tail))
    throw DataError(where + ": expected a record with its CRC, received a CRC that is wrong; the " +
                    "file is damaged");
}

std::string where_at(const std::string& path, const std::string& which) {
  return "[data] " + path + ", " + which;
}

// A plain file may begin as a compressed one does: the length of its first record decides.
bool begins_plain(const File& file) {
  std::array<char, kHeader> header;
  if (file.size() < kHeader) return false;
  file.pread_exact(header.data(), kHeader, 0);
  return masked_crc32c({header.data(), 8}) == u32_at(header.data() + 8);
}

ByteStream open_records(const std::string& path) {
  File file = File::open(path);
  const bool plain = begins_plain(file);
  return ByteStream(std::move(file), plain ? Packing::none : Packing::gzip_or_zlib);
}

}  // namespace

TfRecordReader::TfRecordReader(const std::string& path) : stream_(open_records(path)) {}

bool is_compressed_tfrecord(const std::string& path) { return open_records(path).compressed(); }

std::string TfRecordReader::where() const {
  return where_at(path(), "record " + std::to_string(records_));
}

std::optional<Bytes> TfRecordReader::next() {
  in_step_ = false;
  if (waiting_) stream_.skip(*waiting_ + kTail, "a record");
  waiting_.reset();
  std::array<char, kHeader> header;
  const Bytes got = stream_.read(header.data(), kHeader);
  if (got == 0) return std::nullopt;
  if (got < kHeader)
    throw DataError(where() + ": expected a header of 12 bytes, received " + std::to_string(got) +
                    "; the file is truncated");
  waiting_ = length_in(header.data(), stream_.most_left(), where());
  ++records_;
  in_step_ = true;
  return waiting_;
}

void TfRecordReader::read(void* to) {
  check(waiting_.has_value(), "a record is read once, after next() has found it");
  const Bytes bytes = *waiting_;
  waiting_.reset();
  std::array<char, kTail> tail;
  in_step_ = false;
  stream_.read_exact(to, bytes, "a record");
  stream_.read_exact(tail.data(), kTail, "a record's CRC");
  in_step_ = true;
  check_record(static_cast<const char*>(to), bytes, tail.data(),
               where_at(path(), "record " + std::to_string(records_ - 1)));
}

std::vector<RecordPlace> index_tfrecords(const File& file, std::string* damage) {
  std::vector<RecordPlace> places;
  std::array<char, kHeader> header;
  try {
    for (ByteOffset at = 0; at < file.size();) {
      const std::string where = where_at(file.path(), "record " + std::to_string(places.size()));
      if (file.size() - at < kHeader)
        throw DataError(where + ": expected a header of 12 bytes, received " +
                        std::to_string(file.size() - at) + "; the file is truncated");
      file.pread_exact(header.data(), kHeader, at);
      const Bytes bytes = length_in(header.data(), file.size() - at - kHeader, where);
      places.push_back({at + kHeader, bytes});
      at += kHeader + bytes + kTail;
    }
  } catch (const DataError& error) {
    if (!damage) throw;
    *damage = error.what();
  }
  return places;
}

void read_tfrecord(const File& file, const RecordPlace& place, void* to) {
  std::array<char, kTail> tail;
  file.pread_exact(to, place.bytes, place.at);
  file.pread_exact(tail.data(), kTail, place.at + place.bytes);
  check_record(static_cast<const char*>(to), place.bytes, tail.data(),
               where_at(file.path(), "the record at byte " + std::to_string(place.at)));
}

RecordFrame record_frame(std::string_view record) {
  const std::string length = raw_bytes(static_cast<uint64_t>(record.size()));
  return {length + raw_bytes(masked_crc32c(length)), raw_bytes(masked_crc32c(record))};
}

void TfRecordSink::write(std::string_view record) {
  const RecordFrame frame = record_frame(record);
  put(frame.head);
  put(record);
  put(frame.tail);
}

namespace {

// Gathers small pieces; large ones pass through.
class PlainSink : public TfRecordSink {
 public:
  explicit PlainSink(FileWriter& file) : file_(file) {}
  void put(std::string_view bytes) override {
    if (buffer_.size() + bytes.size() > static_cast<size_t>(kRecordPiece)) flush();
    if (bytes.size() > static_cast<size_t>(kRecordPiece))
      file_.write(bytes);
    else
      buffer_ += bytes;
  }
  void flush() {
    if (!buffer_.empty()) file_.write(buffer_);
    buffer_.clear();
  }

 private:
  FileWriter& file_;
  std::string buffer_;
};

class GzipSink : public TfRecordSink {
 public:
  explicit GzipSink(FileWriter& file) : file_(file) {
    if (deflateInit2(&z_, Z_DEFAULT_COMPRESSION, Z_DEFLATED, 16 + MAX_WBITS, 8,
                     Z_DEFAULT_STRATEGY) != Z_OK)
      throw BackendError("[data] expected memory for zlib, received a failure of deflateInit2");
  }
  GzipSink(const GzipSink&) = delete;
  GzipSink& operator=(const GzipSink&) = delete;
  ~GzipSink() override { deflateEnd(&z_); }

  void put(std::string_view bytes) override {
    constexpr size_t kMost = 1 << 30;  // zlib counts in 32 bits
    for (; !bytes.empty(); bytes.remove_prefix(std::min(bytes.size(), kMost)))
      run(bytes.substr(0, kMost), Z_NO_FLUSH);
  }
  void finish() { run({}, Z_FINISH); }

 private:
  void run(std::string_view bytes, int flush) {
    z_.next_in = reinterpret_cast<unsigned char*>(const_cast<char*>(bytes.data()));
    z_.avail_in = static_cast<uInt>(bytes.size());
    do {
      z_.next_out = out_.data();
      z_.avail_out = static_cast<uInt>(out_.size());
      ::deflate(&z_, flush);
      file_.write(out_.data(), static_cast<Bytes>(out_.size() - z_.avail_out));
    } while (z_.avail_out == 0);
  }

  FileWriter& file_;
  z_stream z_{};
  std::array<unsigned char, kRecordPiece> out_;
};

}  // namespace

void write_tfrecords(const std::string& path, RecordCompression compression,
                     const std::function<void(TfRecordSink&)>& writer) {
  write_file_atomically(path, [&](FileWriter& file) {
    if (compression == RecordCompression::gzip) {
      GzipSink sink(file);
      writer(sink);
      sink.finish();
    } else {
      PlainSink sink(file);
      writer(sink);
      sink.flush();
    }
  });
}

}  // namespace pl
