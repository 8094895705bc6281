// DeviceLink: what passes between the host and a device that has a session's arena. Inputs are
// written into pinned memory and copied when a step runs; kept values are copied back behind it.
#pragma once

#include <memory>
#include <vector>

#include "execute/executor.h"

namespace pl {

class DeviceLink {
 public:
  // `graphs`: of all signatures. The staging is as large as the largest of them needs.
  DeviceLink(Backend& device, std::vector<const Graph*> graphs);

  void* input(size_t signature, size_t i);  // to be written; the next step gets it
  const void* kept(size_t signature, size_t i) const;

  void send(size_t signature, const Executor& executor);     // inputs that were asked for
  void receive(size_t signature, const Executor& executor);  // kept values; waits for all work

  Backend& device() const { return device_; }
  Bytes staging_bytes() const { return staging_->bytes(); }

 private:
  struct Places {
    std::vector<Bytes> inputs, kept;  // offsets
    std::vector<Bytes> input_bytes, kept_bytes;
    std::vector<bool> fresh;  // of inputs
  };
  Backend& device_;
  std::vector<Places> places_;
  std::unique_ptr<DeviceMemory> staging_;
};

}  // namespace pl
