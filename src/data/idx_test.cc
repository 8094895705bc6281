#include "data/idx.h"

#include <gtest/gtest.h>

#include "tests/data_files.h"

namespace pl::idx_test {
namespace {

using test::big;
using test::expect_data_error;
using test::gzip;
using test::TempCache;
using test::write_bytes;

std::string idx(const std::vector<uint32_t>& dims, const std::string& data, char type = 8) {
  std::string out = std::string(2, '\0') + type + static_cast<char>(dims.size());
  for (uint32_t dim : dims) out += big(dim);
  return out + data;
}

void expect_refused(const std::string& bytes, const std::string& part) {
  const TempCache folder;
  expect_data_error([&] { open_idx(write_bytes(folder / "f", bytes)); }, part);
}

TEST(Idx, ReadsPlainAndGzip) {
  const TempCache folder;
  const std::string bytes = idx({2, 3}, "abcdef");
  for (const std::string& file :
       {bytes, gzip(bytes), gzip(bytes.substr(0, 5)) + gzip(bytes.substr(5))}) {
    const DiskArray array = open_idx(write_bytes(folder / "f", file));
    EXPECT_EQ(array.shape, (Shape{2, 3}));
    std::string read(6, '\0');
    array.file->pread_exact(read.data(), 6, array.data_at);
    EXPECT_EQ(read, "abcdef");
  }
}

TEST(Idx, CachedCopyFollowsTheSource) {
  const TempCache folder;
  const std::string path = write_bytes(folder / "f.gz", gzip(idx({2}, "ab")));
  const auto time = std::filesystem::last_write_time(path);
  EXPECT_TRUE(open_idx(path).file->path().starts_with(folder / "cache/"));
  // Same size and same time, other contents.
  write_bytes(path, gzip(idx({2}, "xy")));
  std::filesystem::last_write_time(path, time);
  char read[3] = {};
  const DiskArray array = open_idx(path);
  array.file->pread_exact(read, 2, array.data_at);
  EXPECT_STREQ(read, "xy");
}

TEST(Idx, RefusesEveryTruncation) {
  const std::string bytes = idx({2, 3}, "abcdef"), compressed = gzip(bytes);
  for (size_t size = 0; size < bytes.size(); ++size) expect_refused(bytes.substr(0, size), "");
  for (size_t size = 0; size < compressed.size(); ++size)
    expect_refused(compressed.substr(0, size), "");
  expect_refused(bytes + "x", "expected 18 bytes");
  expect_refused(gzip(bytes + "x"), "more than the 18 bytes");
  expect_refused(compressed + "x", "");
}

TEST(Idx, RefusesHeaders) {
  expect_refused("PK\x03\x04 and more text that is no IDX file", "expected an IDX file");
  expect_refused(idx({2}, std::string(8, 'x'), 0x0D), "type 13");
  expect_refused(idx({}, "abc"), "1 to 8 dimensions");
  expect_refused(idx(std::vector<uint32_t>(9, 1), "a"), "1 to 8 dimensions");
}

TEST(Idx, RefusesHugeDimensions) {
  const uint32_t most = 0xFFFFFFFF;
  expect_refused(idx({most, most, most, most}, "abc"), "below 2^62");
  expect_refused(gzip(idx({most, most, most, most}, "abc")), "below 2^62");
  expect_refused(idx({most, most}, "abc"), "below 2^62");
  expect_refused(idx({most}, "abc"), "expected 4294967303 bytes");
  expect_refused(gzip(idx({most}, "abc")), "1032 times");
  expect_refused(gzip(idx({40'000}, "abc")), "");
}

TEST(Idx, RefusesDamagedGzip) {
  std::string bytes = gzip(idx({300}, std::string(300, 'q')));
  std::string wrong = bytes;
  wrong[wrong.size() - 6] ^= 1;  // in the checksum
  expect_refused(wrong, "incorrect data check");
  wrong = bytes;
  wrong[wrong.size() - 2] ^= 1;  // in the length
  expect_refused(wrong, "incorrect length check");
  wrong = bytes;
  wrong[2] = 0;  // method
  expect_refused(wrong, "unknown compression method");
}

}  // namespace
}  // namespace pl::idx_test
