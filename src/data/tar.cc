#include "data/tar.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>
#include <set>
#include <utility>

#include "base/error.h"

namespace pl {
namespace {

constexpr Bytes kBlock = 512;
constexpr Bytes kMostName = 64 * kKiB;  // of a pax header or a GNU long name

using Block = std::array<char, kBlock>;

std::string_view field(const Block& block, size_t at, size_t size) {
  const std::string_view whole(block.data() + at, size);
  return whole.substr(0, std::min(size, whole.find('\0')));
}

class TarIndex {
 public:
  TarIndex(const File& file, OnError on_error) : file_(file), on_error_(on_error) {}

  std::vector<TarEntry> run() {
    for (bool more = true; more && at_ < file_.size();) {
      next_ = -1;
      try {
        more = header();
      } catch (const DataError& error) {
        if (on_error_ == OnError::stop) throw;
        entries_.push_back({.name = {}, .damage = error.what()});
        name_.reset();
        size_.reset();
        more = next_ >= at_;
        if (more) at_ = next_;
      }
    }
    return std::move(entries_);
  }

 private:
  // False: the end.
  bool header() {
    Block block;
    if (file_.size() - at_ < kBlock)
      fail("blocks of 512 bytes", "a last one of " + std::to_string(file_.size() - at_));
    file_.pread_exact(block.data(), kBlock, at_);
    if (at_ == 0 && block[0] == '\x1F' && block[1] == '\x8B')
      throw DataError("[data] " + file_.path() + ": expected a plain tar archive, received gzip; " +
                      "gunzip it, since its files are read in any order");
    if (block.front() == 0 && field(block, 148, 8).empty()) return false;  // two of them end it
    check_sum(block);
    at_ += kBlock;
    entry(block);
    return true;
  }

  [[noreturn]] void fail(const std::string& expected, const std::string& received) const {
    throw DataError("[data] " + file_.path() + ", byte " + std::to_string(at_) + ": expected " +
                    expected + ", received " + received +
                    "; the file is damaged, or no tar archive");
  }

  int64_t octal(std::string_view digits) const {
    // GNU's binary numbers: a first byte of 0x80, then 88 bits from the left, of which 63 may be
    // set.
    if (!digits.empty() && static_cast<unsigned char>(digits[0]) == 0x80) {
      uint64_t value = 0;
      for (char c : digits.substr(1)) {
        if (value >> 55) fail("a size of less than 2^63 bytes", "a larger one");
        value = value << 8 | static_cast<unsigned char>(c);
      }
      return static_cast<int64_t>(value);
    }
    while (!digits.empty() && digits.front() == ' ') digits.remove_prefix(1);
    while (!digits.empty() && (digits.back() == ' ' || digits.back() == '\0'))
      digits.remove_suffix(1);
    int64_t value = 0;
    const auto [end, error] =
        std::from_chars(digits.data(), digits.data() + digits.size(), value, 8);
    if (error != std::errc() || end != digits.data() + digits.size() || value < 0)
      fail("an octal number", "'" + std::string(digits) + "'");
    return value;
  }

  void check_sum(const Block& block) const {
    int64_t sum = 0;
    for (size_t i = 0; i < block.size(); ++i)
      sum += i >= 148 && i < 156 ? ' ' : static_cast<unsigned char>(block[i]);
    if (octal(field(block, 148, 8)) != sum) fail("a header with its checksum", "another sum");
  }

  // The data of the header just read; moves behind them.
  TarEntry data_of(Bytes bytes) {
    if (bytes > file_.size() - at_)
      fail("data that end before the file does", "a size of " + std::to_string(bytes) + " bytes");
    const TarEntry found{{}, at_, bytes};
    at_ = behind(bytes);
    return found;
  }
  // Where the next header begins.
  ByteOffset behind(Bytes bytes) const {
    const Bytes padded = (bytes + kBlock - 1) / kBlock * kBlock;
    return at_ + std::min(padded, file_.size() - at_);
  }

  std::string text_of(Bytes bytes) {
    if (bytes > kMostName)
      fail("a name of at most " + std::to_string(kMostName) + " bytes", std::to_string(bytes));
    const TarEntry found = data_of(bytes);
    std::string text(static_cast<size_t>(bytes), '\0');
    file_.pread_exact(text.data(), bytes, found.at);
    return text;
  }

  // Records "LENGTH KEY=VALUE\n", the length counting itself.
  void read_pax(const std::string& text) {
    std::string_view left = text;
    while (!left.empty() && left.front() != '\0') {
      size_t length = 0;
      const auto [digits, error] = std::from_chars(left.data(), left.data() + left.size(), length);
      const auto head = static_cast<size_t>(digits - left.data()) + 1;
      if (error != std::errc() || length > left.size() || length <= head || *digits != ' ' ||
          left[length - 1] != '\n')
        fail("pax records of the form 'LENGTH KEY=VALUE'", "others");
      const std::string_view record = left.substr(head, length - head - 1);
      const size_t equals = record.find('=');
      if (equals == record.npos) fail("pax records of the form 'LENGTH KEY=VALUE'", "others");
      const std::string_view key = record.substr(0, equals), value = record.substr(equals + 1);
      if (key == "path") name_ = value;
      if (key == "size") {
        int64_t size = -1;
        std::from_chars(value.data(), value.data() + value.size(), size);
        if (size < 0) fail("a size in decimal digits", "'" + std::string(value) + "'");
        size_ = size;
      }
      if (key.starts_with("GNU.sparse")) fail("whole files", "a sparse one");
      left.remove_prefix(length);
    }
  }

  std::string name_in(const Block& block) {
    if (name_) return *std::exchange(name_, std::nullopt);
    const std::string name(field(block, 0, 100));
    const bool ustar = std::string_view(block.data() + 257, 6) == std::string_view("ustar\0", 6);
    const std::string_view prefix = ustar ? field(block, 345, 155) : std::string_view();
    return prefix.empty() ? name : std::string(prefix) + "/" + name;
  }

  void check_name(const std::string& name) const {
    std::string_view left = name;
    bool bad = name.empty() || name.front() == '/' || name.find('\0') != name.npos;
    while (!left.empty()) {
      const size_t slash = std::min(left.find('/'), left.size());
      bad = bad || left.substr(0, slash) == "..";
      left.remove_prefix(std::min(slash + 1, left.size()));
    }
    if (bad) fail("names within the archive", "'" + name.substr(0, 80) + "'");
  }

  void entry(const Block& block) {
    const char type = block[156];
    const Bytes stored = octal(field_of_size(block));
    if (type == 'x') return read_pax(text_of(stored));
    if (type == 'g') return (void)text_of(stored);
    if (type == 'L') {
      std::string text = text_of(stored);
      name_ = text.substr(0, text.find('\0'));
      return;
    }
    if (type == 'K') return (void)text_of(stored);
    const std::string name = name_in(block);
    const Bytes bytes = size_ ? *std::exchange(size_, std::nullopt) : stored;
    const bool has_data = type == '0' || type == '\0' || type == '7';
    if (bytes <= file_.size() - at_) next_ = has_data ? behind(bytes) : at_;
    check_name(name);
    if (type == '5') return (void)data_of(0);
    if (!has_data)
      fail("regular files and folders", "'" + name.substr(0, 80) + "' of type '" + type + "'");
    if (type == '\0' && name.back() == '/') return;  // a folder in old archives
    TarEntry found = data_of(bytes);
    found.name = name.starts_with("./") ? name.substr(2) : name;
    entries_.push_back(std::move(found));
  }

  // A binary size has no end mark.
  static std::string_view field_of_size(const Block& block) {
    const std::string_view whole(block.data() + 124, 12);
    return static_cast<unsigned char>(whole[0]) == 0x80 ? whole : field(block, 124, 12);
  }

  const File& file_;
  const OnError on_error_;
  ByteOffset at_ = 0;
  ByteOffset next_ = -1;  // where to go on behind an entry that is refused; -1: nobody knows
  std::optional<std::string> name_;  // from a header for the next entry
  std::optional<Bytes> size_;
  std::vector<TarEntry> entries_;
};

}  // namespace

std::vector<TarEntry> index_tar(const File& file, OnError on_error) {
  return TarIndex(file, on_error).run();
}

std::vector<TarSample> group_tar(const std::vector<TarEntry>& entries, const std::string& path,
                                 OnError on_error) {
  std::vector<TarSample> samples;
  std::set<std::string> keys;
  std::optional<size_t> last;  // sample that is whole so far
  const auto refuse = [&](const TarEntry& entry, std::string why) {
    if (on_error == OnError::stop) throw DataError(why);
    samples.push_back({.key = entry.name, .parts = {}, .damage = std::move(why)});
  };
  const auto again = [&](const TarEntry& entry, const char* expected) {
    refuse(entry, "[data] " + path + ": expected " + expected + ", received '" + entry.name +
                      "' again; write the files of a sample next to each other, each once");
  };
  for (const TarEntry& entry : entries) {
    if (!entry.damage.empty()) {
      refuse(entry, entry.damage);
      continue;
    }
    const size_t slash = entry.name.rfind('/');
    const size_t base = slash == std::string::npos ? 0 : slash + 1;
    const size_t dot = entry.name.find('.', base);
    if (dot == std::string::npos || dot == base) continue;  // no part, or a hidden file
    TarEntry part = entry;
    std::string key = entry.name.substr(0, dot);
    part.name = entry.name.substr(dot + 1);
    if (!last || samples[*last].key != key) {
      if (!keys.insert(key).second) {
        again(entry, "the files of a sample together");
        continue;
      }
      last = samples.size();
      samples.push_back({.key = std::move(key), .parts = {}});
    }
    auto& parts = samples[*last].parts;
    const auto same = [&](const TarEntry& old) { return old.name == part.name; };
    if (std::any_of(parts.begin(), parts.end(), same))
      again(entry, "one file for each part of a sample");
    else
      parts.push_back(std::move(part));
  }
  return samples;
}

}  // namespace pl
