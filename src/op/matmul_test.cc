#include "op/matmul.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/batch_matmul.h"

namespace pl::matmul_test {
namespace {

std::string refusal(const Shape& a, const Shape& b, MatmulOptions options = {}) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  try {
    matmul(Tensor({Dtype::float32, a}), Tensor({Dtype::float32, b}), options);
  } catch (const UserError& error) {
    return error.what();
  }
  return "nothing thrown";
}

TEST(Matmul, SaysWhatDoesNotFit) {
  EXPECT_EQ(refusal({3}, {3, 4}),
            "[matmul] expected two matrices, received float32 (3,) and float32 (3, 4) {}");
  EXPECT_EQ(refusal({2, 3}, {4, 5}),
            "[matmul] expected equal inner dimensions, received float32 (2, 3) and float32 (4, 5) "
            "{}");
  EXPECT_EQ(refusal({2, 3, 4}, {2, 4, 5}),
            "[matmul] expected a matrix as the second operand, received float32 (2, 3, 4) and "
            "float32 (2, 4, 5) {}");
  EXPECT_EQ(refusal({2, 3, 4}, {3, 2, 5}, {.transpose_a = true}),
            "[matmul] expected equal leading dimensions, received float32 (2, 3, 4) and float32 "
            "(3, 2, 5) {transpose_a=1}");
}

// Products of integers, wrapping, of sizes beside and in blocks, by 64-bit arithmetic.
template <class T>
void expect_integer_product(Dim m, Dim k, Dim n, MatmulOptions options, int threads) {
  CpuBackend backend(threads);
  BackendScope scope(backend);
  const Dtype dtype = sizeof(T) == 4 ? Dtype::int32 : Dtype::int64;
  Tensor a({dtype, options.transpose_a ? Shape{k, m} : Shape{m, k}});
  Tensor b({dtype, options.transpose_b ? Shape{n, k} : Shape{k, n}});
  uint64_t word = 1;
  for (const Tensor& x : {a, b})
    for (Dim i = 0; i < x.shape().elements(); ++i)
      x.data_as<T>()[i] = static_cast<T>(word = word * 6364136223846793005 + 1442695040888963407);
  const Tensor c = matmul(a, b, options);
  ASSERT_EQ(c.meta(), (Meta{dtype, Shape{m, n}}));
  for (Dim i = 0; i < m; ++i)
    for (Dim j = 0; j < n; ++j) {
      uint64_t sum = 0;
      for (Dim p = 0; p < k; ++p)
        sum += static_cast<uint64_t>(a.data_as<T>()[options.transpose_a ? p * m + i : i * k + p]) *
               static_cast<uint64_t>(b.data_as<T>()[options.transpose_b ? j * k + p : p * n + j]);
      ASSERT_EQ(c.data_as<T>()[i * n + j], static_cast<T>(sum)) << i << ", " << j;
    }
}

TEST(Matmul, OfIntegersIsExactAndWraps) {
  for (int threads : {1, 2})
    for (bool ta : {false, true})
      for (bool tb : {false, true}) {
        const MatmulOptions options{.transpose_a = ta, .transpose_b = tb};
        expect_integer_product<int32_t>(37, 50, 101, options, threads);
        expect_integer_product<int64_t>(13, 7, 33, options, threads);
        expect_integer_product<int32_t>(1, 300, 1, options, threads);
        expect_integer_product<int32_t>(4, 0, 3, options, threads);
      }
}

TEST(Matmul, SplitsOverSamplesWhereItMay) {
  const Attrs none, across{{"transpose_a", int64_t{1}}};
  EXPECT_EQ(kMatmul.rows(none, 0b001), Rows::maps);    // activations x weights
  EXPECT_EQ(kMatmul.rows(across, 0b011), Rows::sums);  // activations^T x gradients
  EXPECT_EQ(kMatmul.rows(across, 0b001), Rows::mixes);
  EXPECT_EQ(kMatmul.rows(none, 0b010), Rows::mixes);
  EXPECT_EQ(kBatchMatmul.rows(none, 0b11), Rows::maps);
  EXPECT_EQ(kBatchMatmul.rows({{"shared_b", int64_t{1}}}, 0b01), Rows::maps);
  EXPECT_EQ(kBatchMatmul.rows({{"shared_b", int64_t{1}}}, 0b11), Rows::mixes);
}

}  // namespace
}  // namespace pl::matmul_test
