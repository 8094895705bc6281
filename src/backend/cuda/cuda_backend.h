// One NVIDIA GPU: a context, a stream, libraries that are opened when first used. No op logic, and
// no CUDA header: what is CUDA's is opaque here, so that the rest builds without a toolkit.
#pragma once

#include <memory>
#include <string>

#include "backend/backend.h"

struct CUstream_st;

namespace pl {

class CudaLibraries;  // cuda_libraries.h

struct CudaOptions {
  bool deterministic = true;  // only algorithms that give the same bits again
};

class CudaBackend final : public Backend {
 public:
  static constexpr Bytes kAlignment = 256;
  static constexpr Bytes kGranule = 2 * kMiB;  // what the driver gives memory in

  // Makes the device's context. Throws UserError where this build, or this machine, has no such
  // device.
  explicit CudaBackend(int index = 0, CudaOptions options = {});
  ~CudaBackend() override;

  std::string machine() const override;
  bool on_host() const override { return false; }
  void copy_in(void* to, const void* from, Bytes bytes) override;
  void copy_out(void* to, const void* from, Bytes bytes) override;
  void copy(void* to, const void* from, Bytes bytes) override;
  void zero(void* at, Bytes bytes) override;
  void add_words(int64_t* to, const int64_t* from, std::span<const int64_t> add) override;
  void synchronize() override;
  std::unique_ptr<DeviceMemory> reserve(Bytes bytes) override;
  std::unique_ptr<DeviceMemory> reserve_staging(Bytes bytes) override;
  std::unique_ptr<Recording> record(const std::function<void()>& work) override;
  int lanes() const override { return kLanes; }
  void use_lane(int lane) override;
  int mark() override;
  void wait(int mark) override;
  double time_ms(const std::function<void()>& work) override;

  CUstream_st* stream() const;  // where kernels run now: the lane in use
  int multiprocessors() const;
  int compute_capability() const;  // 90: Hopper
  bool deterministic() const { return options_.deterministic; }

  // Handles of libraries, made on first use: cublasLtHandle_t, cudnnHandle_t (on the stream).
  void* blas_lt() const;
  void* dnn() const;
  CudaLibraries& libraries() const;
  // What kernels of this device share under a name, such as code that was loaded: made by the first
  // who asks, and gone with the last who holds it.
  std::shared_ptr<void> shared(const std::string& name,
                               const std::function<std::shared_ptr<void>()>& make) const;

  // Of the device's memory, as the driver counts it.
  Bytes total() const;
  Bytes free() const;
  Bytes held() const;  // by this process: context, code, graphs, libraries, reservations

 private:
  static constexpr int kLanes = 4;
  struct State;
  CudaOptions options_;
  std::unique_ptr<State> state_;
};

// Devices that a CudaBackend can be made of; 0 in a build without CUDA and without a driver.
int cuda_devices();

// What CUDA's part of the program takes of the host's memory in a run without a device, measured
// with scripts/measure-footprint; 0 in a build without CUDA.
Bytes cuda_host_bytes();

}  // namespace pl
