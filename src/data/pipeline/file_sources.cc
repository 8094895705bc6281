#include "data/pipeline/file_sources.h"

#include <glob.h>
#include <sys/stat.h>

#include <algorithm>
#include <memory>

#include "base/error.h"
#include "data/byte_stream.h"
#include "data/pipeline/file_pull.h"
#include "data/pipeline/stages.h"

namespace pl {
namespace {

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

}  // namespace pl
