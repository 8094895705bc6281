#include "base/hash.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>
#include <vector>

namespace pl::hash_test {
namespace {

// Values of python-xxhash's xxh3_64_hexdigest.
TEST(Xxh3, GivesKnownValues) {
  EXPECT_EQ(hex16(xxh3("")), "2d06800538d394c2");
  EXPECT_EQ(hex16(xxh3("Plimsoll")), "93f2e612effa5ef2");
  EXPECT_EQ(hex16(Xxh3().update("Plim").update("soll").digest()), "93f2e612effa5ef2");
  EXPECT_EQ(hex16(0), "0000000000000000");
  EXPECT_EQ(hex16(0x0123456789ABCDEF), "0123456789abcdef");
}

TEST(Xxh3, DoesNotSeeThePieces) {
  std::vector<unsigned char> bytes(10'000);
  std::iota(bytes.begin(), bytes.end(), 0);
  const uint64_t whole = xxh3(bytes.data(), bytes.size());
  EXPECT_EQ(hex16(whole), "3eee77440c4c3d08");
  for (size_t piece : {1, 63, 64, 255, 256, 1000, 9999}) {
    Xxh3 hash;
    for (size_t at = 0; at < bytes.size(); at += piece)
      hash.update(bytes.data() + at, std::min(piece, bytes.size() - at));
    EXPECT_EQ(hash.digest(), whole) << piece;
    EXPECT_EQ(hash.digest(), whole) << "a second time";
  }
}

TEST(Xxh3, CopiesGoOnAlone) {
  Xxh3 a;
  a.update("prefix");
  Xxh3 b = a;
  b.update(" and more");
  EXPECT_EQ(a.digest(), xxh3("prefix"));
  EXPECT_EQ(b.digest(), xxh3("prefix and more"));
}

}  // namespace
}  // namespace pl::hash_test
