#include <atomic>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <future>
#include <numeric>
#include <thread>
#include <vector>

#include "backend/cuda/cuda_backend.h"
#include "backend/cuda/cuda_libraries.h"
#include "base/error.h"
#include "op/relu.h"
#include "tests/cuda/device_test.h"

namespace pl::backend_cuda_test {
namespace {

using CudaBackendTest = CudaTest;

TEST(CudaBackend, NamesTheMachineWithoutAGpu) {
  try {
    CudaBackend backend(1000);
    FAIL() << "made a backend of a GPU that does not exist";
  } catch (const UserError& error) {
    EXPECT_NE(std::string(error.what()).find("--device cpu"), std::string::npos) << error.what();
  }
}

// Where they are found there is no need for a GPU.
TEST(CudaLibraries, SayTheirVersions) {
  CudaLibraries libraries;
  const std::string text = libraries.versions();
  EXPECT_EQ(text, libraries.versions());
  int blas = 0, dnn = 0;
  if (std::sscanf(text.c_str(), "cuBLASLt %d, cuDNN %d", &blas, &dnn) == 2) {
    EXPECT_EQ(blas, static_cast<int>(libraries.blas_lt().version()));
    EXPECT_EQ(dnn / 10000, CUDNN_MAJOR) << text;
  } else {
    EXPECT_NE(text.find("none"), std::string::npos) << text;
  }
}
TEST_F(CudaBackendTest, NamesTheLibrariesThatTimesHoldFor) {
  EXPECT_NE(backend->machine().find(backend->libraries().versions()), std::string::npos)
      << backend->machine();
}

TEST_F(CudaBackendTest, BytesGoAndComeBack) {
  std::vector<int> there(1000), back(1000);
  std::iota(there.begin(), there.end(), 1);
  const auto bytes = static_cast<Bytes>(there.size() * sizeof(int));
  const auto a = backend->reserve(bytes), b = backend->reserve(bytes);
  backend->copy_in(a->data(), there.data(), bytes);
  backend->copy(b->data(), a->data(), bytes);
  backend->copy_out(back.data(), b->data(), bytes);
  backend->synchronize();
  EXPECT_EQ(there, back);
}

TEST_F(CudaBackendTest, ReservationsAreZeroAndGoBack) {
  const Bytes free = backend->free();
  {
    const auto memory = backend->reserve(64 * kMiB);
    EXPECT_LE(backend->free(), free - 64 * kMiB);
    std::vector<char> bytes(1024, 1);
    backend->copy_out(bytes.data(), memory->data() + 63 * kMiB, 1024);
    backend->synchronize();
    EXPECT_EQ(bytes, std::vector<char>(1024, 0));
  }
  EXPECT_EQ(backend->free(), free);
}

TEST_F(CudaBackendTest, TooMuchDoesNotFit) {
  EXPECT_THROW(backend->reserve(backend->total() + kMiB), DoesNotFit);
  backend->reserve(kMiB);  // and nothing is broken
  backend->synchronize();
}

TEST_F(CudaBackendTest, RecordedWorkRunsAgain) {
  const auto memory = backend->reserve(128);
  auto* words = reinterpret_cast<int64_t*>(memory->data());
  const int64_t add[] = {1, 10};
  const auto recording = backend->record([&] { backend->add_words(words, words, add); });
  for (int i = 0; i < 3; ++i) recording->launch();
  int64_t back[2] = {};
  backend->copy_out(back, words, sizeof back);
  backend->synchronize();
  EXPECT_EQ(back[0], 3);
  EXPECT_EQ(back[1], 30);
}

// Two names at a time: each is made while the other one is.
TEST_F(CudaBackendTest, WhatIsSharedIsMadeOnceAndInNobodysWay) {
  std::atomic<int> begun = 0, made = 0;
  auto make = [&]() -> std::shared_ptr<void> {
    ++made;
    ++begun;
    for (int i = 0; i < 1000 && begun < 2; ++i)
      std::this_thread::sleep_for(std::chrono::milliseconds(5));
    return std::make_shared<int>(begun);
  };
  std::vector<std::future<std::shared_ptr<void>>> asked;
  for (const char* name : {"a", "b", "a", "b"})
    asked.push_back(
        std::async(std::launch::async, [&, name] { return backend->shared(name, make); }));
  std::vector<std::shared_ptr<void>> got;
  for (auto& each : asked) got.push_back(each.get());
  EXPECT_EQ(made, 2);
  EXPECT_EQ(got[0], got[2]);
  EXPECT_EQ(got[1], got[3]);
  EXPECT_EQ(*std::static_pointer_cast<int>(got[0]), 2);
  EXPECT_EQ(*std::static_pointer_cast<int>(got[1]), 2);
  got.clear();
  backend->shared("a", make);
  EXPECT_EQ(made, 3) << "gone with the last who held it";
}

TEST_F(CudaBackendTest, AKernelRuns) {
  const std::vector<float> x{-1, 0, 2, std::numeric_limits<float>::quiet_NaN()};
  std::vector<float> y(4);
  const Metas metas{{Dtype::float32, Shape{4}}};
  const auto kernel = prepare(kRelu, {*backend, metas, metas, {}});
  const auto memory = backend->reserve(512);
  backend->copy_in(memory->data(), x.data(), 16);
  void* const in[] = {memory->data()};
  void* const out[] = {memory->data() + 256};
  kernel->run(in, out, nullptr);
  backend->copy_out(y.data(), out[0], 16);
  backend->synchronize();
  EXPECT_EQ(y[0], 0);
  EXPECT_EQ(y[2], 2);
  EXPECT_TRUE(std::isnan(y[3]));
}

}  // namespace
}  // namespace pl::backend_cuda_test
