// A device that gave no memory, told apart from a host that gave none: remedies differ.
#pragma once

#include <memory>

#include "backend/backend.h"
#include "base/error.h"

namespace pl {

class DeviceFull : public DoesNotFit {
 public:
  using DoesNotFit::DoesNotFit;
};

inline std::unique_ptr<DeviceMemory> reserve_on(Backend& device, Bytes bytes) {
  try {
    return device.reserve(bytes);
  } catch (const DoesNotFit& error) {
    throw DeviceFull(error.what());
  }
}

}  // namespace pl
