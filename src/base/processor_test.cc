#include "base/processor.h"

#include <gtest/gtest.h>
#include <hwy/targets.h>

#include "base/error.h"
#include "tests/messages.h"

namespace pl::processor_test {
namespace {

TEST(Processor, WithoutSse4IsRefusedInWords) {
  require_sse4(HWY_SSE4);
  require_sse4(HWY_AVX2 | HWY_SSE4 | HWY_SSSE3);
  EXPECT_THROW(require_sse4(0), BackendError);
  EXPECT_THROW(require_sse4(HWY_SSSE3), BackendError);
}

}  // namespace
}  // namespace pl::processor_test
