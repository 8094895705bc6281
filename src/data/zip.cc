#include "data/zip.h"

#include <algorithm>
#include <optional>

#include "base/error.h"
#include "data/byte_reader.h"
#include "data/inflate.h"

namespace pl {
namespace {

constexpr uint32_t kEndSignature = 0x06054b50;
constexpr uint32_t kEnd64Signature = 0x06064b50;
constexpr uint32_t kLocator64Signature = 0x07064b50;
constexpr uint32_t kMemberSignature = 0x02014b50;
constexpr uint32_t kLocalSignature = 0x04034b50;
constexpr Bytes kEndBytes = 22, kEnd64Bytes = 56, kLocator64Bytes = 20;
constexpr Bytes kMemberBytes = 46, kLocalBytes = 30;
constexpr Bytes kLargestDirectory = 16 * kMiB;
constexpr uint32_t kIn64 = 0xFFFFFFFF;  // the real value is in a zip64 record
constexpr uint16_t kExtra64 = 0x0001;
constexpr uint16_t kRefusedFlags = 0x2061;  // encrypted, patched, strongly encrypted, masked

struct Directory {
  ByteOffset at = 0;
  Bytes bytes = 0;
  int64_t count = 0;
};

DataError bad(const File& file, const std::string& expected, const std::string& received) {
  return DataError("[zip] " + file.path() + ": expected " + expected + ", received " + received +
                   "; make the file again with numpy.savez or numpy.savez_compressed");
}

std::string read_block(const File& file, ByteOffset at, Bytes bytes) {
  std::string block(static_cast<size_t>(bytes), '\0');
  file.pread_exact(block.data(), bytes, at);
  return block;
}

// Offsets and sizes above 2^62 are nonsense, and refusing them here keeps sums below from
// overflowing.
int64_t small(uint64_t value, const File& file) {
  if (value >= uint64_t{1} << 62)
    throw bad(file, "offsets and sizes within the file", std::to_string(value));
  return static_cast<int64_t>(value);
}

// The directory as the zip64 record in front of the end record has it.
Directory find_directory64(const File& file, ByteOffset end_at) {
  if (end_at < kLocator64Bytes + kEnd64Bytes) throw bad(file, "a zip64 record", "a shorter file");
  const ByteOffset locator_at = end_at - kLocator64Bytes;
  const std::string locator_block = read_block(file, locator_at, kLocator64Bytes);
  ByteReader locator(locator_block, file.path());
  if (locator.u32() != kLocator64Signature) throw bad(file, "a zip64 locator", "other bytes");
  locator.u32();
  const int64_t record_at = small(locator.u64(), file);
  if (record_at != locator_at - kEnd64Bytes)
    throw bad(file, "the zip64 record in front of its locator",
              "offset " + std::to_string(record_at));
  const std::string record_block = read_block(file, record_at, kEnd64Bytes);
  ByteReader record(record_block, file.path());
  if (record.u32() != kEnd64Signature) throw bad(file, "a zip64 record", "other bytes");
  record.take(28);  // its size, versions, disks, entries on this disk
  Directory directory;
  directory.count = small(record.u64(), file);
  directory.bytes = small(record.u64(), file);
  directory.at = small(record.u64(), file);
  if (directory.at + directory.bytes != record_at)
    throw bad(file, "the directory in front of the zip64 record",
              "offset " + std::to_string(directory.at));
  return directory;
}

// An archive comment would allow several end records to be found; numpy writes none.
Directory find_directory(const File& file) {
  if (file.size() < kEndBytes) throw bad(file, "a zip archive", "a shorter file");
  const ByteOffset end_at = file.size() - kEndBytes;
  const std::string block = read_block(file, end_at, kEndBytes);
  ByteReader end(block, file.path());
  if (end.u32() != kEndSignature)
    throw bad(file, "a zip archive that ends with its directory (no comment)", "other bytes");
  const uint16_t disk = end.u16(), directory_disk = end.u16();
  const uint16_t here = end.u16(), count = end.u16();
  const uint32_t bytes = end.u32(), at = end.u32();
  if (end.u16() != 0) throw bad(file, "no comment", "one");
  Directory directory{at, bytes, count};
  if (count == 0xFFFF || bytes == kIn64 || at == kIn64) {
    directory = find_directory64(file, end_at);
  } else if (disk != 0 || directory_disk != 0 || here != count) {
    throw bad(file, "an archive in one piece", "a split one");
  } else if (directory.at + directory.bytes != end_at) {
    throw bad(file, "the directory in front of the end record",
              "offset " + std::to_string(at) + " and " + std::to_string(bytes) +
                  " bytes in a file of " + std::to_string(file.size()));
  }
  if (directory.bytes > kLargestDirectory || directory.count > directory.bytes / kMemberBytes)
    throw bad(file, "a directory that holds its members",
              std::to_string(directory.count) + " members in " + std::to_string(directory.bytes) +
                  " bytes");
  return directory;
}

// Sizes and offset that did not fit into 32 bits come in this order in the zip64 extra field.
void apply_extra64(std::string_view extra, ZipMember& member, const File& file) {
  ByteReader reader(extra, file.path());
  while (reader.left() >= 4) {
    const uint16_t id = reader.u16();
    const uint16_t length = reader.u16();
    const std::string_view body = reader.take(length);
    if (id != kExtra64) continue;
    ByteReader field(body, file.path());
    if (member.uncompressed == kIn64) member.uncompressed = small(field.u64(), file);
    if (member.compressed == kIn64) member.compressed = small(field.u64(), file);
    if (member.header_at == kIn64) member.header_at = small(field.u64(), file);
    return;
  }
}

ZipMember read_member(ByteReader& reader, const File& file) {
  if (reader.u32() != kMemberSignature) throw bad(file, "a directory entry", "other bytes");
  ZipMember member;
  reader.take(4);  // versions
  const uint16_t flags = reader.u16(), method = reader.u16();
  reader.take(4);  // time and date
  member.crc = reader.u32();
  member.compressed = reader.u32();
  member.uncompressed = reader.u32();
  const uint16_t name = reader.u16(), extra = reader.u16(), comment = reader.u16();
  reader.take(8);  // disk, attributes
  member.header_at = reader.u32();
  member.name = reader.take(name);
  apply_extra64(reader.take(extra), member, file);
  reader.take(comment);
  if (flags & kRefusedFlags)
    throw bad(file, "members without encryption",
              "flags " + std::to_string(flags) + " at '" + member.name + "'");
  if (method != 0 && method != 8)
    throw bad(file, "members that are stored or deflated",
              "method " + std::to_string(method) + " at '" + member.name + "'");
  member.deflated = method == 8;
  if (!member.deflated && member.compressed != member.uncompressed)
    throw bad(file, "equal sizes of a stored member", "two at '" + member.name + "'");
  if (member.deflated && member.uncompressed / kDeflateRatio > member.compressed)
    throw bad(file, "at most 1032 times the compressed size",
              std::to_string(member.uncompressed) + " bytes out of " +
                  std::to_string(member.compressed) + " at '" + member.name + "'");
  return member;
}

// The local header says where the data begin; its sizes are not believed (numpy leaves them open).
void locate_data(ZipMember& member, ByteOffset directory_at, const File& file) {
  const auto outside = [&] {
    return bad(file, "members in front of the directory",
               "'" + member.name + "' at offset " + std::to_string(member.header_at));
  };
  if (member.header_at > directory_at - kLocalBytes) throw outside();
  const std::string block = read_block(file, member.header_at, kLocalBytes);
  ByteReader local(block, file.path());
  if (local.u32() != kLocalSignature)
    throw bad(file, "a local header of '" + member.name + "'", "other bytes");
  local.take(4);  // version, flags
  const uint16_t method = local.u16();
  local.take(16);  // time, date, CRC, sizes
  const uint16_t name = local.u16(), extra = local.u16();
  member.data_at = member.header_at + kLocalBytes + name + extra;
  if (member.data_at > directory_at || member.compressed > directory_at - member.data_at)
    throw outside();
  if ((method == 8) != member.deflated ||
      read_block(file, member.header_at + kLocalBytes, name) != member.name)
    throw bad(file, "a local header that agrees with the directory",
              "another at '" + member.name + "'");
}

}  // namespace

std::vector<ZipMember> read_zip_directory(const File& file) {
  const Directory directory = find_directory(file);
  const std::string block = read_block(file, directory.at, directory.bytes);
  ByteReader reader(block, file.path());
  std::vector<ZipMember> members;
  members.reserve(static_cast<size_t>(directory.count));
  for (int64_t i = 0; i < directory.count; ++i) {
    members.push_back(read_member(reader, file));
    locate_data(members.back(), directory.at, file);
  }
  if (reader.left() > 0) throw bad(file, "as many members as the end record says", "more");

  // Members that share bytes are how a small archive claims to hold petabytes.
  std::vector<const ZipMember*> sorted;
  for (const ZipMember& member : members) sorted.push_back(&member);
  std::sort(sorted.begin(), sorted.end(),
            [](auto* a, auto* b) { return a->header_at < b->header_at; });
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i - 1]->data_at + sorted[i - 1]->compressed > sorted[i]->header_at)
      throw bad(file, "members that do not overlap", "'" + sorted[i]->name + "'");
  std::sort(sorted.begin(), sorted.end(), [](auto* a, auto* b) { return a->name < b->name; });
  for (size_t i = 1; i < sorted.size(); ++i)
    if (sorted[i - 1]->name == sorted[i]->name)
      throw bad(file, "each name once", "'" + sorted[i]->name + "' twice");
  return members;
}

}  // namespace pl
