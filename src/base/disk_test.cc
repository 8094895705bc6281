#include "base/disk.h"

#include <gtest/gtest.h>
#include <sys/resource.h>

#include <cerrno>
#include <filesystem>
#include <regex>
#include <sstream>
#include <vector>

#include "base/append_file.h"
#include "base/file.h"
#include "tests/data_files.h"
#include "tests/disk_faults.h"
#include "tests/places.h"

namespace pl::disk_test {
namespace {

using test::read_bytes;
using test::TempFolder;
using Kind = DiskCall::Kind;

TEST(Disk, IsChangedByOneFileAlone) {
  const std::regex others(
      R"(\bO_(CREAT|TMPFILE)\b|\b(ofstream|fstream|fopen|freopen|fdopen)\b[^>]|)"
      R"((^|[^\w:])(::)?(creat|mkstemp|mkostemp|mkdtemp|mkdir|mkdirat|rmdir|fsync|fdatasync|)"
      R"(truncate|ftruncate|fallocate|pwrite|pwritev|renameat|renameat2|linkat|symlink)\(|)"
      R"((^|[^\w:])::(write|writev|rename|link|unlink|unlinkat|remove)\(|)"
      R"(\b(fs|filesystem)::(create_\w+|remove\w*|rename|copy\w*|resize_file)\()");
  const std::string root = test::source_dir() + "/src";
  size_t files = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(root)) {
    const std::string path = entry.path().string(), end = entry.path().extension().string();
    if ((end != ".cc" && end != ".h" && end != ".cu" && end != ".cuh") ||
        path.ends_with("_test.cc") || path.ends_with("/base/disk.cc") ||
        path.ends_with("/base/disk.h"))
      continue;
    ++files;
    std::istringstream text(read_bytes(path));
    for (std::string line; std::getline(text, line);) {
      const std::string code = line.substr(0, line.find("//"));
      EXPECT_FALSE(std::regex_search(code, others)) << path << ": " << line;
    }
  }
  EXPECT_GT(files, 500u);
}

TEST(Disk, NewFoldersAreDurableUpToOneThatWasThere) {
  const TempFolder folder;
  std::vector<std::string> calls;
  const auto note = [&](const DiskCall& call) {
    const std::string path(call.path.substr(std::min(folder.path().size(), call.path.size())));
    if (call.kind == Kind::make_folder) calls.push_back("make " + path);
    if (call.kind == Kind::sync_folder) calls.push_back("sync " + path);
    return 0;
  };
  {
    const test::DiskFaults watch(note);
    make_directories(folder / "a/b/c");
    make_directories(folder / "a/b/c");
  }
  const std::vector<std::string> wanted{"make /a", "sync ",       "make /a/b",
                                        "sync /a", "make /a/b/c", "sync /a/b"};
  EXPECT_EQ(calls, wanted);
}

TEST(Disk, AFolderThatCannotBeSyncedIsAnError) {
  const TempFolder folder;
  const test::DiskFaults faults(
      [](const DiskCall& call) { return call.kind == Kind::sync_folder ? EIO : 0; });
  EXPECT_THROW(make_directories(folder / "a"), BackendError);
  EXPECT_THROW(write_file_atomically(folder / "f", "x"), BackendError);
  AppendFile log;
  EXPECT_THROW(log.open(folder / "log", 0), BackendError);
}

TEST(AppendFile, ALineThatDoesNotFitLeavesNothing) {
  const TempFolder folder;
  AppendFile log;
  log.open(folder / "log", 0);
  log.write("one\n");
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit tight{6, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &tight);
  EXPECT_THROW(log.write("second\n"), BackendError);  // and no signal
  setrlimit(RLIMIT_FSIZE, &before);
  EXPECT_EQ(read_bytes(folder / "log"), "one\n");
  log.write("third\n");
  EXPECT_EQ(read_bytes(folder / "log"), "one\nthird\n");
}

}  // namespace
}  // namespace pl::disk_test
