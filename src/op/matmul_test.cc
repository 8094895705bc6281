#include "op/matmul.h"

#include <gtest/gtest.h>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/batch_matmul.h"
#include "op/ops.h"
#include "op/runtime.h"
#include "tests/counter_hash.h"
#include "tests/patterns.h"

namespace pl::matmul_test {
namespace {

using test::hashed_integers;
using test::same_bits;

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
        expect_integer_product<int32_t>(23, 700, 70, options, threads);
        expect_integer_product<int64_t>(5, 513, 4, options, threads);
        expect_integer_product<int64_t>(1, 300, 77, options, threads);
        expect_integer_product<int32_t>(41, 259, 1, options, threads);
      }
}

// Each product of a batch is the product of its matrices.
TEST(BatchMatmul, OfIntegersIsThatOfItsMatrices) {
  for (int threads : {1, 3})
    for (const Shape& shape :
         {Shape{2, 3, 9, 300, 40}, Shape{4, 1, 13, 5, 1}, Shape{1, 5, 1, 7, 9}})
      for (int form = 0; form < 8; ++form) {
        const Runtime runtime({.threads = threads});
        const Dim outer = shape[0], inner = shape[1], m = shape[2], k = shape[3], n = shape[4];
        const bool ta = form % 2 != 0, tb = form / 2 % 2 != 0, shared = form >= 4;
        const Shape left = ta ? Shape{k, m} : Shape{m, k};
        const Shape right = tb ? Shape{n, k} : Shape{k, n};
        const Tensor a = hashed_integers(1, {outer, inner, left[0], left[1]}, 1 << 30);
        const Tensor b = shared ? hashed_integers(2, {inner, right[0], right[1]}, 1 << 30)
                                : hashed_integers(2, {outer, inner, right[0], right[1]}, 1 << 30);
        const Tensor c = ops::reshape(batch_matmul(a, b, {ta, tb}), {-1, m, n});
        const Tensor as = ops::reshape(a, {-1, left[0], left[1]});
        const Tensor bs = ops::reshape(b, {-1, right[0], right[1]});
        for (Dim i = 0; i < outer * inner; ++i)
          EXPECT_TRUE(same_bits(
              ops::take(c, i, 0),
              matmul(ops::take(as, i, 0), ops::take(bs, shared ? i % inner : i, 0), {ta, tb})))
              << shape.text() << ", " << form << ", " << i;
      }
}

// Long sums need no copy of an operand.
TEST(Matmul, OfIntegersTakesLittleMemory) {
  const Runtime runtime({.memory = "64MiB", .threads = 2});
  const Tensor x = ops::ones({1'000'000}, Dtype::int32), y = ops::reshape(x, {250'000, 4});
  const Tensor rows = ops::ones({250'000}, Dtype::int32), columns = ops::ones({4}, Dtype::int32);
  const Bytes made = runtime.memory().used;
  EXPECT_EQ(item(ops::dot(x, x)), 1e6);
  EXPECT_EQ(to_vector(matmul(y, y, {.transpose_a = true})), std::vector<double>(16, 250'000));
  EXPECT_EQ(to_vector(ops::matmul(rows, y)), std::vector<double>(4, 250'000));
  EXPECT_LE(runtime.memory().peak - made, kMiB);
  EXPECT_EQ(item(ops::sum(ops::matmul(y, columns))), 1e6);
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
