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
