// The CPU: one libgomp team started here, one oneDNN engine and stream. No op logic.
#pragma once

#include <dnnl.h>

#include "backend/backend.h"

namespace pl {

class CpuBackend final : public Backend {
 public:
  static constexpr Bytes kAlignment = 64;

  // Starts the team. `threads` 0: all cores. Throws UserError outside [1, 1024].
  explicit CpuBackend(int threads = 0);
  ~CpuBackend() override;

  // Makes the calling thread's team this backend's size. The size belongs to the thread, and
  // another backend may have changed it: whoever runs kernels calls this first.
  void use() const;

  std::string machine() const override;   // processor and instruction set
  std::string numerics() const override;  // the library's version
  bool narrow_simd() const override;
  dnnl_engine_t engine() const { return engine_; }
  dnnl_stream_t stream() const { return stream_; }

 private:
  dnnl_engine_t engine_ = nullptr;
  dnnl_stream_t stream_ = nullptr;
};

}  // namespace pl
