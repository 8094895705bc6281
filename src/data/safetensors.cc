#include "data/safetensors.h"

#include <algorithm>
#include <numeric>
#include <optional>

#include "base/error.h"
#include "base/json.h"
#include "data/byte_reader.h"
#include "data/disk_array.h"

namespace pl {
namespace {

constexpr Bytes kPrefix = 8;                   // the header's length, little-endian
constexpr Bytes kLongestHeader = 100'000'000;  // the format's own limit
constexpr std::string_view kMetadataKey = "__metadata__";
constexpr std::string_view kRemedy = "; the file is damaged or was not written by safetensors";

struct DtypeName {
  std::string_view name;
  Dtype dtype;
};
constexpr DtypeName kDtypes[] = {
    {"F32", Dtype::float32}, {"F64", Dtype::float64},  {"BF16", Dtype::bfloat16},
    {"F16", Dtype::float16}, {"I32", Dtype::int32},    {"I64", Dtype::int64},
    {"U8", Dtype::uint8},    {"BOOL", Dtype::boolean},
};

std::optional<Dtype> dtype_named(std::string_view name) {
  for (const DtypeName& known : kDtypes)
    if (known.name == name) return known.dtype;
  return std::nullopt;
}

std::string_view format_name(Dtype dtype) {
  for (const DtypeName& known : kDtypes)
    if (known.dtype == dtype) return known.name;
  throw InternalError("[safetensors] a dtype without a name in the format");
}

// Reads and parses the header; returns where the data begin.
Json read_header(const File& file, ByteOffset& data_at) {
  const auto bad = [&](const std::string& expected, const std::string& received) {
    return DataError("[safetensors] " + file.path() + ": expected " + expected + ", received " +
                     received + std::string(kRemedy));
  };
  if (file.size() < kPrefix)
    throw bad("at least 8 bytes", "a file of " + std::to_string(file.size()));
  std::string prefix(kPrefix, '\0');
  file.pread_exact(prefix.data(), kPrefix, 0);
  const uint64_t length = ByteReader(prefix, file.path()).u64();
  // Both limits hold before a byte is allocated for the header.
  if (length > static_cast<uint64_t>(std::min(kLongestHeader, file.size() - kPrefix)))
    throw bad("a header within the file and 100,000,000 bytes", std::to_string(length) + " bytes");
  std::string text(length, '\0');
  file.pread_exact(text.data(), static_cast<Bytes>(length), kPrefix);
  if (!text.starts_with('{')) throw bad("a header that begins with '{'", "another byte");
  data_at = kPrefix + static_cast<Bytes>(length);
  return parse_json(text, file.path() + ": the header of the safetensors file");
}

Metadata read_metadata(const Json& json, const std::string& what) {
  Metadata metadata;
  for (const auto& [key, value] : json.as_object(what))
    metadata.emplace_back(key, value.as_string(what));
  return metadata;
}

SafetensorsFile::Entry read_entry(const std::string& name, const Json& json, ByteOffset data_at,
                                  const File& file) {
  const std::string what = file.path() + ": tensor '" + name.substr(0, 200) + "'";
  const auto bad = [&](const std::string& expected, const std::string& received) {
    return DataError("[safetensors] " + what + ": expected " + expected + ", received " + received +
                     std::string(kRemedy));
  };
  if (json.as_object(what).size() != 3)
    throw bad("dtype, shape and data_offsets",
              std::to_string(json.as_object(what).size()) + " keys");
  SafetensorsFile::Entry entry;
  entry.name = name;
  const std::string& dtype_name = json.at("dtype", what).as_string(what);
  const auto dtype = dtype_named(dtype_name);
  if (!dtype)
    throw DataError("[safetensors] " + what +
                    ": expected dtype F32, F64, BF16, F16, I32, I64, U8 " + "or BOOL, received '" +
                    dtype_name.substr(0, 40) + "'; convert the tensor before saving it");
  std::vector<Dim> dims;
  for (const Json& dim : json.at("shape", what).as_array(what))
    dims.push_back(dim.as_integer(what));
  entry.meta = {*dtype, Shape(std::move(dims))};
  const Json::Array& offsets = json.at("data_offsets", what).as_array(what);
  if (offsets.size() != 2) throw bad("two data_offsets", std::to_string(offsets.size()));
  const int64_t begin = offsets[0].as_integer(what), end = offsets[1].as_integer(what);
  const Bytes room = file.size() - data_at;
  if (begin < 0 || end < begin || end > room)
    throw bad("data_offsets within the " + std::to_string(room) + " bytes of data",
              "[" + std::to_string(begin) + ", " + std::to_string(end) + "]");
  entry.offset = data_at + begin;
  entry.bytes = checked_bytes(entry.meta.shape, size_of(*dtype), what);
  if (entry.bytes != end - begin)
    throw bad(std::to_string(entry.bytes) + " bytes for " + entry.meta.text(),
              std::to_string(end - begin));
  return entry;
}

}  // namespace

SafetensorsFile::SafetensorsFile(const std::string& path) : file_(File::open(path)) {
  ByteOffset data_at = 0;
  const Json header = read_header(file_, data_at);
  for (const auto& [name, json] : header.as_object(path)) {
    if (name == kMetadataKey)
      metadata_ = read_metadata(json, path + ": __metadata__");
    else
      entries_.push_back(read_entry(name, json, data_at, file_));
  }
  std::stable_sort(entries_.begin(), entries_.end(), [](const Entry& a, const Entry& b) {
    return a.offset != b.offset ? a.offset < b.offset : a.bytes < b.bytes;
  });
  // No overlap, no hole, nothing behind the last: bytes that no tensor owns can hide another file.
  ByteOffset at = data_at;
  for (const Entry& entry : entries_) {
    if (entry.offset != at)
      throw DataError("[safetensors] " + path + ": tensor '" + entry.name.substr(0, 200) +
                      "': expected its data at offset " + std::to_string(at - data_at) +
                      ", received " + std::to_string(entry.offset - data_at) +
                      (entry.offset < at ? " (tensors overlap)" : " (bytes between tensors)") +
                      std::string(kRemedy));
    at += entry.bytes;
  }
  if (at != file_.size())
    throw DataError("[safetensors] " + path + ": expected tensors to cover the file, received " +
                    std::to_string(file_.size() - at) + " bytes after the last" +
                    std::string(kRemedy));
  by_name_.resize(entries_.size());
  std::iota(by_name_.begin(), by_name_.end(), 0);
  std::sort(by_name_.begin(), by_name_.end(), [&](int a, int b) {
    return entries_[static_cast<size_t>(a)].name < entries_[static_cast<size_t>(b)].name;
  });
}

const SafetensorsFile::Entry* SafetensorsFile::find(std::string_view name) const {
  const auto at = std::lower_bound(
      by_name_.begin(), by_name_.end(), name,
      [&](int i, std::string_view key) { return entries_[static_cast<size_t>(i)].name < key; });
  if (at == by_name_.end()) return nullptr;
  const Entry& entry = entries_[static_cast<size_t>(*at)];
  return entry.name == name ? &entry : nullptr;
}

void SafetensorsFile::read(std::string_view name, void* destination, Bytes bytes) const {
  const Entry* entry = find(name);
  if (!entry)
    throw DataError("[safetensors] " + path() + ": expected a tensor '" + std::string(name) +
                    "', received a file without it; `plimsoll models NAME --json` lists the names");
  read(*entry, destination, bytes);
}

void SafetensorsFile::read(const Entry& entry, void* destination, Bytes bytes) const {
  if (bytes != entry.bytes)
    throw DataError("[safetensors] " + path() + ": tensor '" + entry.name + "': expected " +
                    std::to_string(bytes) + " bytes, received " + entry.meta.text() + " of " +
                    std::to_string(entry.bytes));
  file_.pread_exact(destination, bytes, entry.offset);
}

void SafetensorsFile::read_part(const Entry& entry, ByteOffset at, void* destination,
                                Bytes bytes) const {
  check(at >= 0 && bytes >= 0 && at <= entry.bytes - bytes, "a part within the tensor");
  file_.pread_exact(destination, bytes, entry.offset + at);
}

void write_safetensors(const std::string& path, std::span<const NamedBytes> tensors,
                       const Metadata& metadata) {
  Json::Object header;
  if (!metadata.empty()) {
    Json::Object entries;
    for (const auto& [key, value] : metadata) entries.emplace_back(key, value);
    header.emplace_back(std::string(kMetadataKey), std::move(entries));
  }
  std::vector<std::string_view> names{kMetadataKey};
  Bytes at = 0;
  for (const NamedBytes& tensor : tensors) {
    names.push_back(tensor.name);
    Json shape = Json::array();
    for (Dim dim : tensor.meta.shape) shape.push(dim);
    const Bytes end = at + tensor.meta.bytes();
    Json entry;
    entry.set("dtype", format_name(tensor.meta.dtype)).set("shape", std::move(shape));
    entry.set("data_offsets", Json::array().push(at).push(end));
    header.emplace_back(tensor.name, std::move(entry));
    at = end;
  }
  std::sort(names.begin(), names.end());
  const auto twin = std::adjacent_find(names.begin(), names.end());
  if (twin != names.end())
    throw UserError("[safetensors] " + path +
                    ": expected each name once and none '__metadata__', " + "received '" +
                    std::string(*twin) + "'; rename the layer");
  std::string text = Json(std::move(header)).dump();
  text.resize(static_cast<size_t>(align_up(static_cast<Bytes>(text.size()), 8)), ' ');
  if (static_cast<Bytes>(text.size()) > kLongestHeader)
    throw UserError("[safetensors] " + path + ": expected a header of at most 100,000,000 bytes, " +
                    "received " + std::to_string(text.size()) + "; save fewer tensors a file");
  write_file_atomically(path, [&](FileWriter& file) {
    unsigned char length[kPrefix];
    for (size_t i = 0; i < kPrefix; ++i)
      length[i] = static_cast<unsigned char>(text.size() >> 8 * i);
    file.write(length, kPrefix);
    file.write(text);
    for (const NamedBytes& tensor : tensors) file.write(tensor.data, tensor.meta.bytes());
  });
}

}  // namespace pl
