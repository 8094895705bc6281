#include "op/philox.h"

#include <gtest/gtest.h>

namespace pl::philox_test {
namespace {

// The known answers of Random123 1.14 (tests/kat_vectors, philox4x32 with 10 rounds).
TEST(Philox, GivesThePublishedAnswers) {
  EXPECT_EQ(philox({0, 0, 0, 0}, {0, 0}),
            (PhiloxWords{0x6627e8d5, 0xe169c58d, 0xbc57ac4c, 0x9b00dbd8}));
  constexpr uint32_t ones = 0xffffffff;
  EXPECT_EQ(philox({ones, ones, ones, ones}, {ones, ones}),
            (PhiloxWords{0x408f276d, 0x41c83b0e, 0xa20bc7c6, 0x6d5451fd}));
  EXPECT_EQ(philox({0x243f6a88, 0x85a308d3, 0x13198a2e, 0x03707344}, {0xa4093822, 0x299f31d0}),
            (PhiloxWords{0xd16cfe09, 0x94fdcceb, 0x5001e420, 0x24126ea1}));
}

TEST(Philox, SeparatesSeedsAndStreams) {
  EXPECT_NE(philox_stream(1, 2), philox_stream(2, 1));
  EXPECT_NE(philox_stream(1, uint64_t{1} << 32), philox_stream(1, 1));
  EXPECT_NE(philox_block({1, 2}, 0, 1), philox_block({1, 2}, 1, 0));
}

}  // namespace
}  // namespace pl::philox_test
