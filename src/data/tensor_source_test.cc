#include "data/tensor_source.h"

#include <gtest/gtest.h>

#include <cstring>
#include <numeric>

#include "base/error.h"

namespace pl::tensor_source_test {
namespace {

TEST(TensorSource, ReadsRowsWithoutCopyingTheTensors) {
  Tensor x({Dtype::float32, {4, 2}}), y({Dtype::int64, {4, 1}});
  std::iota(x.data_as<float>(), x.data_as<float>() + 8, 0.0f);
  for (int i = 0; i < 4; ++i) y.data_as<int64_t>()[i] = 3 - i;
  const auto source = tensor_source(x, y);
  EXPECT_EQ(source->size(), 4);
  EXPECT_EQ(source->fields()[0].sample, (Meta{Dtype::float32, {2}}));
  EXPECT_EQ(source->fields()[1].sample, (Meta{Dtype::int32, {1}}));
  EXPECT_EQ(source->fields()[1].range->high, 3);
  x.data_as<float>()[6] = 60;  // seen: the source refers to the buffer
  float values[4];
  int32_t labels[2];
  const std::vector<int64_t> indices{3, 0};
  void* places[] = {values, labels};
  source->read(indices, places);
  EXPECT_EQ((std::vector<float>(values, values + 4)), (std::vector<float>{60, 7, 0, 1}));
  EXPECT_EQ(labels[0], 0);
  EXPECT_EQ(labels[1], 3);
  y.data_as<int64_t>()[0] = 9;
  EXPECT_THROW(source->read(indices, places), DataError);
  EXPECT_GE(source->resident_bytes(), x.meta().bytes() + y.meta().bytes());
}

TEST(TensorSource, RefusesWhatHasNoSamples) {
  Tensor x({Dtype::float32, {4, 2}}), y({Dtype::float32, {3}});
  EXPECT_THROW(tensor_source(x, y), DataError);
  EXPECT_THROW(tensor_source(Tensor(), y), DataError);
  EXPECT_THROW(tensor_source(Tensor({Dtype::float32, {}}), y), DataError);
  EXPECT_EQ(tensor_source(x)->fields().size(), 1u);
}

TEST(RangeSource, MovesIndices) {
  constexpr int64_t kCount = 1000;
  Tensor x({Dtype::int32, {kCount}}), y({Dtype::int32, {kCount}});
  std::iota(x.data_as<int32_t>(), x.data_as<int32_t>() + kCount, 0);
  std::iota(y.data_as<int32_t>(), y.data_as<int32_t>() + kCount, 5);
  const auto whole = tensor_source(x, y);
  const auto part = range_source(*whole, 300, 700);
  EXPECT_EQ(part->size(), 700);
  std::vector<int64_t> indices(700);
  std::iota(indices.rbegin(), indices.rend(), 0);  // more than one chunk, backwards
  std::vector<int32_t> a(700), b(700);
  void* places[] = {a.data(), b.data()};
  part->read(indices, places);
  for (int32_t i = 0; i < 700; ++i) {
    EXPECT_EQ(a[static_cast<size_t>(i)], 999 - i);
    EXPECT_EQ(b[static_cast<size_t>(i)], 1004 - i);
  }
  places[0] = nullptr;
  part->read(indices, places);
}

}  // namespace
}  // namespace pl::tensor_source_test
