// Files of the kernel cache. They need no GPU.
#include <gtest/gtest.h>

#include <filesystem>
#include <fstream>
#include <thread>

#include "op/cuda/runtime_code.h"
#include "tests/data_files.h"

namespace pl::runtime_code_cuda_test {
namespace {

using cuda::read_code;
using cuda::write_code;

class CodeFile : public ::testing::Test {
 protected:
  size_t files() const {
    size_t count = 0;
    for (const auto& entry : std::filesystem::directory_iterator(folder_.path()))
      count += entry.is_regular_file();
    return count;
  }
  test::TempFolder folder_;
  std::string path_ = folder_.path() + "/kernels.cubin";
  std::vector<char> code_ = std::vector<char>(5000, 'c');
};

TEST_F(CodeFile, ComesBackAsItWas) {
  EXPECT_TRUE(read_code(path_, "sm_90").empty());
  write_code(path_, "sm_90", code_);
  EXPECT_EQ(read_code(path_, "sm_90"), code_);
  EXPECT_EQ(files(), 1u);
}

TEST_F(CodeFile, AnotherSourceHasOtherCode) {
  write_code(path_, "sm_90", code_);
  EXPECT_TRUE(read_code(path_, "sm_80").empty());
}

// Every byte counts: those of the code, which may load all the same, and those in front.
TEST_F(CodeFile, DamageIsFound) {
  for (const std::streamoff at : {0, 9, 16, 17, 4000, 5015}) {
    write_code(path_, "sm_90", code_);
    {
      std::fstream file(path_, std::ios::in | std::ios::out | std::ios::binary);
      file.seekp(at);
      file.put('x');
    }
    EXPECT_TRUE(read_code(path_, "sm_90").empty()) << at;
  }
  write_code(path_, "sm_90", code_);
  std::filesystem::resize_file(path_, 3000);
  EXPECT_TRUE(read_code(path_, "sm_90").empty());
  std::filesystem::resize_file(path_, 7);
  EXPECT_TRUE(read_code(path_, "sm_90").empty());
  write_code(path_, "sm_90", code_);
  EXPECT_EQ(read_code(path_, "sm_90"), code_) << "made anew in its place";
}

TEST_F(CodeFile, AFailedWriteLeavesNothing) {
  std::filesystem::create_directory(path_);  // the name is taken: nothing can be renamed to it
  write_code(path_, "sm_90", code_);
  EXPECT_EQ(files(), 0u);
}

TEST_F(CodeFile, ThreadsWriteOneFileAtATime) {
  std::vector<std::jthread> threads;
  for (int t = 0; t < 8; ++t)
    threads.emplace_back([this] {
      for (int i = 0; i < 50; ++i) write_code(path_, "sm_90", code_);
    });
  for (int i = 0; i < 200; ++i) {
    const std::vector<char> found = read_code(path_, "sm_90");
    EXPECT_TRUE(found.empty() || found == code_);
  }
  threads.clear();
  EXPECT_EQ(read_code(path_, "sm_90"), code_);
  EXPECT_EQ(files(), 1u);
}

}  // namespace
}  // namespace pl::runtime_code_cuda_test
