// Helpers of the data tests: temporary folders, hand-made files, and the check for DataError.
#pragma once

#include <gtest/gtest.h>
#include <unistd.h>
#include <zlib.h>

#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iterator>
#include <string>
#include <vector>

#include "base/error.h"
#include "tests/places.h"

namespace pl::test {

class TempFolder {
 public:
  TempFolder() {
    // Thousands of small files are quicker where no disk is behind them.
    const char* chosen = std::getenv("TMPDIR");
    const bool memory = !chosen && ::access("/dev/shm", W_OK) == 0;
    std::string name = std::string(chosen   ? chosen
                                   : memory ? "/dev/shm"
                                            : "/tmp") +
                       "/plimsoll-test-XXXXXX";
    if (!::mkdtemp(name.data())) throw std::runtime_error("mkdtemp");
    path_ = name;
  }
  TempFolder(const TempFolder&) = delete;
  TempFolder& operator=(const TempFolder&) = delete;
  ~TempFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  std::string path() const { return path_; }
  std::string operator/(const std::string& name) const { return path_ + "/" + name; }

 private:
  std::string path_;
};

// A folder that is also the cache, so that tests leave nothing in the user's.
class TempCache : public TempFolder {
 public:
  TempCache() { ::setenv("PLIMSOLL_CACHE", (*this / "cache").c_str(), 1); }
  ~TempCache() { ::unsetenv("PLIMSOLL_CACHE"); }
};

inline std::string golden_file(const std::string& name) {
  return ::pl::test::golden("files/") + name;
}

inline std::string read_bytes(const std::string& path) {
  std::ifstream in(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(in), {}};
}

inline std::string write_bytes(const std::string& path, const std::string& bytes) {
  std::ofstream(path, std::ios::binary | std::ios::trunc) << bytes;
  return path;
}

inline std::string little(uint64_t value, int bytes) {
  std::string out;
  for (int i = 0; i < bytes; ++i) out += static_cast<char>(i < 8 ? value >> 8 * i : 0);
  return out;
}

inline std::string big(uint32_t value) {
  std::string out = little(value, 4);
  return {out.rbegin(), out.rend()};
}

// The bytes of a list of numbers.
template <class T>
std::string raw(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

// `window` as zlib has it: -15 for bare deflate, 31 for gzip.
inline std::string compress(const std::string& bytes, int window) {
  z_stream z{};
  if (deflateInit2(&z, 9, Z_DEFLATED, window, 8, Z_DEFAULT_STRATEGY) != Z_OK)
    throw std::runtime_error("deflateInit2");
  std::string out(deflateBound(&z, bytes.size()) + 64, '\0');
  z.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(bytes.data()));
  z.avail_in = static_cast<uInt>(bytes.size());
  z.next_out = reinterpret_cast<Bytef*>(out.data());
  z.avail_out = static_cast<uInt>(out.size());
  ::deflate(&z, Z_FINISH);
  out.resize(z.total_out);
  deflateEnd(&z);
  return out;
}

// A file in a tar; two blocks of zeros end one.
inline std::string tar_entry(const std::string& name, const std::string& bytes) {
  std::string header(512, '\0');
  header.replace(0, name.size(), name);
  header.replace(100, 7, "0000644");
  char size[13];
  std::snprintf(size, sizeof(size), "%011zo", bytes.size());
  header.replace(124, 11, size);
  header[156] = '0';
  header.replace(257, 8, std::string("ustar\00000", 8));
  header.replace(148, 8, "        ");
  unsigned sum = 0;
  for (unsigned char c : header) sum += c;
  char check[8];
  std::snprintf(check, sizeof(check), "%06o", sum);
  header.replace(148, 7, std::string(check, 7));
  std::string padded = bytes;
  padded.resize((bytes.size() + 511) / 512 * 512, '\0');
  return header + padded;
}

inline std::string gzip(const std::string& bytes) { return compress(bytes, 31); }

inline std::string npy(const std::string& dictionary, const std::string& data, int version = 1) {
  std::string header = dictionary + "\n";
  return "\x93NUMPY" + std::string(1, static_cast<char>(version)) + std::string(1, '\0') +
         little(header.size(), version == 1 ? 2 : 4) + header + data;
}

inline std::string npy_of(const std::string& descr, const std::string& shape,
                          const std::string& data) {
  return npy("{'descr': '" + descr + "', 'fortran_order': False, 'shape': " + shape + ", }", data);
}

struct ZipEntry {
  std::string name, bytes;
  bool deflated = false;
  // What the headers say instead of the truth, where set.
  int64_t claimed_size = -1;
  int64_t claimed_crc = -1;
  int flags = 0;
  int method = -1;
  int64_t header_at = -1;
};

inline std::string zip(const std::vector<ZipEntry>& entries, int64_t claimed_count = -1) {
  std::string out, directory;
  for (const ZipEntry& entry : entries) {
    const std::string data = entry.deflated ? compress(entry.bytes, -15) : entry.bytes;
    const auto true_crc = ::crc32(0, reinterpret_cast<const Bytef*>(entry.bytes.data()),
                                  static_cast<uInt>(entry.bytes.size()));
    const auto crc = entry.claimed_crc >= 0 ? static_cast<uint64_t>(entry.claimed_crc) : true_crc;
    const auto size =
        entry.claimed_size >= 0 ? static_cast<uint64_t>(entry.claimed_size) : entry.bytes.size();
    const int method = entry.method >= 0 ? entry.method : entry.deflated ? 8 : 0;
    const std::string common = little(20, 2) + little(static_cast<uint64_t>(entry.flags), 2) +
                               little(static_cast<uint64_t>(method), 2) + little(0, 4) +
                               little(crc, 4) + little(data.size(), 4) + little(size, 4) +
                               little(entry.name.size(), 2) + little(0, 2);
    const auto at = entry.header_at >= 0 ? static_cast<uint64_t>(entry.header_at) : out.size();
    directory += "PK\x01\x02" + little(20, 2) + common + little(0, 2) + little(0, 8) +
                 little(at, 4) + entry.name;
    out += "PK\x03\x04" + common + entry.name + data;
  }
  const uint64_t count = claimed_count >= 0 ? static_cast<uint64_t>(claimed_count) : entries.size();
  return out + directory + "PK\x05\x06" + little(0, 4) + little(count, 2) + little(count, 2) +
         little(directory.size(), 4) + little(out.size(), 4) + little(0, 2);
}

// Runs `action`, which must throw DataError whose message contains `part`.
inline void expect_data_error(const std::function<void()>& action, const std::string& part = "") {
  try {
    action();
    ADD_FAILURE() << "expected DataError (" << part << "), received none";
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find(part), std::string::npos)
        << "expected '" << part << "' in: " << error.what();
  } catch (const std::exception& error) {
    ADD_FAILURE() << "expected DataError, received: " << error.what();
  }
}

}  // namespace pl::test
