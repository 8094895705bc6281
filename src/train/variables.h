// Variables: a model's weights and optimiser slots in a reservation of their own, so that they
// outlive the transient memory of a run. Weights lie first and at the same offsets in every layout
// of a network; slots follow.
#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "backend/backend.h"
#include "backend/cpu/host_memory.h"
#include "model/initialize_part.h"
#include "model/network.h"
#include "plan/plan.h"

namespace pl {

class Variables {
 public:
  // Zeroed and resident. `capacity` bytes of address space (no memory) are set aside for a later
  // layout; 0: as many as the layout has.
  explicit Variables(VariableLayout layout, Bytes capacity = 0);
  // In one reservation of a device's memory, with `arena` bytes in all: what is beyond the layout
  // is the steps'. The last `host` bytes of the layout, some entries, lie in pinned host memory
  // instead, where kernels find them too. The host sees a copy of all.
  Variables(VariableLayout layout, Bytes arena, Backend& device, Bytes host = 0);
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  void initialize(const Network& network, uint64_t seed);  // weights; slots become zero
  // The same on a device, which has zeros, in two parts: the first works on the host alone, with
  // all cores, while the device may be busy.
  void make_weights(const Network& network, uint64_t seed);
  void send_weights();

  // Fills a slot with a number.
  void set_slot(const std::string& path, double value);

  // Takes over another layout with the same weights, which keep their values; slots become zero.
  // In place when it is within the capacity; else weights are copied once, and both copies exist
  // for that moment.
  void adopt(const VariableLayout& layout);

  const VariableLayout& layout() const { return layout_; }
  char* data() const;           // where kernels find them, but for those in host memory
  char* place(size_t i) const;  // where kernels find one, in layout order
  void* kernels_find(size_t i) const { return device_ ? place(i) : at(i); }
  char* steps() const;  // on a device: what the arena has behind the variables
  char* pinned() const { return pinned_ ? pinned_->data() : nullptr; }
  Bytes pinned_bytes() const { return pinned_ ? pinned_->bytes() : 0; }
  void clear();  // on a device: zeros, in all of the arena
  bool on_host() const { return !device_; }
  Bytes capacity() const {
    return device_ ? device_memory_->bytes() + pinned_bytes() : memory_.bytes();
  }
  // Where the host finds one, in layout order. On a device the first call copies all of them down;
  // that copy holds until steps run (`stepped`), and what is written to it counts after `written`.
  void* at(size_t i) const;
  void written() { written(layout_.bytes); }
  void stepped();
  double number(size_t i) const;  // the first of one: a float64 or float32

  uint64_t hash(bool weights_only) const;  // XXH3-64 in creation order
  std::string first_non_finite() const;    // path of a variable with a NaN or infinity, or ""

 private:
  void initialize_one(const Network& network, uint64_t seed, size_t i, const void* existing,
                      ElementRange range = {});
  void adopt_on_device(const VariableLayout& layout);
  void written(Bytes first);  // the first bytes of the copy alone
  Bytes on_device() const { return layout_.bytes - pinned_bytes(); }

  VariableLayout layout_;
  Reservation memory_;  // on a device: nothing
  Backend* device_ = nullptr;
  std::unique_ptr<DeviceMemory> device_memory_, pinned_;
  mutable Reservation copy_;  // of the device's
  Bytes made_ = 0;            // of the copy, by make_weights
};

// Bytes of the weights at the front of a layout, each rounded up to a grant.
Bytes weight_bytes(const VariableLayout& layout);

}  // namespace pl
