// Every word of ops:: on a GPU against the answers in tests/golden/ops_words.txt.
#include <cstdlib>

#include "op/runtime.h"
#include "tests/cuda/device_test.h"
#include "tests/ops_words_check.h"

namespace pl::test::words_test {
namespace {

class CudaOpsWords : public CudaTest {
 protected:
  CudaOpsWords() { ::setenv("PLIMSOLL_COSTS", "nominal", 1); }
};

TEST_F(CudaOpsWords, AgreeWithKeras) {
  const Runtime runtime({.memory = "64MiB", .threads = 1});
  const DeviceScope scope("cuda");
  expect_answers(words_of_ops(), true);
}

}  // namespace
}  // namespace pl::test::words_test
