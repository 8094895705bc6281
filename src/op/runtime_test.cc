#include "op/runtime.h"

#include <gtest/gtest.h>

#include <cstring>
#include <thread>

#include "backend/cpu/host_memory.h"
#include "base/error.h"
#include "op/functions.h"

namespace pl::runtime_test {
namespace {

Tensor ramp(Shape shape, Dtype dtype = Dtype::float32) {
  Tensor x({dtype, std::move(shape)});
  for (int64_t i = 0; i < x.meta().elements(); ++i)
    x.data_as<float>()[i] = static_cast<float>(i % 17) / 16;
  return x;
}

TEST(Runtime, KernelsOfEqualCallsArePreparedOnce) {
  Runtime runtime({.memory = "64MiB", .threads = 1});
  const Tensor x = ramp({8, 16}), w = ramp({16, 4});
  const Tensor first = relu(matmul(x, w));
  const size_t kernels = runtime.cached_kernels();
  EXPECT_EQ(kernels, 2u);
  for (int i = 0; i < 3; ++i) {
    const Tensor again = relu(matmul(x, w));
    EXPECT_EQ(std::memcmp(first.data(), again.data(), 8 * 4 * 4), 0);
  }
  EXPECT_EQ(runtime.cached_kernels(), kernels);
  matmul(x, x, {.transpose_b = true});
  EXPECT_EQ(runtime.cached_kernels(), kernels + 1);
}

TEST(Runtime, TheCacheOfKernelsIsBounded) {
  Runtime runtime({.memory = "64MiB", .threads = 1});
  for (Dim n = 1; n <= 2000; ++n) relu(Tensor({Dtype::float32, {n}}));
  EXPECT_LE(runtime.cached_kernels(), 512u);
  EXPECT_LE(runtime.memory().used, 8 * kMiB);
  runtime.trim();
  EXPECT_EQ(runtime.memory().resident(), 0);
}

TEST(Runtime, TheLimitHoldsForValuesAndWorkspaces) {
  Runtime runtime({.memory = "4MiB", .threads = 1});
  const Tensor x = ramp({256 * 1024});  // 1 MiB
  const Tensor y = square(x), z = square(y);
  EXPECT_THROW(square(z), DoesNotFit) << "kernels have a little of the fourth MiB";
  EXPECT_EQ(y.data_as<float>()[16], 1);
  EXPECT_LE(runtime.memory().peak, 4 * kMiB);
}

TEST(Runtime, LoopsOfOpsDoNotGrow) {
  if (PLIMSOLL_SANITIZED) GTEST_SKIP() << "what the sanitizer keeps of freed memory grows";
  Runtime runtime({.memory = "32MiB", .threads = 1});
  const Tensor x = ramp({64, 128}), w = ramp({128, 64});
  auto step = [&] { return reduce_sum(tanh(matmul(x, w))); };
  for (int i = 0; i < 20; ++i) step();
  const MemoryFigures before = runtime.memory();
  const Bytes resident = process_resident();
  for (int i = 0; i < 500; ++i) step();
  EXPECT_EQ(runtime.memory().resident(), before.resident());
  EXPECT_LT(process_resident() - resident, 512 * kKiB);
}

TEST(Runtime, Nests) {
  Runtime outer({.memory = "1MiB", .threads = 1});
  const Tensor big = [] {
    Runtime inner({.memory = "8MiB", .threads = 1});
    return fill({512 * 1024}, 2.0);
  }();
  EXPECT_EQ(outer.memory().used, 0) << "the value belongs to the runtime it was made in";
  EXPECT_EQ(big.data_as<float>()[512 * 1024 - 1], 2);
  EXPECT_THROW(square(big), DoesNotFit);
}

// As after model.predict(): nobody thinks of a Runtime there.
TEST(Runtime, WithoutOneOpsRunOnTheThreadsOwn) {
  EXPECT_EQ(Runtime::current(), nullptr);
  const Tensor y = square(fill({3}, 2.0));
  EXPECT_EQ(y.data_as<float>()[2], 4);
  EXPECT_EQ(Runtime::current(), nullptr);
  const Bytes used = Runtime::here().memory().used;
  EXPECT_GT(used, 0);
  {
    Runtime inner({.memory = "1MiB", .threads = 1});
    EXPECT_EQ(&Runtime::here(), &inner);
    EXPECT_THROW(fill({512 * 1024}, 2.0), DoesNotFit);
  }
  std::thread([&] {
    EXPECT_EQ(Runtime::here().memory().used, 0) << "each thread has its own";
    EXPECT_EQ(square(y).data_as<float>()[2], 16);
  }).join();
  EXPECT_EQ(Runtime::here().memory().used, used);
}

TEST(Device, NamesAndWhatIsMissing) {
  for (const char* name : {"cpu", "CPU:0", "/cpu:0", "/device:CPU:0"}) {
    const auto scope = device(name);
    (void)scope;
  }
  for (const auto& [name, expected] : {std::pair{"tpu", "expected \"cpu\", \"cuda\" or"},
                                       {"cuda:x", "received 'cuda:x'"},
                                       {"cpu:1", "received 'cpu:1'"},
                                       {"/device:GPU:63", "[device] cuda:63: "}}) {
    try {
      const auto scope = device(name);
      (void)scope;
      ADD_FAILURE() << "nothing thrown";
    } catch (const UserError& error) {
      EXPECT_NE(std::string(error.what()).find(expected), std::string::npos) << error.what();
    }
  }
}

}  // namespace
}  // namespace pl::runtime_test
