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
#include "data/pipeline/file_sources.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

struct FixedFiles {
  std::vector<File> files;
  std::vector<int64_t> ends;  // of each file's records
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
    if (bytes < 0 || bytes % record != 0)
      throw DataError("[data] " + path + ": expected a header of " +
                      std::to_string(options.header_bytes) + " bytes, records of " +
                      std::to_string(record) + " and a footer of " +
                      std::to_string(options.footer_bytes) + ", received a file of " +
                      std::to_string(open->files.back().size()));
    open->ends.push_back(count += bytes / record);
  }
  const Bytes header = options.header_bytes;
  return Dataset(reader_stage(
      "fixed_length_record", {{{"record", Dtype::uint8, Shape{record}}}}, count,
      [open = std::shared_ptr<const FixedFiles>(open), record, header](int64_t i) {
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
Dataset streamed_fixed(const std::vector<std::string>& files, Bytes record,
                       const FixedLengthOptions& options) {
  struct State {
    std::optional<ByteStream> stream;
    std::string held;
  };
  const Bytes header = options.header_bytes, footer = options.footer_bytes;
  return Dataset(generator_stage(
      {{{"record", Dtype::uint8, Shape{record}}}},
      [files, record, header, footer] {
        return [files, record, header, footer, file = size_t{0},
                state = std::make_shared<State>()]() mutable -> std::optional<Element> {
          for (; file < files.size(); ++file, state->stream.reset(), state->held.clear()) {
            if (!state->stream) {
              state->stream.emplace(files[file]);
              state->stream->skip(header, "a header");
            }
            std::string& held = state->held;
            const size_t before = held.size(), wanted = static_cast<size_t>(record + footer);
            held.resize(wanted);
            const Bytes got =
                state->stream->read(held.data() + before, static_cast<Bytes>(wanted - before));
            held.resize(before + static_cast<size_t>(got));
            if (held.size() == wanted) {
              Tensor out(Meta{Dtype::uint8, Shape{record}});
              std::memcpy(out.data(), held.data(), static_cast<size_t>(record));
              held.erase(0, static_cast<size_t>(record));
              return Element(1, out);
            }
            if (static_cast<Bytes>(held.size()) != footer)
              throw DataError("[data] " + files[file] + ": expected records of " +
                              std::to_string(record) + " bytes and a footer of " +
                              std::to_string(footer) + ", received " + std::to_string(held.size()) +
                              " bytes at its end");
          }
          return {};
        };
      },
      {.key = edges(options), .contents = files_identity(files)}));
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
    return ByteStream(path).compressed();
  });
  return options.compressed && !plain ? streamed_fixed(files, record_bytes, options)
                                      : indexed_fixed(files, record_bytes, options);
}

Dataset cifar_dataset(const std::vector<std::string>& files, CifarKind kind) {
  const auto open = std::make_shared<const CifarFiles>(files, kind);
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
