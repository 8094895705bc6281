// One NVIDIA GPU: a context, a stream, libraries that are opened when first used. No op logic. Part
// of the library that cuda_library.h opens, and of no other program.
#pragma once

#include <memory>
#include <string>

#include "backend/cuda/cuda_library.h"
#include "backend/device_work.h"

struct CUstream_st;

namespace pl {

class CudaLibraries;  // cuda_libraries.h
class HandleLock;     // handle_lock.h

class CudaBackend final : public Backend, public DeviceWork {
 public:
  static constexpr Bytes kAlignment = 256;
  static constexpr Bytes kGranule = 2 * kMiB;  // what the driver gives memory in

  // Makes the device's context. Throws UserError where this machine has no such device.
  explicit CudaBackend(int index = 0, CudaOptions options = {});
  ~CudaBackend() override;

  std::string machine() const override;
  std::string numerics() const override;
  bool on_host() const override { return false; }
  const DeviceKernels* kernels() const override;  // op/cuda_catalogue.cc
  Bytes held() const override;
  Bytes free() const override;
  std::string holders() const override;
  Bytes granule() const override { return kGranule; }
  void copy_in(void* to, const void* from, Bytes bytes) override;
  void copy_out(void* to, const void* from, Bytes bytes) override;
  void copy(void* to, const void* from, Bytes bytes) override;
  void zero(void* at, Bytes bytes) override;
  void add_words(int64_t* to, const int64_t* from, std::span<const int64_t> add) override;
  void synchronize() override;
  std::unique_ptr<DeviceMemory> reserve(Bytes bytes) override;
  std::unique_ptr<DeviceMemory> reserve_staging(Bytes bytes) override;
  std::unique_ptr<Recording> record(const std::function<void()>& work) override;
  std::unique_ptr<Backend> choosing(bool deterministic) override;
  double time_ms(const std::function<void()>& work) override;
  void use() const override;
  size_t preparing_threads() const override { return 16; }
  bool shares(const Kernel& kernel) const override;
  std::shared_ptr<void> alone_with(const Kernel& kernel) override;
  void copy_beside(void* to, const void* from, Bytes bytes) override;
  void wait_for_copies() override;
  void copies_wait() override;
  void synchronize_copies() override;
  void send_away(size_t stay, void* host, const void* from, Bytes bytes) override;
  void bring_back(size_t stay, void* to, const void* host, Bytes bytes) override;
  void wait_away(size_t stay) override;
  void wait_back(size_t stay) override;
  void join_stays() override;

  CUstream_st* stream() const;  // where all kernels run; also while it is recorded. In use then
  int multiprocessors() const;
  int compute_capability() const;  // 90: Hopper
  bool deterministic() const { return options_.deterministic; }

  // Handles of libraries, made on first use: cublasLtHandle_t, cudnnHandle_t (on the stream).
  void* blas_lt() const;
  void* dnn() const;
  HandleLock& dnn_lock() const;  // of that handle
  CudaLibraries& libraries() const;
  // Code that only some parts of a batch need is on the device before the first step too. The
  // driver is asked once for each kernel.
  void load(const void* kernel) const;
  // What kernels of this device share under a name, such as code that was loaded: made by the first
  // who asks, while others who ask for the same wait, and gone with the last who holds it.
  std::shared_ptr<void> shared(const std::string& name,
                               const std::function<std::shared_ptr<void>()>& make) const;

  Bytes total() const;  // of the device's memory

 private:
  struct State;
  CudaBackend(const CudaBackend& same, CudaOptions options);
  CudaOptions options_;
  std::shared_ptr<State> state_;  // of one context: stream, handles, code
};

int cuda_device_count();  // 0 without a driver

}  // namespace pl
