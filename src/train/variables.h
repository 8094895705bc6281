// Variables: a model's weights and optimiser slots in a reservation of their own, so that they
// outlive the transient memory of a run. Weights lie first and at the same offsets in every layout
// of a network; slots follow.
#pragma once

#include <cstdint>
#include <string>

#include "backend/cpu/host_memory.h"
#include "model/network.h"
#include "plan/plan.h"

namespace pl {

class Variables {
 public:
  // Zeroed and resident. `capacity` bytes of address space (no memory) are set aside for a later
  // layout; 0: as many as the layout has.
  explicit Variables(VariableLayout layout, Bytes capacity = 0);
  Variables(const Variables&) = delete;
  Variables& operator=(const Variables&) = delete;

  void initialize(const Network& network, uint64_t seed);  // weights; slots become zero

  // Fills a slot with a number.
  void set_slot(const std::string& path, double value);

  // Takes over another layout with the same weights, which keep their values; slots become zero.
  // In place when it is within the capacity; else weights are copied once, and both copies exist
  // for that moment.
  void adopt(const VariableLayout& layout);

  const VariableLayout& layout() const { return layout_; }
  char* data() const { return memory_.data(); }
  void* at(size_t i) const { return memory_.data() + layout_.entries[i].at; }  // in layout order

  uint64_t hash(bool weights_only) const;  // XXH3-64 in creation order
  std::string first_non_finite() const;    // path of a variable with a NaN or infinity, or ""

 private:
  VariableLayout layout_;
  Reservation memory_;
};

// Bytes of the weights at the front of a layout, each rounded up to a grant.
Bytes weight_bytes(const VariableLayout& layout);

}  // namespace pl
