// Calls beyond what a grid has along y, and beyond 2^31 elements.
#include "op/cast.h"
#include "op/concatenate.h"
#include "op/embedding.h"
#include "op/max_pool.h"
#include "op/reduce.h"
#include "op/relu.h"
#include "tests/cuda/device_test.h"

namespace pl::test::large_cuda_test {
namespace {

class CudaLarge : public CudaTest {
 protected:
  using Memory = std::unique_ptr<DeviceMemory>;

  // Outputs of an op, zero before it runs; null where the device has no room.
  std::vector<Memory> run(const Op& op, const std::vector<const Memory*>& in, const Metas& metas,
                          const Attrs& attrs = {}) {
    const Metas out = op.infer(metas, attrs);
    auto kernel = prepare(op, {*backend, metas, out, attrs});
    const auto space = backend->reserve(kernel->workspace_bytes + 256);
    std::vector<Memory> results;
    std::vector<void*> from, to;
    for (const Memory* memory : in) from.push_back((*memory)->data());
    for (const Meta& meta : out) {
      results.push_back(backend->reserve(meta.bytes()));
      to.push_back(results.back()->data());
    }
    kernel->run(from.data(), to.data(), space->data());
    backend->synchronize();
    return results;
  }
  template <class T>
  Memory put(const std::vector<T>& values) {
    const auto bytes = static_cast<Bytes>(values.size() * sizeof(T));
    Memory memory = backend->reserve(bytes);
    backend->copy_in(memory->data(), values.data(), bytes);
    backend->synchronize();
    return memory;
  }
  template <class T>
  std::vector<T> get(const Memory& memory, int64_t first, int64_t count) {
    std::vector<T> values(static_cast<size_t>(count));
    backend->copy_out(values.data(), memory->data() + first * static_cast<Bytes>(sizeof(T)),
                      count * static_cast<Bytes>(sizeof(T)));
    backend->synchronize();
    return values;
  }
  bool has_room(Bytes bytes) const { return backend->free() > bytes; }
};

// Rows of more than 65,535 blocks.
TEST_F(CudaLarge, GradientOfAnEmbeddingOfWideRows) {
  constexpr int64_t kWidth = 65535 * 128 + 131;  // odd: one column a thread
  const Meta dy{Dtype::float32, Shape{3, kWidth}};
  if (!has_room(8 * dy.bytes())) GTEST_SKIP() << "no room";
  std::vector<float> values(static_cast<size_t>(dy.elements()));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i % 13);
  const Memory indices = put(std::vector<int32_t>{1, 0, 1}), rows = put(values);
  const auto made = run(kEmbeddingGradient, {&indices, &rows}, {{Dtype::int32, Shape{3}}, dy},
                        {{"depth", int64_t{2}}});
  const auto got = get<float>(made[0], 0, 2 * kWidth);
  for (int64_t i = 0; i < kWidth; ++i) {
    ASSERT_EQ(got[static_cast<size_t>(i)], values[static_cast<size_t>(kWidth + i)]) << i;
    ASSERT_EQ(got[static_cast<size_t>(kWidth + i)],
              values[static_cast<size_t>(i)] + values[static_cast<size_t>(2 * kWidth + i)])
        << i;
  }
}

constexpr uint16_t kOneBfloat16 = 0x3F80;

TEST_F(CudaLarge, MaxPoolOfAnImageOfMoreThan2To31Pixels) {
  constexpr int64_t kSide = 46342;
  const Meta image{Dtype::bfloat16, Shape{1, kSide, kSide, 1}};
  if (!has_room(5 * image.bytes())) GTEST_SKIP() << "no room";
  const Memory x = backend->reserve(image.bytes());
  backend->copy_in(x->data() + image.bytes() - 2, &kOneBfloat16, 2);  // the last pixel
  backend->synchronize();
  using List = std::vector<int64_t>;
  Attrs attrs{{"pool_size", List{2, 2}}, {"strides", List{2, 2}}};
  const auto made = run(kMaxPool, {&x}, {image}, attrs);
  constexpr int64_t kOut = kSide / 2 * (kSide / 2);
  EXPECT_EQ(get<uint16_t>(made[0], kOut - 2, 2), (std::vector<uint16_t>{0, kOneBfloat16}));
  EXPECT_EQ(get<uint8_t>(made[1], kOut - 2, 2), (std::vector<uint8_t>{0, 3}));
  const Shape y{1, kSide / 2, kSide / 2, 1};
  attrs.set("input_shape", image.shape.dims());
  const auto back =
      run(kMaxPoolGradient, {&made[1], &made[0]}, {{Dtype::uint8, y}, {Dtype::bfloat16, y}}, attrs);
  EXPECT_EQ(get<uint16_t>(back[0], kSide * kSide - 2, 2), (std::vector<uint16_t>{0, kOneBfloat16}));
}

// The far end of a tensor is reached, by packs and behind them.
TEST_F(CudaLarge, ElementsBeyond2To31) {
  constexpr int64_t kCount = (int64_t{1} << 31) + 1027;
  const Meta x{Dtype::bfloat16, Shape{kCount}};
  if (!has_room(4 * x.bytes())) GTEST_SKIP() << "no room";
  const Memory values = backend->reserve(x.bytes());
  for (int64_t from_end : {1, 2, 1026})
    backend->copy_in(values->data() + x.bytes() - 2 * from_end, &kOneBfloat16, 2);
  backend->synchronize();
  const std::vector<uint16_t> end{kOneBfloat16, kOneBfloat16};
  EXPECT_EQ(get<uint16_t>(run(kRelu, {&values}, {x})[0], kCount - 2, 2), end);
  const Attrs to_float{{"dtype", std::string("float32")}};
  EXPECT_EQ(get<float>(run(kCast, {&values}, {x}, to_float)[0], kCount - 3, 3),
            (std::vector<float>{0, 1, 1}));
  Attrs sum{{"axes", std::vector<int64_t>{0}}};
  sum.set("dtype", std::string("float32"));
  EXPECT_EQ(get<float>(run(kReduceSum, {&values}, {x}, sum)[0], 0, 1), std::vector<float>{3});
  const Attrs last{{"axis", int64_t{0}}, {"begin", kCount - 2}, {"size", int64_t{2}}};
  EXPECT_EQ(get<uint16_t>(run(kSlice, {&values}, {x}, last)[0], 0, 2), end);
}

}  // namespace
}  // namespace pl::test::large_cuda_test
