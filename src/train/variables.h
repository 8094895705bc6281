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

// Initialised weights on the host, before a device has a place for them.
struct MadeWeights {
  Reservation memory;  // as a layout has its variables; slots are zero
  Bytes layout = 0;    // of that layout, in all
  Bytes made = 0;      // up to the end of the last weight
};
// Works with all cores, while a device may be busy.
MadeWeights make_weights(const VariableLayout& layout, const Network& network, uint64_t seed);

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
  void send_weights(MadeWeights weights);                  // the same to a device, which has zeros

  // Fills a slot with a number.
  void set_slot(const std::string& path, double value);

  // Takes over another layout with the same weights, which keep their values; slots become zero.
  // In place when it is within the capacity; else weights are copied once, and both copies exist
  // for that moment.
  // `host`: on a device, so many bytes of its end lie in pinned host memory from then on.
  void adopt(const VariableLayout& layout, Bytes host = 0);
  void pin(Bytes host);  // the same with this layout, whose slots keep their values

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
    if (!device_) return memory_.bytes();
    return device_memory_ ? device_memory_->bytes() + pinned_bytes() : 0;
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
  // The first `kept` bytes keep their values.
  void adopt_on_device(const VariableLayout& layout, Bytes host, Bytes kept);
  void settle() const;
  void written(Bytes first);  // the first bytes of the copy alone
  Bytes on_device() const { return layout_.bytes - pinned_bytes(); }

  VariableLayout layout_;
  Reservation memory_;  // on a device: nothing
  Backend* device_ = nullptr;
  mutable std::unique_ptr<DeviceMemory> device_memory_;
  std::unique_ptr<DeviceMemory> pinned_;
  mutable Reservation copy_;  // of the device's
};

// Bytes of the weights at the front of a layout, each rounded up to a grant.
Bytes weight_bytes(const VariableLayout& layout);

}  // namespace pl
