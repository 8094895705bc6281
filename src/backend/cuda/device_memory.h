// Reservations of a GPU's memory and of pinned host memory.
#pragma once

#include "backend/backend.h"
#include "backend/cpu/host_memory.h"

namespace pl {

class DeviceHolders;  // device_holders.h

// One cudaMalloc, given back when destroyed.
class CudaMemory final : public DeviceMemory {
 public:
  // Throws DoesNotFit, naming who else holds the device's memory.
  CudaMemory(const DeviceHolders& holders, Bytes bytes);
  ~CudaMemory() override;
};

// Pinned: the device copies from and to it without help of the processor.
class PinnedMemory final : public DeviceMemory {
 public:
  explicit PinnedMemory(Bytes bytes);
  ~PinnedMemory() override;

 private:
  Reservation pages_;  // of large ones
};

}  // namespace pl
