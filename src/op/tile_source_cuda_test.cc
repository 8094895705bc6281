// How many elements a fused kernel's threads take at a time. It needs no GPU.
#include <gtest/gtest.h>

#include "op/cuda/tile_source.h"

namespace pl::tile_source_cuda_test {
namespace {

using cuda::TileSource;

// A band of images (1, 8, 322, 3), bytes, scaled to 16-bit floats.
TileSource scaled_bytes() {
  TileSource source;
  source.tile = parse_tile_program("cast 0;scale 1 0.5 0", 1).value();
  source.outputs = {2};
  source.tensors = {{Dtype::uint8, {1, 8, 322, 3}}};
  source.shape = {1, 8, 322, 3};
  source.dtype = Dtype::bfloat16;
  return source;
}

TEST(TileSource, TakesAsMuchAsItsSlicesAllow) {
  TileSource source = scaled_bytes();
  EXPECT_EQ(source.width(), 8);
  EXPECT_NE(source.text().find("Vec<u8, 8>"), std::string::npos);
  source.aligned = {4};  // the band behind two rows begins at byte 1,932
  EXPECT_EQ(source.width(), 4);
  EXPECT_EQ(source.text().find("Vec<u8, 8>"), std::string::npos);
  source.aligned = {1};
  EXPECT_EQ(source.width(), 1);
  EXPECT_EQ(source.chunks(), 8 * 322 * 3);
}

TEST(TileSource, ResultsThatAreSlicesCountToo) {
  TileSource source = scaled_bytes();
  source.out_aligned = 2;
  EXPECT_EQ(source.width(), 1);
  source.out_aligned = 8;
  EXPECT_EQ(source.width(), 4);
}

// What is the same for all elements is read one by one.
TEST(TileSource, AlignmentOfScalarsIsNoMatter) {
  TileSource source = scaled_bytes();
  source.tensors.push_back({Dtype::float32, {}});
  source.tile = parse_tile_program("cast 0;add 2 1", 2).value();
  source.outputs = {3};
  source.aligned = {16, 4};
  EXPECT_EQ(source.width(), 8);
}

}  // namespace
}  // namespace pl::tile_source_cuda_test
