// What samples do not show: indices outside, thread counts, and adding onto another gradient.
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "op/functions.h"
#include "op/recorder.h"
#include "tests/patterns.h"

namespace pl::embedding_test {
namespace {

using test::same_bits;

Tensor filled(Shape shape, int salt) {
  Tensor tensor({Dtype::float32, std::move(shape)});
  for (int64_t i = 0; i < tensor.meta().elements(); ++i)
    tensor.data_as<float>()[i] = static_cast<float>((i * 37 + salt) % 101 - 50) * 0.01f;
  return tensor;
}

Tensor indices(Shape shape, int64_t depth) {
  Tensor tensor({Dtype::int32, std::move(shape)});
  for (int64_t i = 0; i < tensor.meta().elements(); ++i)
    tensor.data_as<int32_t>()[i] = static_cast<int32_t>(i * i * 7 % depth);
  return tensor;
}

TEST(Embedding, AnIndexOutsideIsARowOfNan) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  Tensor places({Dtype::int32, {4}});
  const int32_t values[] = {1, -1, 3, 2147483647};
  std::memcpy(places.data(), values, sizeof values);
  const Tensor y = embedding(filled({3, 2}, 0), places);
  EXPECT_FALSE(std::isnan(y.data_as<float>()[0]));
  for (int i = 2; i < 8; ++i) EXPECT_TRUE(std::isnan(y.data_as<float>()[i])) << i;
  const Tensor table = embedding_gradient(places, filled({4, 2}, 1), 3);
  for (int i = 0; i < 6; ++i)
    EXPECT_EQ(table.data_as<float>()[i], i / 2 == 1 ? filled({4, 2}, 1).data_as<float>()[i - 2] : 0)
        << i;
}

TEST(Embedding, GradientHasTheSameBitsOnAnyNumberOfThreads) {
  const Tensor places = indices({16, 64}, 300), dy = filled({16, 64, 70}, 3);
  CpuBackend one(1);
  Tensor first;
  {
    BackendScope scope(one);
    first = embedding_gradient(places, dy, 300);
  }
  CpuBackend three(3);
  BackendScope scope(three);
  EXPECT_TRUE(same_bits(first, embedding_gradient(places, dy, 300)));
}

TEST(Embedding, OntoHasTheBitsOfASumAfterwards) {
  CpuBackend backend(2);
  BackendScope scope(backend);
  const Tensor places = indices({8, 32}, 50), dy = filled({8, 32, 33}, 5),
               other = filled({50, 33}, 9);
  EXPECT_TRUE(same_bits(add(other, embedding_gradient(places, dy, 50)),
                        embedding_gradient(places, dy, 50, other)));
}

TEST(Embedding, RowsFollowTheIndices) {
  Recorder recorder;
  const Tensor table = recorder.variable("table", {Dtype::float32, {5, 3}}, Category::parameters);
  const Tensor tokens = recorder.input("x", {Dtype::int32, {2, 4}}, true);
  const Tensor y = embedding(table, tokens);
  EXPECT_TRUE(carries_rows(y));
  EXPECT_FALSE(carries_rows(embedding_gradient(tokens, y, 5)));
  EXPECT_EQ(kEmbeddingGradient.rows({}, 3), Rows::sums);
  EXPECT_EQ(kEmbeddingGradientOnto.rows({}, 6), Rows::mixes);
  EXPECT_EQ(kEmbedding.rows({}, 1), Rows::mixes);
}

TEST(Concatenate, MixesSamplesAlongTheBatchOnly) {
  Recorder recorder;
  const Tensor a = recorder.input("a", {Dtype::float32, {2, 4}}, true);
  const Tensor b = recorder.input("b", {Dtype::float32, {2, 4}}, false);
  EXPECT_TRUE(carries_rows(concatenate({a, a}, -1)));
  EXPECT_FALSE(carries_rows(concatenate({a, a}, 0)));
  EXPECT_FALSE(carries_rows(concatenate({a, b}, 1)));
  EXPECT_TRUE(carries_rows(slice(a, 1, 1, 2)));
  EXPECT_FALSE(carries_rows(slice(a, 0, 0, 1)));
  EXPECT_EQ(kConcatenate.rows({{"axis", int64_t{1}}, {"parts", int64_t{2}}}, 1), Rows::mixes);
  EXPECT_EQ(kConcatenate.rows({{"axis", int64_t{0}}, {"parts", int64_t{2}}}, 3), Rows::mixes);
  EXPECT_EQ(kConcatenate.rows({{"axis", int64_t{1}}, {"parts", int64_t{2}}}, 0), Rows::none);
}

TEST(CausalMask, HidesLaterPositionsFromASoftmax) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  const Tensor p = softmax(causal_mask(filled({2, 3, 3}, 2)));
  for (int b = 0; b < 2; ++b)
    for (int t = 0; t < 3; ++t)
      for (int s = 0; s < 3; ++s) {
        const float value = p.data_as<float>()[(b * 3 + t) * 3 + s];
        EXPECT_EQ(value == 0, s > t) << b << " " << t << " " << s;
      }
}

}  // namespace
}  // namespace pl::embedding_test
