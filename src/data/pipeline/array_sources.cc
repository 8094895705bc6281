// Data sets over files whose records have one length: arrays, CIFAR, records as such.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "base/hash.h"
#include "data/array_source.h"
#include "data/byte_stream.h"
#include "data/npz.h"
#include "data/pipeline/dataset_source.h"
#include "data/pipeline/file_pull.h"
#include "data/pipeline/file_sources.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

struct FixedFiles {
  std::vector<File> files;
  std::vector<int64_t> ends;  // of each file's records
  DamagedPlaces damaged;
};

std::string edges(const FixedLengthOptions& options) {
  return std::to_string(options.header_bytes) + "+" + std::to_string(options.footer_bytes);
}

// Plain files: records by number.
Dataset indexed_fixed(const std::vector<std::string>& files, Bytes record,
                      const FixedLengthOptions& options) {
  auto open = std::make_shared<FixedFiles>();
  int64_t count = 0;
  for (const std::string& path : files) {
    open->files.push_back(File::open(path));
    const Bytes bytes = open->files.back().size() - options.header_bytes - options.footer_bytes;
    if (bytes >= 0 && bytes % record == 0)
      count += bytes / record;
    else  // nobody knows where its records begin
      open->damaged.add(count++, "[data] " + path + ": expected a header of " +
                                     std::to_string(options.header_bytes) + " bytes, records of " +
                                     std::to_string(record) + " and a footer of " +
                                     std::to_string(options.footer_bytes) +
                                     ", received a file of " +
                                     std::to_string(open->files.back().size()));
    open->ends.push_back(count);
  }
  const Bytes header = options.header_bytes;
  return Dataset(reader_stage(
      "fixed_length_record", {{{"record", Dtype::uint8, Shape{record}}}}, count,
      [open = std::shared_ptr<const FixedFiles>(open), record, header](int64_t i) {
        open->damaged.raise(i);
        const auto at = static_cast<size_t>(
            std::upper_bound(open->ends.begin(), open->ends.end(), i) - open->ends.begin());
        const int64_t place = i - (at > 0 ? open->ends[at - 1] : 0);
        Tensor out(Meta{Dtype::uint8, Shape{record}});
        open->files[at].pread_exact(out.data(), record, header + place * record);
        return Element{out};
      },
      {.key = edges(options), .contents = files_identity(files)}));
}

// Compressed ones: a stream. The footer is known for one when the file ends behind it, so one of
// its length is held back.
class FixedReader final : public FileReader {
 public:
  FixedReader(const std::string& path, Bytes record, const FixedLengthOptions& options)
      : stream_(path, Packing::gzip_or_zlib), record_(record), footer_(options.footer_bytes) {
    stream_.skip(options.header_bytes, "a header");
  }
  std::optional<Element> next() override {
    const size_t before = held_.size(), wanted = static_cast<size_t>(record_ + footer_);
    held_.resize(wanted);
    const Bytes got = stream_.read(held_.data() + before, static_cast<Bytes>(wanted - before));
    held_.resize(before + static_cast<size_t>(got));
    if (held_.size() == wanted) {
      Tensor out(Meta{Dtype::uint8, Shape{record_}});
      std::memcpy(out.data(), held_.data(), static_cast<size_t>(record_));
      held_.erase(0, static_cast<size_t>(record_));
      return Element(1, out);
    }
    if (static_cast<Bytes>(held_.size()) != footer_)
      throw DataError("[data] " + stream_.path() + ": expected records of " +
                      std::to_string(record_) + " bytes and a footer of " +
                      std::to_string(footer_) + ", received " + std::to_string(held_.size()) +
                      " bytes at its end");
    return {};
  }

 private:
  ByteStream stream_;
  const Bytes record_, footer_;
  std::string held_;
};

Dataset streamed_fixed(const std::vector<std::string>& files, Bytes record,
                       const FixedLengthOptions& options) {
  const OpenFile open = [record, options](const std::string& path) {
    return std::make_unique<FixedReader>(path, record, options);
  };
  return Dataset(
      generator_stage({{{"record", Dtype::uint8, Shape{record}}}},
                      [files, open] { return pull_files(files, open); },
                      {.key = edges(options), .contents = files_identity(files), .goes_on = true}));
}

}  // namespace

uint64_t files_identity(const std::vector<std::string>& files) {
  Xxh3 hash;
  for (const std::string& path : files) {
    const File file = File::open(path);
    hash.update(path + "|" + std::to_string(file.size()) + "|" +
                std::to_string(file.modified_ns()) + ";");
  }
  return hash.digest();
}

Dataset fixed_length_record_dataset(const std::vector<std::string>& files, Bytes record_bytes,
                                    const FixedLengthOptions& options) {
  if (files.empty())
    throw UserError(
        "[data] fixed_length_record_dataset: expected files, received none; list_files(pattern) "
        "finds them");
  constexpr Bytes kMost = Bytes{1} << 31;
  if (record_bytes < 1 || record_bytes > kMost || options.header_bytes < 0 ||
      options.header_bytes > kMost || options.footer_bytes < 0 || options.footer_bytes > kMost)
    throw UserError(
        "[data] fixed_length_record_dataset: expected records of 1 byte or more and headers and "
        "footers of 0 or more, received " +
        std::to_string(record_bytes) + ", " + std::to_string(options.header_bytes) + " and " +
        std::to_string(options.footer_bytes));
  const bool plain = std::none_of(files.begin(), files.end(), [](const std::string& path) {
    return ByteStream(path, Packing::gzip_or_zlib).compressed();
  });
  return options.compressed && !plain ? streamed_fixed(files, record_bytes, options)
                                      : indexed_fixed(files, record_bytes, options);
}

Dataset cifar_dataset(const std::vector<std::string>& files, CifarKind kind) {
  const auto open = std::make_shared<const CifarFiles>(files, kind, OnError::skip);
  return Dataset(reader_stage(
      "cifar", {{{"x", Dtype::uint8, Shape{32, 32, 3}}, {"y", Dtype::int32, Shape()}}},
      open->size(),
      [open](int64_t i) {
        Tensor x(Meta{Dtype::uint8, Shape{32, 32, 3}}), y(Meta{Dtype::int32, Shape()});
        *y.data_as<int32_t>() = open->read(i, x.data_as<uint8_t>());
        return Element{x, y};
      },
      {.key = std::to_string(static_cast<int>(kind)), .contents = files_identity(files)}));
}

Dataset npy_dataset(const std::string& x, const std::string& y) {
  const auto open = [](const std::string& path) {
    auto file = std::make_shared<const File>(File::open(path));
    const Bytes bytes = file->size();
    return open_npy(std::move(file), 0, bytes, path);
  };
  std::vector<std::string> files{x};
  if (!y.empty()) files.push_back(y);
  return Dataset(
      source_stage(y.empty() ? array_source(x, open(x)) : array_source(x, open(x), open(y)),
                   {.contents = files_identity(files)}));
}

Dataset npz_dataset(const std::string& path) {
  return Dataset(source_stage(npz_source(path), {.contents = files_identity({path})}));
}

Dataset idx_dataset(const std::string& images, const std::string& labels) {
  return Dataset(
      source_stage(idx_source(images, labels), {.contents = files_identity({images, labels})}));
}

Dataset synthetic_dataset(const SyntheticSpec& spec) {
  std::string key = "synthetic";
  for (const auto number :
       {spec.vocabulary, spec.classes, int64_t{spec.next_token}, static_cast<int64_t>(spec.seed)})
    key += " " + std::to_string(number);
  return source_dataset(synthetic_source(spec), key);
}

}  // namespace pl
