#include "data/pipeline/file_sources.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstring>
#include <memory>

#include "base/error.h"
#include "data/byte_stream.h"
#include "data/example.h"
#include "data/pipeline/file_pull.h"
#include "data/pipeline/stages.h"
#include "data/tar.h"
#include "data/tfrecord.h"

namespace pl {
namespace {

ElementSpec bytes_spec(const char* name) { return {{{name, Dtype::uint8, Shape{kUnknown}}}}; }

Tensor bytes_tensor(Bytes bytes) { return Tensor(Meta{Dtype::uint8, Shape{bytes}}); }

Tensor bytes_tensor(std::string_view text) {
  Tensor tensor = bytes_tensor(static_cast<Bytes>(text.size()));
  if (!text.empty()) std::memcpy(tensor.data(), text.data(), text.size());
  return tensor;
}

void require_files(const std::vector<std::string>& files, const char* what) {
  if (files.empty())
    throw UserError("[data] " + std::string(what) +
                    ": expected files, received none; list_files(pattern) finds them");
}

// Records at places of several files, found by number.
struct Shards {
  struct Place {
    int32_t file;
    RecordPlace at;
  };
  std::vector<File> files;
  std::vector<Place> places;
  Bytes longest = 1;
};

bool is_compressed(const std::string& path) { return ByteStream(path).compressed(); }

Dataset indexed_records(const std::vector<std::string>& files) {
  auto shards = std::make_shared<Shards>();
  for (const std::string& path : files) {
    shards->files.push_back(File::open(path));
    for (const RecordPlace& place : index_tfrecords(shards->files.back())) {
      shards->places.push_back({static_cast<int32_t>(shards->files.size()) - 1, place});
      shards->longest = std::max(shards->longest, place.bytes);
    }
  }
  const auto count = static_cast<int64_t>(shards->places.size());
  const Bytes longest = shards->longest;
  return Dataset(reader_stage("tfrecord", bytes_spec("record"), count,
                              [shards = std::shared_ptr<const Shards>(shards)](int64_t i) {
                                const Shards::Place& place = shards->places[static_cast<size_t>(i)];
                                Tensor record = bytes_tensor(place.at.bytes);
                                read_tfrecord(shards->files[static_cast<size_t>(place.file)],
                                              place.at, record.data());
                                return Element{record};
                              },
                              {.max_bytes = longest,
                               .beside = static_cast<Bytes>(count * sizeof(Shards::Place)),
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

void put_number(Tensor& to, std::string_view field, const std::string& where) {
  switch (to.dtype()) {
    case Dtype::float32:
      *to.data_as<float>() = static_cast<float>(parse_real(field, where));
      return;
    case Dtype::float64:
      *to.data_as<double>() = parse_real(field, where);
      return;
    case Dtype::int32: {
      const int64_t value = parse_integer(field, where);
      if (value != static_cast<int32_t>(value))
        throw DataError(where + ": expected a number of 32 bits, received " + std::string(field));
      *to.data_as<int32_t>() = static_cast<int32_t>(value);
      return;
    }
    default:
      *to.data_as<int64_t>() = parse_integer(field, where);
  }
}

// Where the wanted columns are in a file.
std::vector<size_t> find_columns(const CsvReader& reader, const std::vector<FieldSpec>& wanted) {
  std::vector<size_t> places;
  for (size_t c = 0; c < wanted.size(); ++c) {
    const auto& names = reader.columns();
    const auto at = std::find(names.begin(), names.end(), wanted[c].name);
    if (!names.empty() && at == names.end())
      throw DataError("[csv] " + reader.path() + ": expected a column " + wanted[c].name +
                      ", received none of that name");
    if (std::count(names.begin(), names.end(), wanted[c].name) > 1)
      throw DataError("[csv] " + reader.path() + ": expected one column " + wanted[c].name +
                      ", received several of that name; give them names of their own");
    places.push_back(names.empty() ? c : static_cast<size_t>(at - names.begin()));
  }
  return places;
}

class RowReader final : public FileReader {
 public:
  RowReader(const std::string& path, const std::vector<FieldSpec>& columns,
            const CsvOptions& options)
      : columns_(columns), reader_(path, options), places_(find_columns(reader_, columns)) {}
  std::optional<Element> next() override {
    in_row_ = false;
    if (!reader_.next(fields_)) return {};
    in_row_ = true;
    Element out;
    for (size_t c = 0; c < columns_.size(); ++c) {
      const std::string where = "[csv] " + reader_.path() + ", line " +
                                std::to_string(reader_.line()) + ", column " + columns_[c].name;
      if (places_[c] >= fields_.size())
        throw DataError(where + ": expected a field, the row has none");
      Tensor& number = out.emplace_back(Meta{columns_[c].dtype, Shape()});
      put_number(number, fields_[places_[c]], where);
    }
    return out;
  }
  bool goes_on() const override { return in_row_ || reader_.goes_on(); }

 private:
  const std::vector<FieldSpec> columns_;
  CsvReader reader_;
  const std::vector<size_t> places_;
  std::vector<std::string_view> fields_;
  bool in_row_ = false;
};

class LineReader final : public FileReader {
 public:
  LineReader(const std::string& path, Bytes most) : stream_(path), most_(most) {}
  std::optional<Element> next() override {
    line_.clear();
    reading_ = true;
    bool some = false;  // an empty line is one too
    for (bool ended = false; !ended;) {
      if (at_ == piece_.size() && !fill()) break;
      some = true;
      const size_t end = piece_.find('\n', at_), until = std::min(end, piece_.size());
      // Of one that is too long no more is held.
      if (static_cast<Bytes>(line_.size()) <= most_) line_.append(piece_, at_, until - at_);
      ended = end != std::string::npos;
      at_ = until + (ended ? 1 : 0);
    }
    reading_ = false;
    if (!some) return {};
    if (static_cast<Bytes>(line_.size()) > most_)
      throw DataError("[text] " + stream_.path() + ": expected lines of at most " +
                      format_bytes(most_) + "; raise max_bytes");
    if (line_.ends_with('\r')) line_.pop_back();
    return Element(1, bytes_tensor(line_));
  }
  bool goes_on() const override { return !reading_; }

 private:
  bool fill() {
    piece_.resize(16 * 1024);
    const Bytes got = stream_.read(piece_.data(), static_cast<Bytes>(piece_.size()));
    piece_.resize(static_cast<size_t>(got));
    at_ = 0;
    return got > 0;
  }

  ByteStream stream_;
  const Bytes most_;
  std::string piece_, line_;
  size_t at_ = 0;
  bool reading_ = false;
};

}  // namespace

std::vector<std::string> list_files(const std::string& pattern) {
  struct stat itself {};
  if (stat(pattern.c_str(), &itself) == 0 && S_ISREG(itself.st_mode)) return {pattern};
  glob_t found{};
  const int status = glob(pattern.c_str(), 0, nullptr, &found);
  std::vector<std::string> files;
  for (size_t i = 0; status == 0 && i < found.gl_pathc; ++i) {
    struct stat facts {};
    if (stat(found.gl_pathv[i], &facts) == 0 && S_ISREG(facts.st_mode))
      files.emplace_back(found.gl_pathv[i]);
  }
  globfree(&found);
  if (files.empty())
    throw DataError("[data] " + pattern +
                    ": expected files that match, received none; patterns are a shell's, and "
                    "folders do not count");
  std::sort(files.begin(), files.end());  // by bytes, whatever the locale
  return files;
}

Dataset tfrecord_dataset(const std::vector<std::string>& files, const RecordOptions& options) {
  require_files(files, "tfrecord_dataset");
  const bool plain = std::none_of(files.begin(), files.end(), is_compressed);
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

Dataset text_line_dataset(const std::vector<std::string>& files, const RecordOptions& options) {
  require_files(files, "text_line_dataset");
  const Bytes given = options.max_bytes.value(), most = given > 0 ? given : 64 * kKiB;
  const OpenFile open = [most](const std::string& path) {
    return std::make_unique<LineReader>(path, most);
  };
  return Dataset(generator_stage(
      bytes_spec("line"), [files, open] { return pull_files(files, open); },
      {.max_bytes = given, .most = most, .contents = files_identity(files), .goes_on = true}));
}

Dataset csv_dataset(const std::vector<std::string>& files, const std::vector<FieldSpec>& columns,
                    const CsvOptions& options) {
  require_files(files, "csv_dataset");
  for (const FieldSpec& column : columns) {
    const bool number = size_of(column.dtype) >= 4;
    if (!number || column.shape.rank() != 0)
      throw UserError("[data] csv_dataset: expected numbers of 32 or 64 bits, received " +
                      column.text() + "; text_line_dataset has whole lines");
  }
  const OpenFile open = [columns, options](const std::string& path) {
    return std::make_unique<RowReader>(path, columns, options);
  };
  return Dataset(generator_stage(
      ElementSpec{columns}, [files, open] { return pull_files(files, open); },
      {.key = std::string(1, options.delimiter) + (options.header ? " header" : "") +
              (options.skip_empty_lines ? "" : " empty lines"),
       .contents = files_identity(files),
       .goes_on = true}));
}

Dataset tar_dataset(const std::vector<std::string>& files, const std::vector<std::string>& parts) {
  require_files(files, "tar_dataset");
  struct Sample {
    int32_t file;
    std::vector<RecordPlace> parts;
  };
  struct Archive {
    std::vector<File> files;
    std::vector<Sample> samples;
  };
  auto archive = std::make_shared<Archive>();
  Bytes longest = 1;
  for (const std::string& path : files) {
    archive->files.push_back(File::open(path));
    const auto number = static_cast<int32_t>(archive->files.size()) - 1;
    for (const TarSample& sample : group_tar(index_tar(archive->files.back()), path)) {
      Sample found{number, {}};
      Bytes bytes = 0;
      for (const std::string& part : parts) {
        const auto at = std::find_if(sample.parts.begin(), sample.parts.end(),
                                     [&](const TarEntry& entry) { return entry.name == part; });
        if (at == sample.parts.end())
          throw DataError("[tar] " + path + ": sample " + sample.key + ": expected a part " + part +
                          ", received none");
        found.parts.push_back({at->at, at->bytes});
        bytes += granted(at->bytes);
      }
      longest = std::max(longest, bytes);
      archive->samples.push_back(std::move(found));
    }
  }
  ElementSpec spec;
  for (const std::string& part : parts)
    spec.fields.push_back({part, Dtype::uint8, Shape{kUnknown}});
  const auto count = static_cast<int64_t>(archive->samples.size());
  const auto index_bytes = static_cast<Bytes>(
      archive->samples.size() * (sizeof(Sample) + parts.size() * sizeof(RecordPlace)));
  return Dataset(reader_stage(
      "tar", spec, count,
      [archive = std::shared_ptr<const Archive>(archive)](int64_t i) {
        const Sample& sample = archive->samples[static_cast<size_t>(i)];
        Element out;
        for (const RecordPlace& part : sample.parts) {
          Tensor& bytes = out.emplace_back(bytes_tensor(part.bytes));
          archive->files[static_cast<size_t>(sample.file)].pread_exact(bytes.data(), part.bytes,
                                                                       part.at);
        }
        return out;
      },
      {.max_bytes = longest, .beside = index_bytes, .contents = files_identity(files)}));
}

Dataset decode_images(const Dataset& data, const std::string& field, const DecodeOptions& decode,
                      const MapOptions& options,
                      const std::optional<ResizedCropOptions>& random_crop) {
  MapOptions map = options;
  if (map.name == "map") map.name = "decode_images";
  ElementSpec spec = data.element_spec();
  const auto at = std::find_if(spec.fields.begin(), spec.fields.end(),
                               [&](const FieldSpec& f) { return f.name == field; });
  if (at == spec.fields.end() || at->dtype != Dtype::uint8)
    throw UserError("[data] " + map.name + ": expected bytes in a field " + field +
                    ", received elements of " + spec.text() + "; name the field that has them");
  expect_image_size(map.name.c_str(), decode.size);
  at->shape = Shape{decode.size.height, decode.size.width, 3};
  const auto place = static_cast<size_t>(at - spec.fields.begin());
  const Meta meta{Dtype::uint8, at->shape};
  MapFacts facts{.spec = spec,
                 .parallel = parallel_calls(map),
                 .max_bytes = map.max_bytes.value(),
                 .bytes_per_byte = 1,  // the other fields are the input's
                 .more_bytes = meta.bytes(),
                 .scratch = map.scratch.value() > 0 ? map.scratch.value() : decode.scratch,
                 .beside = map.beside.value(),
                 .random = random_crop.has_value(),
                 .key = map.key + "|" + field + "|" + decode_key(decode, random_crop)};
  const auto read = [place, meta](const Element& in, const DecodeOptions& how) {
    Element out = in;
    out[place] = Tensor(meta);
    decode_image("an image", in[place], how, out[place].data_as<uint8_t>());
    return out;
  };
  const auto function = [read, decode, random_crop](const Element& in, uint64_t number) {
    return read(in, random_crop ? with_random_crop(decode, *random_crop, number) : decode);
  };
  if (map.scratch.value() == 0 && decode.scratch == kDecodeScratch)
    facts.roomy = [read, decode, random_crop](const Element& in, uint64_t number, Bytes room) {
      DecodeOptions how = random_crop ? with_random_crop(decode, *random_crop, number) : decode;
      how.scratch = room;
      return read(in, how);
    };
  return Dataset(map_stage(data.stage(), function, std::move(facts), map.name))
      .with_options(data.options());
}

}  // namespace pl
