// Data sets over files of records. Bytes are uint8 of unknown length. Names lie in the order given.
#pragma once

#include <string>
#include <vector>

#include "data/cifar.h"
#include "data/csv.h"
#include "data/image/image.h"
#include "data/pipeline/dataset.h"
#include "data/source.h"

namespace pl {

// Regular files that match a pattern such as "data/*.tfrecord", sorted. DataError: none does.
std::vector<std::string> list_files(const std::string& pattern);

struct RecordOptions {
  ByteCount max_bytes =
      {};  // of a record, for streams; plain TFRecords and tars tell by themselves
};

// Records of TFRecord files: "record". Plain files are indexed when this is called, and their
// records can be got in any order; 16 bytes for each are held. Compressed ones are a stream.
Dataset tfrecord_dataset(const std::vector<std::string>& files, const RecordOptions& options = {});

// One feature of tf.train.Example: float32 or int64 with as many numbers as the shape has, or uint8
// (kUnknown): one byte string.
Dataset parse_examples(const Dataset& records, const std::vector<FieldSpec>& features,
                       const MapOptions& options = {});

// Lines without their ends (LF or CRLF): "line". Files may be gzipped. A stream.
Dataset text_line_dataset(const std::vector<std::string>& files, const RecordOptions& options = {});

// Columns of tables: float32, float64, int32 or int64 scalars, by the names of the header. A
// stream.
Dataset csv_dataset(const std::vector<std::string>& files, const std::vector<FieldSpec>& columns,
                    const CsvOptions& options = {});

// WebDataset: samples of tar shards, one field for each part ("jpg", "cls"); samples without one of
// them are DataError. In any order.
Dataset tar_dataset(const std::vector<std::string>& files, const std::vector<std::string>& parts);

// A field of bytes becomes an image, uint8 (H, W, 3); the others stay. `random_crop`: a part of it,
// another one in each epoch.
Dataset decode_images(const Dataset& data, const std::string& field, const DecodeOptions& decode,
                      const MapOptions& options = {},
                      const std::optional<ResizedCropOptions>& random_crop = {});

// ---- records of one length (array_sources.cc)

struct FixedLengthOptions {
  Bytes header_bytes = 0, footer_bytes = 0;  // of each file
  // Files that begin as gzip or zlib are inflated: a stream. Without it bytes are taken as they
  // are.
  bool compressed = false;
};
// tf.data's FixedLengthRecordDataset: "record", uint8 (record_bytes,). By number in plain files.
Dataset fixed_length_record_dataset(const std::vector<std::string>& files, Bytes record_bytes,
                                    const FixedLengthOptions& options = {});

// CIFAR's binary files: x uint8 (32, 32, 3), y int32.
Dataset cifar_dataset(const std::vector<std::string>& files, CifarKind kind);

// Rows of NumPy arrays, which stay on disk: x, and labels or targets y where given.
Dataset npy_dataset(const std::string& x, const std::string& y = {});
Dataset npz_dataset(const std::string& path);  // arrays x and y
Dataset idx_dataset(const std::string& images, const std::string& labels);
Dataset synthetic_dataset(const SyntheticSpec& spec);

// Names, sizes and times of files: what a snapshot is known by.
uint64_t files_identity(const std::vector<std::string>& files);

}  // namespace pl
