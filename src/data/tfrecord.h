// TFRecord files: length (u64), its masked CRC, the record, its masked CRC; the whole perhaps in
// gzip or zlib.
#pragma once

#include <functional>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "data/byte_stream.h"

namespace pl {

// One record after the other. The length comes first, so that a reader can find room for it.
class TfRecordReader {
 public:
  explicit TfRecordReader(const std::string& path);

  // The next record's bytes, or nothing at the end. Throws DataError for a wrong CRC, and for a
  // length that the file cannot hold.
  std::optional<Bytes> next();
  // The record that `next` found; without it, the next call of `next` skips it.
  void read(void* to);
  int64_t records() const { return records_; }  // found so far
  // Behind an exception: whether the next record is where it is expected.
  bool in_step() const { return in_step_; }
  const std::string& path() const { return stream_.path(); }

 private:
  std::string where() const;

  ByteStream stream_;
  std::optional<Bytes> waiting_;  // found and not read
  int64_t records_ = 0;
  bool in_step_ = true;
};

// Whether its records are in gzip or zlib. A length with its CRC says that they are not, whatever
// bytes it has.
bool is_compressed_tfrecord(const std::string& path);

// Where a plain file's records lie, by hopping from length to length: then they can be read in any
// order. The rest of a file cannot be found behind damage: DataError, or, where `damage` is given,
// what the error would have said.
struct RecordPlace {
  ByteOffset at = 0;
  Bytes bytes = 0;
};
std::vector<RecordPlace> index_tfrecords(const File& file, std::string* damage = nullptr);
// Reads one and checks its CRC.
void read_tfrecord(const File& file, const RecordPlace& place, void* to);

enum class RecordCompression : uint8_t { none, gzip };

// What stands before and behind a record in a file.
struct RecordFrame {
  std::string head, tail;
};
RecordFrame record_frame(std::string_view record);

// Where the callback below puts its records.
class TfRecordSink {
 public:
  virtual ~TfRecordSink() = default;
  void write(std::string_view record);

 protected:
  virtual void put(std::string_view bytes) = 0;
};

// Writes a file that appears whole under its name, or not at all (base/file.h).
void write_tfrecords(const std::string& path, RecordCompression compression,
                     const std::function<void(TfRecordSink&)>& writer);

}  // namespace pl
