#include "op/attention.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "backend/cpu/cpu_backend.h"
#include "base/error.h"
#include "op/philox.h"

namespace pl::attention_test {
namespace {

Tensor random(Shape shape) {
  Tensor x({Dtype::float32, std::move(shape)});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<float>()[i] =
        static_cast<float>(philox_block({3, 4}, 0, static_cast<uint64_t>(i))[0]) * 0x1p-31f - 1;
  return x;
}

std::unique_ptr<Kernel> kernel_of(Backend& backend, const Op& op, const Metas& in, bool causal,
                                  const char* variant) {
  const Attrs attrs{{"heads", int64_t{4}}, {"packed", int64_t{1}}, {"causal", int64_t{causal}}};
  const Metas out = op.infer(in, attrs);
  return prepare(op, {backend, in, out, attrs}, variant);
}

TEST(Attention, CausalQueriesDoNotSeeWhatComesLater) {
  CpuBackend backend(2);
  BackendScope scope(backend);
  const AttentionOptions options{.heads = 2, .causal = true};
  Tensor qkv = random({1, 100, 3 * 2 * 16});
  const Tensor before = attention(qkv, options);
  constexpr Dim kChanged = 60;
  for (Dim i = kChanged * 96; i < 100 * 96; ++i) qkv.data_as<float>()[i] *= -2;
  const Tensor after = attention(qkv, options);
  for (Dim i = 0; i < 100 * 32; ++i) {
    const bool equal = before.data_as<float>()[i] == after.data_as<float>()[i];
    ASSERT_EQ(equal, i < kChanged * 32) << "step " << i / 32;
  }
}

TEST(Attention, LargeScoresDoNotOverflow) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  Tensor qkv = random({1, 5, 3 * 8});
  for (Dim t = 0; t < 5; ++t)
    for (Dim i = 0; i < 16; ++i) qkv.data_as<float>()[t * 24 + i] = 100;  // scores of 28,284
  const Tensor out = attention(qkv, {.heads = 1});
  for (Dim i = 0; i < 8; ++i) {
    double mean = 0;
    for (Dim t = 0; t < 5; ++t) mean += static_cast<double>(qkv.data_as<float>()[t * 24 + 16 + i]);
    EXPECT_NEAR(out.data_as<float>()[i], mean / 5, 1e-6);
  }
}

TEST(Attention, NanReachesEveryQueryThatSeesIt) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  Tensor qkv = random({1, 40, 3 * 16});
  qkv.data_as<float>()[20 * 48 + 16 + 3] = std::nanf("");  // key 20
  const Tensor out = attention(qkv, {.heads = 1, .causal = true});
  for (Dim t = 0; t < 40; ++t)
    for (Dim i = 0; i < 16; ++i)
      ASSERT_EQ(std::isnan(out.data_as<float>()[t * 16 + i]), t >= 20) << "query " << t;
}

// What the op is for: no part of the workspace grows with the batch or with T * T.
TEST(Attention, WorkspaceIsATilePerThread) {
  CpuBackend backend(2);
  const Metas small{{Dtype::float32, Shape{1, 1024, 768}}};
  const Metas large{{Dtype::float32, Shape{64, 1024, 768}}};
  const auto one = kernel_of(backend, kAttention, small, true, nullptr);
  const auto many = kernel_of(backend, kAttention, large, true, nullptr);
  EXPECT_EQ(one->workspace_bytes, many->workspace_bytes);
  EXPECT_LT(one->workspace_bytes, 2 * kMiB);  // scores of a single head would take 4
  const Metas longer{{Dtype::float32, Shape{1, 4096, 768}}};
  EXPECT_LT(kernel_of(backend, kAttention, longer, true, nullptr)->workspace_bytes, 8 * kMiB);
}

TEST(Attention, RefusesWithTheShapes) {
  CpuBackend backend(1);
  BackendScope scope(backend);
  auto message = [](auto call) -> std::string {
    try {
      call();
    } catch (const UserError& error) {
      return error.what();
    }
    return "nothing thrown";
  };
  const Tensor x = random({2, 3, 10});
  EXPECT_EQ(message([&] { attention(x, {.heads = 2}); }),
            "[attention] expected features that 3 * heads divides, received float32 (2, 3, 10) "
            "{heads=2, packed=1}");
  EXPECT_NE(message([&] {
              attention(x, random({2, 4, 10}), random({2, 5, 10}), {.heads = 2});
            }).find("k and v of q's batch and features"),
            std::string::npos);
}

}  // namespace
}  // namespace pl::attention_test
