// The budget from outside: a process that the system lets have no more than what it had, the budget
// and 3 MiB decodes a folder, whatever parallelism, shuffles and queues ask for.
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "base/error.h"
#include "data/image/image.h"
#include "tests/data_files.h"
#include "tests/image_files.h"

namespace pl::limited_test {
namespace {

constexpr Bytes kBudget = 24 * kMiB, kMore = 3 * kMiB;

// VmHWM, VmRSS or VmData of this process.
Bytes status(const std::string& key) {
  std::ifstream in("/proc/self/status");
  for (std::string line; std::getline(in, line);)
    if (line.starts_with(key + ":")) return std::atoll(line.c_str() + key.size() + 1) * 1024;
  return 0;
}

struct Asked {
  int64_t parallel, shuffle, prefetch;
};

// In a child: what it exits with says what went wrong.
int decode_limited(const std::string& folder, const Asked& asked) {
  const Bytes resident = status("VmRSS");
  const auto most = static_cast<rlim_t>(status("VmData") + kBudget + kMore);
  const rlimit limit{most, most};
  if (setrlimit(RLIMIT_DATA, &limit) != 0) return 2;
  try {
    DatasetIterator iterator =
        image_dataset_from_directory(folder, {.batch_size = 0,
                                              .image_size = {96, 96},
                                              .shuffle = false,
                                              .num_parallel_calls = asked.parallel})
            .shuffle(asked.shuffle)
            .batch(8)
            .prefetch(asked.prefetch)
            .with_options({.memory = kBudget, .threads = 2})
            .iterate();
    int64_t rows = 0;
    for (Element batch; iterator.next(batch);) {
      if (rows == 0) usleep(100'000);  // all that may be made ahead is
      rows += batch[0].shape()[0];
    }
    if (rows != 40) return 3;
  } catch (const Error&) {
    return 4;
  }
  return status("VmHWM") - resident <= kBudget + kMore ? 0 : 5;
}

TEST(LimitedMemory, DecodesWithinTheBudgetWhateverIsAskedFor) {
  if (PLIMSOLL_SANITIZED) GTEST_SKIP() << "the sanitizer's shadow is data too";
  const test::TempFolder folder;
  for (int i = 0; i < 40; ++i) {
    const int64_t height = 240 + i, width = 320 - i;
    std::ofstream(folder / std::to_string(100 + i) + ".jpg", std::ios::binary)
        << test::jpeg(test::gradient(height, width), height, width);
  }
  for (const Asked& asked : {Asked{AUTOTUNE, 10, AUTOTUNE}, {64, 1000, 64}, {8, 100'000, 1000}}) {
    const pid_t child = fork();
    if (child == 0) _exit(decode_limited(folder.path(), asked));
    int state = 0;
    waitpid(child, &state, 0);
    EXPECT_TRUE(WIFEXITED(state)) << asked.parallel;
    EXPECT_EQ(WEXITSTATUS(state), 0) << asked.parallel;
  }
}

}  // namespace
}  // namespace pl::limited_test
