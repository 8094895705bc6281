#include "data/cache.h"

#include <sys/statvfs.h>
#include <unistd.h>

#include <algorithm>
#include <filesystem>

#include "base/cache_folder.h"
#include "base/error.h"
#include "base/hash.h"

namespace pl {
namespace {

constexpr Bytes kGzipTrailer = 8;  // CRC-32 and length

bool has_room(const std::string& folder, Bytes bytes) {
  struct statvfs status {};
  if (::statvfs(folder.c_str(), &status) != 0) return true;  // unknown: let the write tell
  return static_cast<double>(status.f_bavail) * static_cast<double>(status.f_frsize) >
         static_cast<double>(bytes);
}

// The cache folder when it exists or can be made, is writable and has room; else empty.
std::string usable_folder(Bytes bytes) {
  const std::string folder = cache_folder();
  if (folder.empty()) return "";
  try {
    make_directories(folder);
  } catch (const Error&) {
    return "";
  }
  return ::access(folder.c_str(), W_OK | X_OK) == 0 && has_room(folder, bytes) ? folder : "";
}

// The path alone would serve a stale copy after the file has changed, and size and time can both
// stay the same; the checksum of the contents settles it.
std::string key_of(const File& source, const Section& section, Bytes bytes,
                   std::optional<uint32_t> crc) {
  std::error_code error;
  const std::filesystem::path path = std::filesystem::canonical(source.path(), error);
  char trailer[kGzipTrailer] = {};
  if (section.compression == Compression::gzip && section.bytes >= kGzipTrailer)
    source.pread_exact(trailer, kGzipTrailer, section.offset + section.bytes - kGzipTrailer);
  const int64_t facts[] = {source.size(), source.modified_ns(),    section.offset, section.bytes,
                           bytes,         crc ? int64_t{*crc} : -1};
  Xxh3 hash;
  hash.update("inflated 1").update(error ? source.path() : path.string());
  hash.update(facts, sizeof facts).update(trailer, sizeof trailer);
  return hex16(hash.digest());
}

}  // namespace

File inflated_copy(const File& source, const Section& section, Bytes bytes,
                   std::optional<uint32_t> crc, const std::string& what) {
  if (bytes < 0 || bytes / kDeflateRatio > section.bytes)
    throw DataError("[data] " + what + ": expected at most " + std::to_string(kDeflateRatio) +
                    " times its compressed " + std::to_string(section.bytes) +
                    " bytes, received a header that says " + std::to_string(bytes) +
                    "; the file is damaged or meant to fill the disk");
  const WriteCallback fill = [&](FileWriter& file) {
    const Inflated made =
        inflate_section(source, section, bytes, what, [&](const void* data, Bytes count) {
          file.write(data, count);
          return true;
        });
    if (made.bytes != bytes)
      throw DataError("[data] " + what + ": expected " + std::to_string(bytes) +
                      " bytes after decompression, received " + std::to_string(made.bytes) +
                      "; the file is truncated or damaged");
    if (crc && made.crc != *crc)
      throw DataError("[data] " + what + ": expected data that match their CRC-32, received " +
                      "others; the file is damaged, fetch or make it again");
  };

  if (const std::string folder = cache_folder(); !folder.empty()) {
    const std::string path = folder + "/" + key_of(source, section, bytes, crc) + ".bin";
    if (::access(path.c_str(), R_OK) == 0) {
      File copy = File::open(path);
      if (copy.size() == bytes) return copy;
    }
    if (!usable_folder(bytes).empty()) {
      try {
        write_file_atomically(path, fill);
        return File::open(path);
      } catch (const BackendError&) {
        // The disk filled up meanwhile: the temporary folder may be on another one.
      }
    }
  }
  const std::string temporary = environment("TMPDIR").empty() ? "/tmp" : environment("TMPDIR");
  if (!has_room(temporary, bytes))
    throw BackendError("[data] " + what + ": expected " + format_bytes(bytes) +
                       " of free disk for the decompressed copy in '" + cache_folder() + "' or '" +
                       temporary + "', received less; set PLIMSOLL_CACHE to a folder with room");
  return write_unlinked_file(fill);
}

}  // namespace pl
