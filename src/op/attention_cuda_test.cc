// Attention on the device, beyond the catalogue's samples.
#include <gtest/gtest.h>

#include <cstring>

#include "backend/cuda/cuda_backend.h"
#include "op/attention.h"
#include "op/device_kernels.h"
#include "op/philox.h"
#include "tests/cuda/fenced_device.h"

namespace pl::test::attention_cuda_test {
namespace {

Tensor random_narrow(const Shape& shape, uint64_t seed) {
  const Tensor tensor({Dtype::bfloat16, shape});
  for (int64_t i = 0; i < shape.elements(); ++i) {
    const uint32_t word = philox_block(philox_stream(seed, 0), 0, static_cast<uint64_t>(i))[0];
    tensor.data_as<Bfloat16>()[i] = Bfloat16(static_cast<float>(word) * 0x1p-31f - 1);
  }
  return tensor;
}

// The library says nothing about gradients that lie where q, k and v are: many blocks at once show
// whether one reads what another has written.
TEST(CudaAttention, LongGradientInPlace) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  CudaBackend backend;
  FencedDevice buffers(backend);
  const Attrs attrs{{"heads", int64_t{12}}, {"causal", int64_t{1}}, {"packed", int64_t{1}}};
  const Tensor qkv = random_narrow({8, 1024, 2304}, 1), dout = random_narrow({8, 1024, 768}, 2);
  const Metas in{qkv.meta()}, out = kAttention.infer(in, attrs);
  auto forward = prepare(kAttention, {backend, in, out, attrs});
  const GuardedResult there = run_on_device(buffers, *forward, {qkv}, out, kNanPoison);
  Tensors all{qkv};
  for (size_t o = 0; o < out.size(); ++o) {
    all.emplace_back(out[o]);
    std::memcpy(all.back().data(), there.out[o].data(), there.out[o].size());
  }
  all.push_back(dout);
  Metas metas;
  for (const Tensor& tensor : all) metas.push_back(tensor.meta());
  const Metas gradients = kAttentionGradient.infer(metas, attrs);
  auto backward = prepare(kAttentionGradient, {backend, metas, gradients, attrs});
  const GuardedResult apart = run_on_device(buffers, *backward, all, gradients, kNanPoison);
  const InOut pair{0, 0};
  for (int i = 0; i < 3; ++i) {
    const GuardedResult placed =
        run_on_device(buffers, *backward, all, gradients, kNanPoison, {&pair, 1});
    EXPECT_EQ(placed.fault, "");
    ASSERT_TRUE(placed.out == apart.out) << backward->key;
  }
}

// What backends of one device share is no plan of the other mode.
TEST(CudaAttention, DeterminismIsPartOfAPlan) {
  if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
  const Attrs attrs{{"heads", int64_t{12}}, {"causal", int64_t{1}}, {"packed", int64_t{1}}};
  const Metas in{{Dtype::bfloat16, {2, 1024, 2304}}}, out = kAttention.infer(in, attrs);
  Metas all = in;
  all.insert(all.end(), out.begin(), out.end());
  all.push_back({Dtype::bfloat16, {2, 1024, 768}});
  const Metas gradients = kAttentionGradient.infer(all, attrs);
  // The library's name of it is the same; sums in order take more room.
  const auto workspace = [&](Backend& backend) {
    return prepare(kAttentionGradient, {backend, all, gradients, attrs})->workspace_bytes;
  };
  CudaBackend on, off(0, {.deterministic = false});
  const auto kept_on = prepare(kAttentionGradient, {on, all, gradients, attrs});
  const auto kept_off = prepare(kAttentionGradient, {off, all, gradients, attrs});
  EXPECT_NE(kept_on->workspace_bytes, kept_off->workspace_bytes);
  EXPECT_EQ(workspace(*on.choosing(false)), kept_off->workspace_bytes);
  EXPECT_EQ(workspace(*off.choosing(true)), kept_on->workspace_bytes);
}

}  // namespace
}  // namespace pl::test::attention_cuda_test
