// Small helpers that reference kernels share. Everything here is for `*_cpu.cc` files.
#pragma once

#include <cstring>
#include <memory>
#include <utility>

#include "backend/backend.h"
#include "op/op.h"
#include "tensor/bfloat16.h"

namespace pl {

// Wraps a callable void(void* const* in, void* const* out, void* workspace) as a prepared kernel.
template <class F>
class FunctionKernel final : public Kernel {
 public:
  explicit FunctionKernel(F function) : function_(std::move(function)) {}
  void run(void* const* in, void* const* out, void* workspace) override {
    function_(in, out, workspace);
  }

 private:
  F function_;
};

template <class F>
std::unique_ptr<Kernel> make_kernel(F function, Bytes workspace_bytes = 0) {
  auto kernel = std::make_unique<FunctionKernel<F>>(std::move(function));
  kernel->workspace_bytes = workspace_bytes;
  kernel->footprint = sizeof(FunctionKernel<F>);
  return kernel;
}

// For kernels that add to a sum: it lies on its next version, but for tests of the kernel alone.
inline void start_from(const void* sum, void* next, Bytes bytes) {
  if (sum != next) std::memcpy(next, sum, static_cast<size_t>(bytes));
}

// Calls `body.template operator()<T>()` with T = float or double; null for other dtypes.
template <class F>
std::unique_ptr<Kernel> dispatch_float(Dtype dtype, F body) {
  switch (dtype) {
    case Dtype::float32:
      return body.template operator()<float>();
    case Dtype::float64:
      return body.template operator()<double>();
    default:
      return nullptr;
  }
}

// Calls it with T = float or Bfloat16, for SIMD kernels that load both as float32; null for others.
template <class F>
std::unique_ptr<Kernel> dispatch_simd(Dtype dtype, F body) {
  switch (dtype) {
    case Dtype::float32:
      return body.template operator()<float>();
    case Dtype::bfloat16:
      return body.template operator()<Bfloat16>();
    default:
      return nullptr;
  }
}

// The same with T = float, double, int32_t or int64_t.
template <class F>
std::unique_ptr<Kernel> dispatch_number(Dtype dtype, F body) {
  switch (dtype) {
    case Dtype::int32:
      return body.template operator()<int32_t>();
    case Dtype::int64:
      return body.template operator()<int64_t>();
    default:
      return dispatch_float(dtype, body);
  }
}

// The same with an unsigned T of the dtype's size, for kernels that only move elements.
template <class F>
std::unique_ptr<Kernel> dispatch_size(Dtype dtype, F body) {
  switch (size_of(dtype)) {
    case 1:
      return body.template operator()<uint8_t>();
    case 2:
      return body.template operator()<uint16_t>();
    case 4:
      return body.template operator()<uint32_t>();
    default:
      return body.template operator()<uint64_t>();
  }
}

}  // namespace pl
