// DeviceLink: what passes between the host and a device that has a session's arena. Inputs are
// written into pinned memory and copied when a step runs; kept values are copied back behind it.
#pragma once

#include <memory>
#include <vector>

#include "execute/executor.h"

namespace pl {

// Where a step's inputs and kept values lie in staging.
struct LinkPlaces {
  std::vector<Bytes> inputs, kept;             // offsets
  std::vector<Bytes> input_bytes, kept_bytes;  // 0: nothing is copied
  Bytes input_end = 0, end = 0;
};
LinkPlaces link_places(const Graph& graph, Bytes alignment);

class DeviceLink {
 public:
  // `graphs`: of all signatures. The staging is as large as the largest of them needs. `ahead`:
  // bytes of the device for inputs of the next step; 0: these come when it is their turn.
  DeviceLink(Backend& device, std::vector<const Graph*> graphs, Bytes ahead = 0);

  void* input(size_t signature, size_t i);  // to be written; the next step gets it
  const void* kept(size_t signature, size_t i) const;

  // While a step runs: input() is of the next one until send_ahead(), which copies to the device
  // beside kernels. The next send() takes it from there, for any signature with inputs of that
  // size.
  bool reads_ahead() const { return ahead_ != nullptr; }
  void begin_ahead();
  void send_ahead(size_t signature);
  void drop_ahead();  // another step comes next

  void send(size_t signature, const Executor& executor);     // inputs that were asked for
  void receive(size_t signature, const Executor& executor);  // kept values; waits for all work

  Backend& device() const { return device_; }
  Bytes staging_bytes() const { return staging_->bytes(); }

 private:
  Backend& device_;
  std::vector<LinkPlaces> places_;
  std::vector<std::vector<bool>> fresh_;  // of inputs
  std::unique_ptr<DeviceMemory> staging_;

  enum class Ahead : uint8_t { none, open, sent };
  void take_ahead(size_t signature, const Executor& executor);
  std::unique_ptr<DeviceMemory> ahead_staging_, ahead_;  // on the host, on the device
  Ahead ahead_state_ = Ahead::none;
  size_t ahead_signature_ = 0;
  std::vector<bool> ahead_inputs_;
};

}  // namespace pl
