#include "data/npz.h"

#include <gtest/gtest.h>

#include "data/cache.h"
#include "tests/data_files.h"

namespace pl::npz_test {
namespace {

using test::compress;
using test::expect_data_error;
using test::little;
using test::npy;
using test::npy_of;
using test::raw;
using test::read_bytes;
using test::TempCache;
using test::write_bytes;
using test::zip;
using test::ZipEntry;

std::string contents(const DiskArray& array) {
  std::string bytes(static_cast<size_t>(array.shape.elements() * size_of(array.stored)), '\0');
  array.file->pread_exact(bytes.data(), static_cast<Bytes>(bytes.size()), array.data_at);
  return bytes;
}

const std::string kFloats = raw<float>({1, 2, 3, 4, 5, 6});

void open_all(const std::string& path) {
  const NpzFile file(path);
  for (const std::string& name : file.names()) file.open(name);
}

void expect_refused(const std::string& bytes, const std::string& part) {
  const TempCache folder;
  write_bytes(folder / "f.npz", bytes);
  expect_data_error([&] { open_all(folder / "f.npz"); }, part);
}

void expect_npy_refused(const std::string& bytes, const std::string& part) {
  expect_refused(zip({{"a.npy", bytes}}), part);
  expect_refused(zip({{.name = "a.npy", .bytes = bytes, .deflated = true}}), part);
}

TEST(Npz, ReadsStoredAndDeflatedMembers) {
  const TempCache folder;
  const std::string array = npy_of("<f4", "(2, 3)", kFloats);
  write_bytes(folder / "f.npz", zip({{"a.npy", array},
                                     {.name = "b.npy", .bytes = array, .deflated = true},
                                     {"readme.txt", "hello"}}));
  const NpzFile file(folder / "f.npz");
  EXPECT_EQ(file.names(), (std::vector<std::string>{"a", "b"}));
  for (const char* name : {"a", "b"}) {
    const DiskArray read = file.open(name);
    EXPECT_EQ(read.stored, Stored::float32);
    EXPECT_EQ(read.shape, (Shape{2, 3}));
    EXPECT_EQ(contents(read), kFloats);
  }
  EXPECT_FALSE(file.has("readme"));
  expect_data_error([&] { file.open("x"); }, "received a, b; save with numpy.savez");
}

TEST(Npz, SecondOpenUsesTheCachedCopy) {
  const TempCache folder;
  const std::string array = npy_of("<f4", "(2, 3)", kFloats);
  write_bytes(folder / "f.npz", zip({{.name = "a.npy", .bytes = array, .deflated = true}}));
  const std::string first = NpzFile(folder / "f.npz").open("a").file->path();
  EXPECT_TRUE(first.starts_with(folder / "cache/"));
  EXPECT_EQ(NpzFile(folder / "f.npz").open("a").file->path(), first);
  // A copy of another size is not believed.
  write_bytes(first, "short");
  EXPECT_EQ(contents(NpzFile(folder / "f.npz").open("a")), kFloats);
}

TEST(Npz, WorksWithoutACacheFolder) {
  const TempCache folder;
  write_bytes(folder / "file", "");
  ::setenv("PLIMSOLL_CACHE", (folder / "file/below").c_str(), 1);
  const std::string array = npy_of("<f4", "(2, 3)", kFloats);
  write_bytes(folder / "f.npz", zip({{.name = "a.npy", .bytes = array, .deflated = true}}));
  EXPECT_EQ(contents(NpzFile(folder / "f.npz").open("a")), kFloats);
}

TEST(Npy, ReadsAllVersionsAndTypes) {
  const TempCache folder;
  struct Case {
    const char* descr;
    Stored stored;
  };
  for (const Case& c : {Case{"<f2", Stored::float16},
                        {"<f4", Stored::float32},
                        {"<f8", Stored::float64},
                        {"|b1", Stored::boolean},
                        {"|u1", Stored::uint8},
                        {"|i1", Stored::int8},
                        {"<i2", Stored::int16},
                        {"<u2", Stored::uint16},
                        {"<i4", Stored::int32},
                        {"<u4", Stored::uint32},
                        {"<i8", Stored::int64},
                        {"<u8", Stored::uint64}}) {
    const std::string data(static_cast<size_t>(3 * size_of(c.stored)), 'x');
    for (int version : {1, 2, 3}) {
      const std::string header =
          "{\"shape\": (3,), 'descr':'" + std::string(c.descr) + "','fortran_order':False}   ";
      write_bytes(folder / "f.npz", zip({{"a.npy", npy(header, data, version)}}));
      const DiskArray array = NpzFile(folder / "f.npz").open("a");
      EXPECT_EQ(array.stored, c.stored);
      EXPECT_EQ(array.shape, (Shape{3}));
    }
  }
}

TEST(Npy, RefusesTypesWithARemedy) {
  expect_npy_refused(npy_of(">f4", "(6,)", kFloats), "newbyteorder");
  expect_npy_refused(npy_of("|O", "(3,)", std::string(24, 'x')), "pickled objects are never read");
  expect_npy_refused(npy_of("<c8", "(3,)", std::string(24, 'x')), "astype");
  expect_npy_refused(npy_of("<U2", "(3,)", std::string(24, 'x')), "astype");
  expect_npy_refused(
      npy("{'descr': [('a', '<f4')], 'fortran_order': False, 'shape': (6,)}", kFloats),
      "structured");
  expect_npy_refused(npy("{'descr': '<f4', 'fortran_order': True, 'shape': (2, 3)}", kFloats),
                     "ascontiguousarray");
}

TEST(Npy, RefusesHeaders) {
  for (const char* header :
       {"", "{", "{}", "{'descr': '<f4'}", "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6,)} x",
        "{'descr': '<f4', 'descr': '<f4', 'fortran_order': False, 'shape': (6,)}",
        "{'descr': '<f4', 'fortran_order': 0, 'shape': (6,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': 6}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (-6,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6.0,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6 6)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (99999999999999999999,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (__import__('os'),)}",
        "{'descr': '<f4, 'fortran_order': False, 'shape': (6,)}",
        "{'descr': '<f4', 'fortran_order': False, 'shape': (6,), 'more': 1}"})
    expect_npy_refused(npy(header, kFloats), "expected a header with");
  expect_npy_refused("\x93NUMPX" + npy_of("<f4", "(6,)", kFloats).substr(6), "magic");
  expect_npy_refused(npy("{}", "", 4), "version");
  expect_npy_refused("\x93NUMPY\x02" + std::string(1, '\0') + little(0xFFFFFFFF, 4) + "{}",
                     "header within");
}

TEST(Npy, RefusesSizesThatDoNotMatch) {
  expect_npy_refused(npy_of("<f4", "(7,)", kFloats), "28 bytes");
  expect_npy_refused(npy_of("<f4", "(5,)", kFloats), "20 bytes");
  expect_npy_refused(npy_of("<f4", "(4611686018427387904, 4, 6)", kFloats), "below 2^62");
  expect_npy_refused(npy_of("<f4", "(9223372036854775807, 3)", kFloats), "below 2^62");
  std::string shape = "(";
  for (int i = 0; i < 40; ++i) shape += "1, ";
  expect_npy_refused(npy_of("<f4", shape + "6)", kFloats), "32 dimensions");
}

TEST(Npz, RefusesEveryTruncation) {
  for (const char* name : {"stored.npz", "compressed.npz"}) {
    const std::string bytes = read_bytes(test::golden_file(name));
    for (size_t size = 0; size < bytes.size(); ++size) expect_refused(bytes.substr(0, size), "");
  }
}

TEST(Zip, RefusesWrongChecksums) {
  const std::string array = npy_of("<f4", "(6,)", kFloats);
  expect_refused(zip({{.name = "a.npy", .bytes = array, .claimed_crc = 1}}), "CRC-32");
  expect_refused(zip({{.name = "a.npy", .bytes = array, .deflated = true, .claimed_crc = 1}}),
                 "CRC-32");
}

TEST(Zip, RefusesBombs) {
  const std::string zeros = npy_of("|u1", "(1000000,)", std::string(1'000'000, '\0'));
  // Honest data at nearly the best ratio are fine.
  const TempCache folder;
  write_bytes(folder / "f.npz", zip({{.name = "a.npy", .bytes = zeros, .deflated = true}}));
  EXPECT_EQ(NpzFile(folder / "f.npz").open("a").shape, (Shape{1'000'000}));
  // A claim beyond what deflate can do; a claim below and above the truth.
  const auto claims = [&](int64_t size) {
    return zip({{.name = "a.npy", .bytes = zeros, .deflated = true, .claimed_size = size}});
  };
  expect_refused(claims(4'000'000'000), "1032 times");
  expect_refused(claims(1000), "more than the 1000 bytes");
  expect_refused(claims(1'000'500), "after decompression");
  // Many members that share one body.
  std::vector<ZipEntry> shared;
  for (int i = 0; i < 10; ++i)
    shared.push_back({.name = std::string("a").append(std::to_string(i)).append(".npy"),
                      .bytes = zeros,
                      .deflated = true,
                      .header_at = 0});
  expect_refused(zip(shared), "");
  shared.resize(1);
  shared.push_back({.name = "a0.npy", .bytes = zeros, .deflated = true, .header_at = 0});
  expect_refused(zip(shared), "overlap");
}

TEST(Zip, RefusesWhatItDoesNotKnow) {
  const std::string array = npy_of("<f4", "(6,)", kFloats);
  expect_refused(zip({{.name = "a.npy", .bytes = array, .flags = 1}}), "encryption");
  expect_refused(zip({{.name = "a.npy", .bytes = array, .method = 12}}), "method 12");
  expect_refused(zip({{.name = "a.npy", .bytes = array, .claimed_size = 5}}), "stored member");
  expect_refused(zip({{.name = "a.npy", .bytes = array, .header_at = 1'000'000}}), "in front of");
  expect_refused(zip({{.name = "a.npy", .bytes = array, .header_at = 1}}), "local header");
  expect_refused(zip({{.name = "a.npy", .bytes = array, .header_at = 0xFFFFFFFF}}), "in front of");
  expect_refused(zip({{"a.npy", array}, {"a.npy", array}}), "twice");
  expect_refused(zip({{"a.npy", array}}, 2), "");
  expect_refused(zip({{"a.npy", array}}, 0), "more");
  expect_refused(zip({{"a.npy", array}}, 0xFFFF), "zip64");
  expect_refused("MZ prefix" + zip({{"a.npy", array}}), "directory");
  expect_refused(zip({{"a.npy", array}}) + "x", "no comment");
  expect_refused("not a zip archive, just some text", "zip archive");
}

// One stored member whose sizes, offset and directory are all in zip64 records, as above 4 GiB.
std::string zip64(const std::string& bytes, uint64_t size, uint64_t header_at,
                  uint64_t directory_at_claimed = UINT64_MAX) {
  const auto crc =
      ::crc32(0, reinterpret_cast<const Bytef*>(bytes.data()), static_cast<uInt>(bytes.size()));
  const std::string common =
      little(45, 2) + little(0, 8) + little(crc, 4) + little(UINT64_MAX, 8) + little(5, 2);
  const std::string local = "PK\x03\x04" + common + little(0, 2) + "a.npy" + bytes;
  const std::string extra =
      little(1, 2) + little(24, 2) + little(size, 8) + little(size, 8) + little(header_at, 8);
  const std::string directory = "PK\x01\x02" + little(45, 2) + common + little(extra.size(), 2) +
                                little(0, 2) + little(0, 8) + little(0xFFFFFFFF, 4) + "a.npy" +
                                extra;
  const uint64_t at = local.size();
  const std::string record =
      "PK\x06\x06" + little(44, 8) + little(0x002D002D, 4) + little(0, 8) + little(1, 8) +
      little(1, 8) + little(directory.size(), 8) +
      little(directory_at_claimed == UINT64_MAX ? at : directory_at_claimed, 8);
  return local + directory + record + "PK\x06\x07" + little(0, 4) +
         little(at + directory.size(), 8) + little(1, 4) + "PK\x05\x06" + little(0, 4) +
         little(UINT64_MAX, 8) + little(0xFFFFFFFF, 4) + little(0, 2);
}

TEST(Zip, ReadsZip64) {
  const TempCache folder;
  const std::string array = npy_of("<f4", "(2, 3)", kFloats);
  write_bytes(folder / "f.npz", zip64(array, array.size(), 0));
  EXPECT_EQ(contents(NpzFile(folder / "f.npz").open("a")), kFloats);
  expect_refused(zip64(array, uint64_t{1} << 40, 0), "in front of the directory");
  expect_refused(zip64(array, UINT64_MAX, 0), "within the file");
  expect_refused(zip64(array, (uint64_t{1} << 62) - 1, (uint64_t{1} << 62) - 1), "in front of");
  expect_refused(zip64(array, array.size(), INT64_MAX), "within the file");
  expect_refused(zip64(array, array.size(), 0, (uint64_t{1} << 62) - 1), "zip64 record");
  const std::string bytes = zip64(array, array.size(), 0);
  for (size_t size = 0; size < bytes.size(); ++size) expect_refused(bytes.substr(0, size), "");
}

TEST(Zip, RefusesDamagedDeflateStreams) {
  const std::string array = npy_of("<f4", "(6,)", kFloats);
  ZipEntry entry{.name = "a.npy", .bytes = compress(array, -15), .method = 8};
  entry.claimed_size = static_cast<int64_t>(array.size());
  entry.claimed_crc = static_cast<int64_t>(
      ::crc32(0, reinterpret_cast<const Bytef*>(array.data()), static_cast<uInt>(array.size())));
  const std::string stream = entry.bytes;
  entry.bytes = stream + "x";
  expect_refused(zip({entry}), "after the end of the stream");
  entry.bytes = stream.substr(0, stream.size() - 1);
  expect_refused(zip({entry}), "truncated stream");
  entry.bytes = "\x07" + stream.substr(1);  // block type 3 does not exist
  expect_refused(zip({entry}), "invalid block type");
  entry.bytes = "";
  expect_refused(zip({entry}), "");
}

}  // namespace
}  // namespace pl::npz_test
