// A kernel that dies: who hears of it, and with what words. Each in a process of its own, since a
// device answers nothing else afterwards.
#include <cuda_runtime_api.h>
#include <unistd.h>

#include <cstdio>

#include "op/cuda/runtime_code.h"
#include "op/op.h"
#include "op/pointwise.h"
#include "tests/cuda/device_test.h"

namespace pl::kernel_fault_test {
namespace {

constexpr const char* kStray = "extern \"C\" __global__ void run() { *(volatile int*)64 = 1; }\n";

// What `after` is told, on stderr; 3: a DeviceFault, 4: another error.
template <class After>
[[noreturn]] void hear(const After& after) {
  CudaBackend backend;
  const auto code = cuda::compile(backend, kStray);
  const auto memory = backend.reserve(4096);
  const Metas metas{{Dtype::float32, {64}}};
  const Attrs attrs;
  const auto innocent = prepare(get_op("tanh"), {backend, metas, metas, attrs});
  backend.synchronize();
  if (cudaLaunchKernel(code->function("run"), dim3(1), dim3(1), nullptr, 0, backend.stream()) !=
      cudaSuccess)
    ::_exit(9);
  try {
    after(backend, *innocent, memory->data());
  } catch (const DeviceFault& fault) {
    std::fprintf(stderr, "%s\n", fault.what());
    ::_exit(3);
  } catch (const Error& error) {
    std::fprintf(stderr, "%s\n", error.what());
    ::_exit(4);
  }
  ::_exit(0);
}

class CudaFault : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
    GTEST_FLAG_SET(death_test_style, "threadsafe");
  }
};

TEST_F(CudaFault, IsHeardOfByWhoeverWaits) {
  EXPECT_EXIT(hear([](CudaBackend& backend, Kernel&, char*) { backend.synchronize(); }),
              ::testing::ExitedWithCode(3), "synchronize: cudaErrorIllegalAddress");
}

// A launch behind it is refused, and is not what failed.
TEST_F(CudaFault, IsNotTheNextLaunchs) {
  EXPECT_EXIT(hear([](CudaBackend&, Kernel& innocent, char* data) {
                cudaDeviceSynchronize();
                cudaGetLastError();
                void* const place[] = {data};
                innocent.run(place, place, nullptr);
              }),
              ::testing::ExitedWithCode(3), "cudaErrorIllegalAddress");
}

}  // namespace
}  // namespace pl::kernel_fault_test
