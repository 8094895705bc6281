#include "base/file.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

#include "tests/data_files.h"

namespace pl::file_test {
namespace {

using test::expect_data_error;
using test::read_bytes;
using test::TempFolder;
using test::write_bytes;

size_t entries_of(const std::string& folder) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(folder)) ++count;
  return count;
}

TEST(File, ReadsAtOffsetsAndRefusesBeyondTheEnd) {
  const TempFolder folder;
  const File file = File::open(write_bytes(folder / "f", "0123456789"));
  EXPECT_EQ(file.size(), 10);
  char text[4] = {};
  file.pread_exact(text, 3, 7);
  EXPECT_STREQ(text, "789");
  file.pread_exact(text, 0, 10);
  expect_data_error([&] { file.pread_exact(text, 4, 7); }, "truncated");
  expect_data_error([&] { file.pread_exact(text, 1, -1); });
  expect_data_error([&] { file.pread_exact(text, -1, 0); });
  expect_data_error([&] { file.pread_exact(text, INT64_MAX, INT64_MAX); });
}

TEST(File, NoticesWhenItShrinks) {
  const TempFolder folder;
  const File file = File::open(write_bytes(folder / "f", "0123456789"));
  write_bytes(folder / "f", "01");
  char text[10];
  expect_data_error([&] { file.pread_exact(text, 10, 0); }, "shorter");
}

TEST(File, RefusesWhatIsNoRegularFile) {
  const TempFolder folder;
  expect_data_error([&] { File::open(folder / "missing"); }, "No such file");
  expect_data_error([&] { File::open(folder.path()); }, "a folder");
  expect_data_error([] { File::open("/dev/zero"); }, "device");
  ASSERT_EQ(::mkfifo((folder / "fifo").c_str(), 0600), 0);
  expect_data_error([&] { File::open(folder / "fifo"); },
                    "FIFO");  // and does not wait for a writer
}

TEST(File, MovesKeepOneOwner) {
  const TempFolder folder;
  File a = File::open(write_bytes(folder / "f", "x"));
  File b = std::move(a);
  EXPECT_TRUE(b.is_open());
  b = File::open(write_bytes(folder / "g", "yz"));
  EXPECT_EQ(b.size(), 2);
}

TEST(ReadTextFile, LimitsTheSize) {
  const TempFolder folder;
  write_bytes(folder / "f", std::string(5000, 'a'));
  EXPECT_EQ(read_text_file(folder / "f", 5000).size(), 5000u);
  expect_data_error([&] { read_text_file(folder / "f", 4999); }, "at most");
  EXPECT_NE(read_text_file("/proc/self/status", 1 << 20).find("VmHWM"), std::string::npos);
}

TEST(WriteFileAtomically, ReplacesAndLeavesNothingBehind) {
  const TempFolder folder;
  write_file_atomically(folder / "f", "one");
  write_file_atomically(folder / "f", [](FileWriter& file) {
    file.write("tw");
    file.write("o");
    EXPECT_EQ(file.written(), 3);
  });
  EXPECT_EQ(read_bytes(folder / "f"), "two");
  EXPECT_EQ(entries_of(folder.path()), 1u);
}

TEST(WriteFileAtomically, KeepsTheOldFileWhenTheWriterThrows) {
  const TempFolder folder;
  write_bytes(folder / "f", "old");
  EXPECT_THROW(write_file_atomically(folder / "f",
                                     [](FileWriter& file) {
                                       file.write("new");
                                       throw UserError("stop");
                                     }),
               UserError);
  EXPECT_EQ(read_bytes(folder / "f"), "old");
  EXPECT_EQ(entries_of(folder.path()), 1u);
}

// /dev/full cannot be renamed to, so a file-size limit stands in for the full disk. Its signal must
// not end the process.
TEST(WriteFileAtomically, KeepsTheOldFileWhenTheDiskTakesNoMore) {
  const TempFolder folder;
  write_bytes(folder / "f", "old");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit small{100'000, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &small);
  EXPECT_THROW(write_file_atomically(folder / "f", std::string(200'000, 'x')), BackendError);
  EXPECT_THROW(write_unlinked_file([](FileWriter& file) { file.write(std::string(200'000, 'x')); }),
               BackendError);
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(read_bytes(folder / "f"), "old");
  EXPECT_EQ(entries_of(folder.path()), 1u);
}

TEST(FileWriter, SaysWhenTheDiskIsFull) {
  const int fd = ::open("/dev/full", O_WRONLY);
  if (fd < 0) GTEST_SKIP() << "no /dev/full";
  FileWriter file(fd, "somewhere");
  try {
    file.write("x");
    ADD_FAILURE();
  } catch (const BackendError& error) {
    EXPECT_NE(std::string(error.what()).find("No space left"), std::string::npos);
  }
  ::close(fd);
}

TEST(WriteFileAtomically, RefusesOddTargets) {
  const TempFolder folder;
  expect_data_error([&] { write_file_atomically(folder.path(), "x"); }, "a folder");
  expect_data_error([] { write_file_atomically("/dev/null", "x"); }, "device");
  expect_data_error([&] { write_file_atomically(folder / "no/such/f", "x"); }, "No such file");
}

TEST(WriteFileAtomically, WritesThroughSymbolicLinks) {
  const TempFolder folder;
  write_bytes(folder / "real", "old");
  std::filesystem::create_symlink("real", folder / "link");
  write_file_atomically(folder / "link", "new");
  EXPECT_TRUE(std::filesystem::is_symlink(folder / "link"));
  EXPECT_EQ(read_bytes(folder / "real"), "new");
}

TEST(WriteUnlinkedFile, HasNoNameButCanBeRead) {
  const File file = write_unlinked_file([](FileWriter& out) { out.write("hello"); });
  EXPECT_EQ(file.size(), 5);
  char text[6] = {};
  file.pread_exact(text, 5, 0);
  EXPECT_STREQ(text, "hello");
  EXPECT_FALSE(std::filesystem::exists(file.path()));
}

TEST(MakeDirectories, MakesAllAndRefusesFiles) {
  const TempFolder folder;
  make_directories(folder / "a/b/c");
  make_directories(folder / "a/b/c");
  EXPECT_TRUE(std::filesystem::is_directory(folder / "a/b/c"));
  write_bytes(folder / "file", "");
  expect_data_error([&] { make_directories(folder / "file"); });
  expect_data_error([&] { make_directories(folder / "file/below"); });
}

}  // namespace
}  // namespace pl::file_test
