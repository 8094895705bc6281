// Data sets over files of records: TFRecords with their Examples, samples in tar shards.
#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "data/example.h"
#include "data/pipeline/file_pull.h"
#include "data/pipeline/file_sources.h"
#include "data/pipeline/stages.h"
#include "data/tar.h"
#include "data/tfrecord.h"

namespace pl {
namespace {

// Records at places of several files, found by number.
struct Shards {
  struct Place {
    int32_t file;
    RecordPlace at;
  };
  std::vector<File> files;
  std::vector<Place> places;
  DamagedPlaces damaged;
  Bytes longest = 1;
};

Dataset indexed_records(const std::vector<std::string>& files) {
  auto shards = std::make_shared<Shards>();
  for (const std::string& path : files) {
    shards->files.push_back(File::open(path));
    const auto file = static_cast<int32_t>(shards->files.size()) - 1;
    std::string damage;
    for (const RecordPlace& place : index_tfrecords(shards->files.back(), &damage)) {
      shards->places.push_back({file, place});
      shards->longest = std::max(shards->longest, place.bytes);
    }
    if (damage.empty()) continue;
    shards->damaged.add(static_cast<int64_t>(shards->places.size()), damage);
    shards->places.push_back({file, {}});
  }
  const auto count = static_cast<int64_t>(shards->places.size());
  const Bytes longest = shards->longest;
  return Dataset(reader_stage(
      "tfrecord", bytes_spec("record"), count,
      [shards = std::shared_ptr<const Shards>(shards)](int64_t i) {
        shards->damaged.raise(i);
        const Shards::Place& place = shards->places[static_cast<size_t>(i)];
        Tensor record = bytes_tensor(place.at.bytes);
        read_tfrecord(shards->files[static_cast<size_t>(place.file)], place.at, record.data());
        return Element{record};
      },
      {.max_bytes = longest,
       .beside = static_cast<Bytes>(count * sizeof(Shards::Place)) + shards->damaged.bytes(),
       .contents = files_identity(files)}));
}

class RecordReader final : public FileReader {
 public:
  RecordReader(const std::string& path, Bytes most) : reader_(path), most_(most) {}
  std::optional<Element> next() override {
    const std::optional<Bytes> bytes = reader_.next();
    if (!bytes) return {};
    // The length is the file's word: it is looked at before there is room for it.
    if (most_ > 0 && *bytes > most_)
      throw DataError("[tfrecord] " + reader_.path() + ": expected records of at most " +
                      format_bytes(most_) + ", received " + format_bytes(*bytes) +
                      "; raise max_bytes");
    Tensor record = bytes_tensor(*bytes);
    reader_.read(record.data());
    return Element(1, record);
  }
  bool goes_on() const override { return reader_.in_step(); }

 private:
  TfRecordReader reader_;
  const Bytes most_;
};

Dataset streamed_records(const std::vector<std::string>& files, const RecordOptions& options) {
  const Bytes most = options.max_bytes.value();
  const OpenFile open = [most](const std::string& path) {
    return std::make_unique<RecordReader>(path, most);
  };
  return Dataset(
      generator_stage(bytes_spec("record"), [files, open] { return pull_files(files, open); },
                      {.max_bytes = most, .contents = files_identity(files), .goes_on = true}));
}

Tensor numbers_of(const Feature* feature, const FieldSpec& spec) {
  const std::string where = "feature " + spec.name;
  if (!feature) throw DataError(where + ": expected one, received none");
  if (spec.dtype == Dtype::uint8) {
    if (feature->kind != Feature::bytes || feature->bytes_list.size() != 1)
      throw DataError(where + ": expected one byte string, received another kind or number");
    return bytes_tensor(feature->bytes_list[0]);
  }
  Tensor out(Meta{spec.dtype, spec.shape});
  const auto wanted = static_cast<size_t>(spec.shape.elements());
  const bool floats = spec.dtype == Dtype::float32;
  const size_t given = floats ? feature->float_list.size() : feature->int64_list.size();
  if (feature->kind != (floats ? Feature::floats : Feature::integers) || given != wanted)
    throw DataError(where + ": expected " + std::to_string(wanted) +
                    (floats ? " floats" : " integers") + ", received " + std::to_string(given) +
                    " or another kind");
  const void* from = floats ? static_cast<const void*>(feature->float_list.data())
                            : static_cast<const void*>(feature->int64_list.data());
  if (wanted > 0) std::memcpy(out.data(), from, static_cast<size_t>(out.meta().bytes()));
  return out;
}

// Samples of several archives, found by number.
struct TarShards {
  struct Sample {
    int32_t file;
    std::vector<RecordPlace> parts;
  };
  std::vector<File> files;
  std::vector<Sample> samples;
  DamagedPlaces damaged;
  Bytes longest = 1;

  // Of the last file.
  void add(const TarSample& sample, const std::vector<std::string>& parts) {
    Sample found{static_cast<int32_t>(files.size()) - 1, {}};
    std::string why = sample.damage;
    Bytes bytes = 0;
    for (const std::string& part : parts) {
      const auto at = std::find_if(sample.parts.begin(), sample.parts.end(),
                                   [&](const TarEntry& entry) { return entry.name == part; });
      if (at == sample.parts.end()) {
        if (why.empty())
          why = "[tar] " + files.back().path() + ": sample " + sample.key + ": expected a part " +
                part + ", received none";
        break;
      }
      found.parts.push_back({at->at, at->bytes});
      bytes += granted(at->bytes);
    }
    if (why.empty())
      longest = std::max(longest, bytes);
    else
      damaged.add(static_cast<int64_t>(samples.size()), std::move(why));
    samples.push_back(std::move(found));
  }
};

}  // namespace

Dataset tfrecord_dataset(const std::vector<std::string>& files, const RecordOptions& options) {
  require_files(files, "tfrecord_dataset");
  const bool plain = std::none_of(files.begin(), files.end(), is_compressed_tfrecord);
  return plain ? indexed_records(files) : streamed_records(files, options);
}

Dataset parse_examples(const Dataset& records, const std::vector<FieldSpec>& features,
                       const MapOptions& options) {
  MapOptions parse = options;
  if (parse.name == "map") parse.name = "parse_example";
  for (const FieldSpec& feature : features) {
    const bool bytes = feature.dtype == Dtype::uint8 && feature.shape == Shape{kUnknown};
    const bool numbers =
        (feature.dtype == Dtype::float32 || feature.dtype == Dtype::int64) && feature.known();
    if (!bytes && !numbers)
      throw UserError(
          "[data] parse_examples: expected float32 or int64 of a known shape, or uint8 (?,), "
          "received " +
          feature.text() + "; a map behind it makes other dtypes of them");
  }
  parse.spec = ElementSpec{features};
  return records.map(
      [features](const Element& in) {
        const Example example = parse_example(
            {in[0].data_as<const char>(), static_cast<size_t>(in[0].meta().bytes())}, "record");
        Element out;
        for (const FieldSpec& feature : features)
          out.push_back(numbers_of(example.find(feature.name), feature));
        return out;
      },
      parse);
}

Dataset tar_dataset(const std::vector<std::string>& files, const std::vector<std::string>& parts) {
  require_files(files, "tar_dataset");
  auto archive = std::make_shared<TarShards>();
  for (const std::string& path : files) {
    archive->files.push_back(File::open(path));
    const File& file = archive->files.back();
    for (const TarSample& sample : group_tar(index_tar(file, OnError::skip), path, OnError::skip))
      archive->add(sample, parts);
  }
  ElementSpec spec;
  for (const std::string& part : parts)
    spec.fields.push_back({part, Dtype::uint8, Shape{kUnknown}});
  const auto count = static_cast<int64_t>(archive->samples.size());
  const Bytes each = static_cast<Bytes>(sizeof(TarShards::Sample)) +
                     static_cast<Bytes>(parts.size() * sizeof(RecordPlace));
  const SourceFacts facts{.max_bytes = archive->longest,
                          .beside = count * each + archive->damaged.bytes(),
                          .contents = files_identity(files)};
  return Dataset(reader_stage(
      "tar", spec, count,
      [archive = std::shared_ptr<const TarShards>(archive)](int64_t i) {
        archive->damaged.raise(i);
        const TarShards::Sample& sample = archive->samples[static_cast<size_t>(i)];
        Element out;
        for (const RecordPlace& part : sample.parts) {
          Tensor& bytes = out.emplace_back(bytes_tensor(part.bytes));
          archive->files[static_cast<size_t>(sample.file)].pread_exact(bytes.data(), part.bytes,
                                                                       part.at);
        }
        return out;
      },
      facts));
}

}  // namespace pl
