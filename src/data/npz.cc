#include "data/npz.h"

#include <charconv>
#include <optional>

#include "base/error.h"
#include "data/byte_reader.h"
#include "data/cache.h"

namespace pl {
namespace {

constexpr std::string_view kMagic = "\x93NUMPY";
constexpr std::string_view kSuffix = ".npy";
constexpr Bytes kLargestHeader = 64 * kKiB;

struct NpyHeader {
  std::string descr;
  bool fortran_order = false;
  Shape shape;
};

// Reads the header's Python dictionary: {'descr': '<f4', 'fortran_order': False, 'shape': (3, 4),
// }. Only this form is known; nothing is evaluated.
class HeaderParser {
 public:
  HeaderParser(std::string_view text, const std::string& what) : text_(text), what_(what) {}

  NpyHeader parse() {
    NpyHeader header;
    bool seen[3] = {};
    expect('{');
    while (!accept('}')) {
      const std::string key = string();
      expect(':');
      const int which = key == "descr" ? 0 : key == "fortran_order" ? 1 : key == "shape" ? 2 : 3;
      if (which == 3 || seen[which]) throw bad("the key '" + key.substr(0, 40) + "'");
      seen[which] = true;
      if (which == 0) header.descr = description();
      if (which == 1) header.fortran_order = boolean();
      if (which == 2) header.shape = shape();
      if (!accept(',')) {
        expect('}');
        break;
      }
    }
    skip_blanks();
    if (!text_.empty()) throw bad("text after the dictionary");
    if (!seen[0] || !seen[1] || !seen[2]) throw bad("a dictionary without one of them");
    return header;
  }

 private:
  DataError bad(const std::string& received) const {
    return DataError("[npy] " + what_ + ": expected a header with 'descr', 'fortran_order' and " +
                     "'shape', received " + received + "; save it again with numpy");
  }

  void skip_blanks() {
    while (!text_.empty() && (text_.front() == ' ' || text_.front() == '\n'))
      text_.remove_prefix(1);
  }

  bool accept(char c) {
    skip_blanks();
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  void expect(char c) {
    if (!accept(c))
      throw bad(text_.empty()
                    ? "its end too early"
                    : "'" + std::string(text_.substr(0, 20)) + "' where '" + c + "' belongs");
  }

  std::string string() {
    skip_blanks();
    const char quote = text_.empty() ? '\0' : text_.front();
    if (quote != '\'' && quote != '"') throw bad("no string where one belongs");
    const size_t end = text_.find(quote, 1);
    if (end == std::string_view::npos) throw bad("a string without an end");
    const std::string value(text_.substr(1, end - 1));
    text_.remove_prefix(end + 1);
    return value;
  }

  std::string description() {
    if (accept('[')) throw bad("a structured dtype (a plain array is needed)");
    return string();
  }

  bool boolean() {
    skip_blanks();
    for (const std::string_view word : {std::string_view("False"), std::string_view("True")}) {
      if (!text_.starts_with(word)) continue;
      text_.remove_prefix(word.size());
      return word == "True";
    }
    throw bad("no boolean where one belongs");
  }

  Shape shape() {
    std::vector<Dim> dims;
    expect('(');
    while (!accept(')')) {
      skip_blanks();
      Dim dim = 0;
      const auto [end, error] = std::from_chars(text_.data(), text_.data() + text_.size(), dim);
      if (error != std::errc() || dim < 0 || text_.front() == '-')
        throw bad("a dimension that is no 63-bit number");
      text_.remove_prefix(static_cast<size_t>(end - text_.data()));
      dims.push_back(dim);
      if (!accept(',')) {
        expect(')');
        break;
      }
    }
    return Shape(std::move(dims));
  }

  std::string_view text_;
  const std::string& what_;
};

std::optional<Stored> stored_from_descr(std::string_view descr) {
  struct Name {
    std::string_view code;
    Stored stored;
  };
  constexpr Name kNames[] = {
      {"b1", Stored::boolean}, {"u1", Stored::uint8},   {"i1", Stored::int8},
      {"i2", Stored::int16},   {"u2", Stored::uint16},  {"i4", Stored::int32},
      {"u4", Stored::uint32},  {"i8", Stored::int64},   {"u8", Stored::uint64},
      {"f2", Stored::float16}, {"f4", Stored::float32}, {"f8", Stored::float64},
  };
  if (descr.size() != 3) return std::nullopt;
  for (const Name& name : kNames) {
    if (descr.substr(1) != name.code) continue;
    // Single bytes have no order, so any mark will do for them; '>' is big-endian.
    const bool known = descr[0] == '<' || descr[0] == '=' || descr[0] == '|';
    if (size_of(name.stored) == 1 ? known || descr[0] == '>' : descr[0] == '<') return name.stored;
  }
  return std::nullopt;
}

Stored stored_of(const NpyHeader& header, const std::string& what) {
  if (const auto stored = stored_from_descr(header.descr)) return *stored;
  const bool object = header.descr.find('O') != std::string::npos;
  const bool big = header.descr.starts_with('>');
  throw DataError("[npy] " + what +
                  ": expected little-endian numbers or booleans, received dtype '" +
                  header.descr.substr(0, 40) + "'; " +
                  (object ? "pickled objects are never read: stack the samples into one array"
                   : big  ? "convert with array.astype(array.dtype.newbyteorder('<'))"
                          : "convert with array.astype('float32') or another plain dtype"));
}

}  // namespace

DiskArray open_npy(std::shared_ptr<const File> file, ByteOffset at, Bytes bytes,
                   const std::string& what) {
  const auto bad = [&](const std::string& expected, const std::string& received) {
    return DataError("[npy] " + what + ": expected " + expected + ", received " + received +
                     "; the file is truncated, damaged or no array of numpy");
  };
  std::string start(static_cast<size_t>(std::min<Bytes>(bytes, 12)), '\0');
  file->pread_exact(start.data(), static_cast<Bytes>(start.size()), at);
  ByteReader reader(start, what);
  if (reader.take(kMagic.size()) != kMagic) throw bad("the magic bytes of .npy", "others");
  const int major = reader.take(1)[0];
  const int minor = reader.take(1)[0];
  if (major < 1 || major > 3 || minor != 0)
    throw bad("version 1.0, 2.0 or 3.0", std::to_string(major) + "." + std::to_string(minor));
  const Bytes length = major == 1 ? Bytes{reader.u16()} : Bytes{reader.u32()};
  const Bytes prefix = major == 1 ? 10 : 12;
  if (length > kLargestHeader || length > bytes - prefix)
    throw bad("a header within the array's " + std::to_string(bytes) + " bytes and 64 KiB",
              std::to_string(length) + " bytes");
  std::string text(static_cast<size_t>(length), '\0');
  file->pread_exact(text.data(), length, at + prefix);
  NpyHeader header = HeaderParser(text, what).parse();
  const Stored stored = stored_of(header, what);
  if (header.fortran_order && header.shape.rank() > 1)
    throw DataError("[npy] " + what + ": expected C (row-major) order, received fortran_order; " +
                    "save numpy.ascontiguousarray(array)");
  const Bytes data = checked_bytes(header.shape, size_of(stored), what);
  if (data != bytes - prefix - length)
    throw bad(std::to_string(data) + " bytes for " + std::string(name_of(stored)) + " " +
                  header.shape.text(),
              std::to_string(bytes - prefix - length));
  return {std::move(file), at + prefix + length, stored, std::move(header.shape), what};
}

NpzFile::NpzFile(const std::string& path)
    : file_(std::make_shared<const File>(File::open(path))), members_(read_zip_directory(*file_)) {}

std::vector<std::string> NpzFile::names() const {
  std::vector<std::string> names;
  for (const ZipMember& member : members_)
    if (member.name.ends_with(kSuffix))
      names.push_back(member.name.substr(0, member.name.size() - kSuffix.size()));
  return names;
}

const ZipMember* NpzFile::find(std::string_view name) const {
  for (const ZipMember& member : members_)
    if (member.name.size() == name.size() + kSuffix.size() && member.name.starts_with(name) &&
        member.name.ends_with(kSuffix))
      return &member;
  return nullptr;
}

DiskArray NpzFile::open(std::string_view name) const {
  const std::string what = file_->path() + ": array " + std::string(name);
  const ZipMember* member = find(name);
  if (!member) {
    std::string list;
    for (const std::string& found : names())
      if (list.size() < 200) list += (list.empty() ? "" : ", ") + found;
    throw DataError("[npz] " + what + ": expected an array of this name, received " +
                    (list.empty() ? "an archive without arrays" : list) +
                    "; save with numpy.savez(file, x=..., y=...)");
  }
  if (member->deflated) {
    const Section section{member->data_at, member->compressed, Compression::deflate};
    auto copy = std::make_shared<const File>(
        inflated_copy(*file_, section, member->uncompressed, member->crc, what));
    const Bytes bytes = copy->size();
    return open_npy(std::move(copy), 0, bytes, what);
  }
  if (crc_of(*file_, member->data_at, member->uncompressed) != member->crc)
    throw DataError("[npz] " + what + ": expected data that match their CRC-32, received others; " +
                    "the file is damaged, fetch or make it again");
  return open_npy(file_, member->data_at, member->uncompressed, what);
}

}  // namespace pl
