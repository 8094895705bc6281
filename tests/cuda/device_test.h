// A test that needs a GPU: it skips itself where there is none.
#pragma once

#include <gtest/gtest.h>

#include <memory>

#include "backend/cuda/cuda_backend.h"

namespace pl {

class CudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    if (cuda_device_count() == 0) GTEST_SKIP() << "no GPU";
    backend = std::make_unique<CudaBackend>();
  }
  std::unique_ptr<CudaBackend> backend;
};

}  // namespace pl
