#include "op/transpose.h"

#include <gtest/gtest.h>

#include <cstring>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"

namespace pl::transpose_test {
namespace {

// Every element different, as far as its size allows.
Tensor counted(Dtype dtype, const Shape& shape) {
  Tensor x({dtype, shape});
  auto* bytes = static_cast<unsigned char*>(x.place());
  const Bytes size = size_of(dtype);
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const uint64_t value = static_cast<uint64_t>(i) * 0x9E3779B97F4A7C15u >> 8 | 1;
    std::memcpy(bytes + i * size, &value, static_cast<size_t>(size));
  }
  return x;
}

// An index at a time, by the definition.
std::vector<unsigned char> expected(const Tensor& x, const std::vector<int64_t>& perm) {
  const Shape& shape = x.shape();
  const int rank = shape.rank();
  std::vector<Dim> strides(static_cast<size_t>(rank), 1), at(static_cast<size_t>(rank), 0);
  for (int d = rank - 2; d >= 0; --d)
    strides[static_cast<size_t>(d)] = strides[static_cast<size_t>(d) + 1] * shape[d + 1];
  const Bytes size = size_of(x.dtype());
  std::vector<unsigned char> result(static_cast<size_t>(x.meta().bytes()));
  const auto* from = static_cast<const unsigned char*>(x.data());
  for (int64_t i = 0; i < shape.elements(); ++i) {
    Dim place = 0;
    for (int d = 0; d < rank; ++d) {
      const auto axis = static_cast<size_t>(perm[static_cast<size_t>(d)]);
      place += at[static_cast<size_t>(d)] * strides[axis];
    }
    std::memcpy(result.data() + i * size, from + place * size, static_cast<size_t>(size));
    for (int d = rank - 1; d >= 0; --d) {
      const Dim limit = shape[static_cast<int>(perm[static_cast<size_t>(d)])];
      if (++at[static_cast<size_t>(d)] < limit) break;
      at[static_cast<size_t>(d)] = 0;
    }
  }
  return result;
}

TEST(Transpose, MovesElementsOfEachSizeInEachOrder) {
  struct Case {
    Shape shape;
    std::vector<int64_t> perm;
  };
  // Tiles with and without rests, runs of each length, few elements on either side.
  const std::vector<Case> cases{{{70, 133}, {1, 0}},
                                {{64, 64}, {1, 0}},
                                {{3, 1000}, {1, 0}},
                                {{1000, 3}, {1, 0}},
                                {{5, 17, 33, 2}, {2, 1, 0, 3}},
                                {{4, 21, 12, 64}, {0, 2, 1, 3}},
                                {{2, 65, 9, 11}, {0, 2, 3, 1}},
                                {{3, 5, 7, 3}, {2, 0, 1, 3}},
                                {{9, 8, 700}, {1, 0, 2}},
                                {{2, 3, 2, 3, 2, 3, 2}, {6, 4, 2, 0, 5, 3, 1}},
                                {{1, 6, 1, 5}, {3, 2, 1, 0}}};
  for (int threads : {1, 3}) {
    CpuBackend backend(threads);
    BackendScope scope(backend);
    for (const Case& c : cases)
      for (Dtype dtype : {Dtype::uint8, Dtype::bfloat16, Dtype::float32, Dtype::float64}) {
        const Tensor x = counted(dtype, c.shape), y = transpose(x, c.perm);
        const std::vector<unsigned char> wanted = expected(x, c.perm);
        EXPECT_EQ(std::memcmp(y.data(), wanted.data(), wanted.size()), 0)
            << x.meta().text() << " " << threads;
      }
  }
}

TEST(Transpose, CountsNegativeDimensionsFromTheEnd) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  const Tensor x = counted(Dtype::int32, {2, 3, 4});
  EXPECT_EQ(transpose(x, {0, -1, -2}).shape(), (Shape{2, 4, 3}));
  EXPECT_EQ(transpose(x, {0, -2, -1}).data(), x.data());
  EXPECT_THROW(transpose(x, {0, -4, 1}), UserError);
  EXPECT_THROW(transpose(x, {0, -1, 2}), UserError);
}

}  // namespace
}  // namespace pl::transpose_test
